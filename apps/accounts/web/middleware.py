"""Login and time zone of pages."""

import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone

from apps.accounts.web.kept_input import is_own, keep_input


class LoginMiddleware(LoginRequiredMiddleware):
    """Does not load the user for views without login, so that health checks need no database."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if not getattr(view, "login_required", True):
            return None
        return super().process_view(request, view, args, kwargs)

    def handle_no_permission(self, request: HttpRequest, view_func: Callable[..., Any]) -> Any:
        """Keep the input of a form; redirect scripts and GET requests to the login page."""
        is_page = (
            request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
            and "HX-Request" not in request.headers
        )
        if request.method == "POST" and is_page and is_own(request):
            return keep_input(request)
        return super().handle_no_permission(request, view_func)


class TimeZoneMiddleware:
    """Activate the user's time zone, or the portal's default.

    Views without login always use the default.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(None):
            return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        name = ""
        if getattr(view, "login_required", True):
            name = getattr(request.user, "time_zone", "")
        if name:
            with suppress(LookupError, OSError, ValueError):
                # The zone was removed from the list after the user chose it.
                timezone.activate(zoneinfo.ZoneInfo(name))
