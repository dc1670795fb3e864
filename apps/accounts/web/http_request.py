"""The type of requests after login."""

from typing import cast

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from apps.accounts.models import User


class AuthenticatedRequest(HttpRequest):
    """A request of an authenticated user."""

    user: User
    htmx: HtmxDetails


def user_of(request: HttpRequest) -> User:
    """Return the user of a request in the admin, where one is always logged in."""
    return cast(User, request.user)
