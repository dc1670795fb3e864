"""Authenticate API calls with a token: `Authorization: Bearer TOKEN` or `Token TOKEN`."""

from typing import Any

from knox.auth import TokenAuthentication as KnoxAuthentication
from rest_framework.authentication import get_authorization_header
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from apps.accounts.enums import TokenScope
from apps.accounts.models import ApiToken, User

_SCHEMES = {b"bearer": "Bearer", b"token": "Token"}


class TokenAuthentication(KnoxAuthentication):
    """Authenticates with Knox's tokens and checks their scope."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return user and token; None without a token.

        Raises `AuthenticationFailed` and `PermissionDenied`.
        """
        credentials: tuple[User, ApiToken] | None = super().authenticate(request)
        if (
            credentials
            and credentials[1].scope == TokenScope.READ
            and request.method not in SAFE_METHODS
        ):
            raise PermissionDenied("The scope of this token is read only.")
        return credentials

    def authenticate_header(self, request: Request) -> Any:
        """Return the scheme of the call if it is supported, else the scheme for a 401 response."""
        parts = get_authorization_header(request).lower().split()
        return _SCHEMES.get(parts[0], "Bearer") if parts else "Bearer"
