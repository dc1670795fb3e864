"""The request in a URL, for pages and the API of this app and the apps above it."""

from django.http import Http404
from django.shortcuts import get_object_or_404

from apps.accounts.models import User
from apps.production.domain.content.stages import with_stages
from apps.production.models import Request, Stage


def request_or_404(user: User, key: str) -> Request:
    """Return a request with its stages and people. Raises `Http404` if the user cannot see it."""
    return get_object_or_404(with_stages(Request.objects.visible_to(user)), key=key)


def stage_or_404(production_request: Request, number: int) -> Stage:
    """Return the stage of a request by its number, from 1. Raises `Http404`."""
    for stage in production_request.stages.all():
        if stage.position == number - 1:
            return stage
    raise Http404(f"{production_request} has no stage {number}.")
