"""Workflow types as data: which stages a request may have, and which typed arguments each takes.

Knows nothing of the database. Form, API, checks, documentation and the diff of two versions read one `Workflow`.
"""
