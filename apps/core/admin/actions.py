"""Actions of lists that first say what they do, and to which records."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

#: Maximum number of rows per action, which the page before it lists.
MOST_AT_ONCE = 100
Action = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]


def confirmed(*, button: str, effect: str) -> Callable[[Action], Action]:
    """Show the chosen records and the effect of an action, a sentence, before it is taken.

    `button` is a verb with its object: `Revoke tokens`.
    """

    def decorate(action: Action) -> Action:
        @wraps(action)
        def ask_first(
            model_admin: ModelAdmin, request: HttpRequest, chosen: QuerySet[Any]
        ) -> HttpResponse | None:
            if "confirmed" in request.POST:
                return action(model_admin, request, chosen)
            rows = list(chosen[: MOST_AT_ONCE + 1])
            if len(rows) > MOST_AT_ONCE:
                messages.error(request, f"Choose at most {MOST_AT_ONCE} at once.")
                return None
            context = {
                **model_admin.admin_site.each_context(request),
                "title": f"{button}?",
                "button": button,
                "effect": effect,
                "rows": rows,
                "action": request.POST["action"],
                "checkbox": ACTION_CHECKBOX_NAME,
                "opts": model_admin.opts,
            }
            return TemplateResponse(request, "admin/confirm.html", context)

        return ask_first

    return decorate
