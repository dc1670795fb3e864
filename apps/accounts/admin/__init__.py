"""The admin of accounts. Each module registers its models."""

from apps.accounts.admin import logins, roles, users
from apps.accounts.web.http_request import user_of

__all__ = ["logins", "roles", "user_of", "users"]
