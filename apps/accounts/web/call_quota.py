"""Hourly limit on the calls of the API with one token."""

from typing import Any

from django.conf import settings
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from apps.accounts.models import ApiToken
from apps.core.domain.quotas import HOUR, Quota


def quota_of(token: ApiToken) -> Quota:
    """Return the token's own limit, or the portal's if it is lower or the only one."""
    most = settings.API_MAX_CALLS_PER_HOUR
    return Quota("api-calls", min(token.calls_per_hour or most, most), HOUR)


class CallsThrottle(BaseThrottle):
    """Limits the calls with a token; the headers of each response have the remaining quota.

    The headers follow
    https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-06
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count a call. Raises `LimitReached`."""
        token = request.auth
        if not isinstance(token, ApiToken):
            return True
        at = timezone.now()
        quota = quota_of(token)
        calls = quota.add(token.token_key, 1, at=at)
        if calls > quota.most:
            message = f"The token “{token.name}” has made {quota.most:,} calls in this hour."
            raise quota.refusal(message, at=at)
        view.headers["RateLimit-Limit"] = str(quota.most)
        view.headers["RateLimit-Remaining"] = str(quota.most - calls)
        view.headers["RateLimit-Reset"] = str(int(quota.wait_seconds(at)))
        return True
