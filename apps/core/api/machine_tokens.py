"""Authenticate machines, such as jobs and capture hosts: `Authorization: Bearer TOKEN`."""

from typing import Any, ClassVar

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.core.domain.tokens import bearer_token


class MachineTokenAuthentication(BaseAuthentication):
    """Authenticates a machine, which is no user, by its bearer token.

    A subclass reads one kind of token. `request.auth` is what it reads.
    """

    #: The realm of a 401 response.
    realm: ClassVar[str]
    #: The name of the kind of token in the OpenAPI schema.
    scheme_name: ClassVar[str]

    def read_token(self, token: str) -> object:
        """Return what a token is for. Raises `AuthenticationFailed` for an invalid token."""
        raise NotImplementedError

    def authenticate(self, request: Request) -> tuple[AnonymousUser, object] | None:
        """Return no user, and what the token is for; None without a token."""
        token = bearer_token(request.headers.get("Authorization", ""))
        if not token:
            return None
        return AnonymousUser(), self.read_token(token)

    def authenticate_header(self, request: Request) -> str:
        return f'Bearer realm="{self.realm}"'


class HasMachineToken(BasePermission):
    """Permits callers with a token of the kind that the view authenticates."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.successful_authenticator, MachineTokenAuthentication)
