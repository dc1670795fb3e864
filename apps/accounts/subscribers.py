"""Log each failed login in one line, in the format that docs/production.md gives to fail2ban."""

import json
import logging
from typing import Any

from django.contrib.auth.signals import user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

logger = logging.getLogger("opsportal.login")


@receiver(user_login_failed)
def log_failed_login(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """Log the address, then the name, which is user input: last and quoted, so that it cannot forge the rest."""
    address = request.META.get("REMOTE_ADDR", "") if request else ""
    name = str(credentials.get("username", ""))[:150]
    logger.warning("Login failed: address=%s user=%s", address or "-", json.dumps(name))
