"""Workflow types as data: their stages and typed arguments.

Form, API, checks and comparison of versions share one `Workflow`.
"""
