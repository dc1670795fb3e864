"""A request of a page: it has a user, as nobody else gets past the login."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from apps.accounts.models import User


class AuthenticatedRequest(HttpRequest):
    """What views of pages take, unless they are for strangers too."""

    user: User
    htmx: HtmxDetails
