"""The request in a URL, for pages and the API of this app and the apps above it."""

from django.shortcuts import get_object_or_404

from apps.accounts.models import User
from apps.production.domain.content.stages import with_stages
from apps.production.models import Request


def request_or_404(user: User, key: str) -> Request:
    """Return a request with its stages and people. Raises `Http404` if the user cannot see it."""
    return get_object_or_404(with_stages(Request.objects.visible_to(user)), key=key)
