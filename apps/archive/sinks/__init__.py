"""Destinations of captured jobs.

A sink is a module in this package, or a plugin of the group `opsportal.archive_sinks`.
"""
