"""Login and time zone of pages."""

import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone


class LoginMiddleware(LoginRequiredMiddleware):
    """Does not load the user for views without login, so that health checks need no database."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        return super().process_view(request, view, args, kwargs) if getattr(view, "login_required", True) else None


class TimeZoneMiddleware:
    """Activate the user's zone or the portal's default, which views without login always use."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(None):
            return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any) -> None:
        name = getattr(request.user, "time_zone", "") if getattr(view, "login_required", True) else ""
        if name:
            with suppress(LookupError, OSError, ValueError):  # a zone removed from the list since it was chosen
                timezone.activate(zoneinfo.ZoneInfo(name))
