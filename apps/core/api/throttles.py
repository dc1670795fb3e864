"""Hourly limits on what a user can change and store through the API."""

from typing import Any

from django.conf import settings
from django.utils import timezone
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from apps.core.domain.quotas import HOUR, Quota


class ChangesThrottle(BaseThrottle):
    """Limits a user's changes and their bytes, before a body is parsed.

    Jobs and capture hosts are no users and have limits of their own.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count a change. Raises `LimitReached`."""
        if request.method in SAFE_METHODS or request.user.pk is None:
            return True
        size = int(request.META.get("CONTENT_LENGTH") or 0)
        _count("changes", 1, settings.API_MAX_CHANGES_PER_HOUR, request.user.pk)
        _count("bytes", size, settings.API_MAX_BYTES_PER_HOUR, request.user.pk)
        return True


def _count(unit: str, amount: int, most: int, user_id: int) -> None:
    at = timezone.now()
    quota = Quota(f"api-{unit}", most, HOUR)
    if quota.add(user_id, amount, at=at) > most:
        raise quota.refusal(
            f"You have reached the limit of {most:,} {unit} by the API in an hour.", at=at
        )
