"""Workflow types as data: their stages and typed arguments.

Form, API, checks and diff read one `Workflow`.
"""
