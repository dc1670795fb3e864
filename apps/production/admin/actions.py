"""Admin actions that require a reason.

They call a domain function for each row as the logged-in user.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.accounts.models import User
from apps.core.errors import DomainError
from apps.core.web.query import number_in

#: Maximum number of rows per action. Each row is a call of a domain function.
MOST_AT_ONCE = 100


class ReasonAction:
    """A list action that shows its outcome, asks for a reason, and then acts on each row."""

    name = ""
    label = ""
    #: The label of a second field of the form. Empty if there is none.
    extra = ""
    #: The effect of the action on a row, shown before the user confirms it.
    outcome = ""
    allowed_permissions = ("view",)
    do_not_call_in_templates = True

    def __init__(self) -> None:
        self.__name__ = self.name
        self.short_description = f"{self.label}…"

    def act(
        self, row: Any, *, by: User, at: datetime, reason: str, version: int | None, extra: str
    ) -> str:
        """Act on a row at the `version` shown, and return the result as text.

        Raises a `DomainError`.
        """
        raise NotImplementedError

    def refusal(self, row: Any, user: User) -> str:
        """Return why the user cannot do this, or an empty text."""
        raise NotImplementedError

    def outlook(self, rows: Sequence[Any], user: User, at: datetime) -> list[tuple[bool, str]]:
        """Return for each row, in order, whether the action is possible and its outcome."""
        refusals = [self.refusal(row, user) for row in rows]
        return [(not refusal, refusal or self.outcome) for refusal in refusals]

    def __call__(
        self, model_admin: ModelAdmin, request: HttpRequest, chosen: QuerySet[Any]
    ) -> HttpResponse | None:
        """Return the page that asks for a reason, or act on the rows and return to the list."""
        if chosen.count() > MOST_AT_ONCE:
            model_admin.message_user(request, f"At most {MOST_AT_ONCE} at once.", messages.ERROR)
            return None
        rows = list(chosen)
        if "reason" not in request.POST:
            return self._ask(model_admin, request, rows)
        answers = {"reason": request.POST["reason"], "extra": request.POST.get("extra", "").strip()}
        for row in rows:
            version = number_in(request.POST, f"version-{row.pk}")
            try:
                result = self.act(
                    row, by=user_of(request), at=timezone.now(), version=version, **answers
                )
                level = messages.SUCCESS
            except DomainError as error:
                result = str(error)
                level = messages.ERROR
            model_admin.message_user(
                request, result if str(row) in result else f"{row}: {result}", level
            )
        return None

    def _ask(
        self, model_admin: ModelAdmin, request: HttpRequest, rows: Sequence[Any]
    ) -> HttpResponse:
        outlook = self.outlook(rows, user_of(request), timezone.now())
        shown = []
        any_possible = False
        for row, (possible, outcome) in zip(rows, outlook, strict=True):
            shown.append((row, possible, outcome))
            any_possible |= possible
        context = {
            **model_admin.admin_site.each_context(request),
            "title": f"{self.label}: reason",
            "rows": shown,
            "any_possible": any_possible,
            "action": self,
            "checkbox": ACTION_CHECKBOX_NAME,
            "opts": model_admin.opts,
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "production/admin_reason.html", context)
