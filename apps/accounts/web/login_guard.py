"""Reject and log failed logins.

django-axes rejects logins after some failures, also per address for all usernames. Each failure is
logged in one line, whose format docs/production.md describes for fail2ban.
"""

import json
import logging
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.db.models import Sum
from django.dispatch import receiver
from django.http import HttpRequest

logger = logging.getLogger("opsportal.login")

#: Failures with any usernames after which an address is locked. Several people may share it.
MAX_FAILURES_OF_ADDRESS = 30


def typed_username(request: object, credentials: Mapping[str, str] | None) -> str | None:
    """Return the username for counting failures, truncated to the maximum length."""
    name = (credentials or {}).get("username")
    return None if name is None else name[:150]


class LoginGuard(AxesDatabaseHandler):
    """Locks a username at an address after `AXES_FAILURE_LIMIT` failures.

    Also locks an address that tries many usernames. A username is never locked at other addresses,
    so no one can lock out other users.
    """

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        failures: int = super().get_failures(request, credentials)
        # An IPv6 user usually has a whole /64 network.
        address = ip_address(getattr(request, "axes_ip_address", None) or "0.0.0.0")  # noqa: S104
        network = ip_network((address, 64 if address.version == 6 else 32), strict=False)
        recent = AccessAttempt.objects.filter(
            ip_address__gte=str(network[0]),
            ip_address__lte=str(network[-1]),
            attempt_time__gte=get_cool_off_threshold(request),
        )
        of_address = recent.aggregate(count=Sum("failures_since_start"))["count"] or 0
        if of_address >= MAX_FAILURES_OF_ADDRESS:
            return max(failures, settings.AXES_FAILURE_LIMIT)
        return failures


@receiver(user_login_failed)
def log_failed_login(
    credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any
) -> None:
    """Log a failed login.

    The name is user input, so it comes last and quoted, to prevent it from forging the rest.
    """
    address = request.META.get("REMOTE_ADDR", "") if request else ""
    name = str(credentials.get("username", ""))[:150]
    logger.warning("Login failed: address=%s user=%s", address or "-", json.dumps(name))
