"""Where captured jobs go.

A sink is one module here, or a plugin of the group `opsportal.archive_sinks`.
"""
