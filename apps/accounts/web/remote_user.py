"""Login through a proxy that authenticates users and passes their name in a header."""

import json
import logging
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

from django.conf import settings
from django.contrib import auth
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.domain.single_sign_on import Identity, sign_on
from apps.core.errors import DomainError

logger = logging.getLogger("opsportal.login")

#: Session key of the name for which the proxy started the session.
SESSION_NAME = "remote_user"


def _key(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


class StripRemoteUserMiddleware(MiddlewareMixin):
    """Remove the headers from requests that do not come from a proxy in `REMOTE_USER_PROXIES`.

    Must come before any middleware that rewrites `REMOTE_ADDR`. Requests over a Unix socket have no
    address and are trusted: the permissions of the socket control access.
    """

    def process_request(self, request: HttpRequest) -> None:
        if not _is_proxy(request.META.get("REMOTE_ADDR", "")):
            for header in (settings.REMOTE_USER_HEADER, settings.REMOTE_USER_GROUPS_HEADER):
                request.META.pop(_key(header), None)


def _is_proxy(address: str) -> bool:
    if not address:
        return True
    try:
        return any(
            ip_address(address) in ip_network(network) for network in settings.REMOTE_USER_PROXIES
        )
    except ValueError:
        return False


class RemoteUserMiddleware(MiddlewareMixin):
    """Log in the user named by the proxy.

    The session ends as soon as the proxy names another user or none.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        name = request.META.get(_key(settings.REMOTE_USER_HEADER), "").strip()
        if not getattr(view, "login_required", True):
            if hasattr(view, "cls") and settings.SESSION_COOKIE_NAME in request.COOKIES:
                # The API accepts sessions too.
                self._end_for_another(request, name)
            return None
        if request.session.get(SESSION_NAME, "") == name:
            return None
        auth.logout(request)
        return self._log_in(request, name) if name else None

    def _end_for_another(self, request: HttpRequest, name: str) -> None:
        """End a session that the proxy started for another user than it names now."""
        begun_for = request.session.get(SESSION_NAME, "")
        if begun_for and begun_for != name:
            auth.logout(request)

    def _log_in(self, request: HttpRequest, name: str) -> HttpResponse | None:
        header = settings.REMOTE_USER_GROUPS_HEADER
        named = request.META.get(_key(header), "") if header else ""
        groups = frozenset(
            filter(None, (group.strip() for group in named.replace(";", ",").split(",")))
        )
        try:
            user = sign_on(identity=Identity(username=name, groups=groups), at=timezone.now())
        except DomainError as refusal:
            address = request.META.get("REMOTE_ADDR") or "-"
            logger.warning("Login failed: address=%s user=%s", address, json.dumps(name[:150]))
            return render(request, "accounts/refused.html", {"refusal": refusal}, status=403)
        auth.login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        request.session[SESSION_NAME] = name
        return None
