"""The type of requests after login."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from apps.accounts.models import User


class AuthenticatedRequest(HttpRequest):
    """A request of an authenticated user."""

    user: User
    htmx: HtmxDetails
