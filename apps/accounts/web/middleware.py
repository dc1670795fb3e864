"""Who may see pages at all, and in which time zone."""

import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone


class LoginMiddleware(LoginRequiredMiddleware):
    """Django's own; but for a view that needs no login it does not ask who is there: health needs no database."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        return super().process_view(request, view, args, kwargs) if getattr(view, "login_required", True) else None


class TimeZoneMiddleware:
    """Activate the user's zone, or the portal's own; views that need no login tell the same to everybody."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(None):
            return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any) -> None:
        name = getattr(request.user, "time_zone", "") if getattr(view, "login_required", True) else ""
        if name:
            with suppress(LookupError, OSError, ValueError):  # a zone that has gone from the list since it was chosen
                timezone.activate(zoneinfo.ZoneInfo(name))
