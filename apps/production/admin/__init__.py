"""The admin of production. Each module registers its models."""

from apps.production.admin import approvals, queue, records, requests

__all__ = ["approvals", "queue", "records", "requests"]
