"""Actions of the back office that ask for a reason and call a service for each row, as the person logged in."""

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

#: So many rows are acted upon at once; each is a service call of its own.
MOST_AT_ONCE = 100


class ReasonAction:
    """An action of a list: it asks for a reason, with what would come of it, then acts on each row by itself."""

    #: `extra` labels another field of the page that asks; `words` say what becomes of a row that is not refused.
    name, label, extra, words = "", "", "", ""
    allowed_permissions = ("view",)
    do_not_call_in_templates = True

    def __init__(self) -> None:
        self.__name__, self.short_description = self.name, f"{self.label}…"

    def act(self, row: Any, *, by: User, at: datetime, reason: str, version: int | None, extra: str) -> str:
        """Do it to a row of the `version` seen, and say what became of it. Raises a `DomainError` where it may not."""
        raise NotImplementedError

    def refusal(self, row: Any, user: User) -> str:
        """Say why this is not possible for the person, or nothing."""
        raise NotImplementedError

    def outlook(self, rows: Sequence[Any], user: User, at: datetime) -> list[tuple[bool, str]]:
        """Say for each row, in the same order, whether it is possible for the person, and what would come of it."""
        refusals = [self.refusal(row, user) for row in rows]
        return [(not refusal, refusal or self.words) for refusal in refusals]

    def __call__(self, model_admin: ModelAdmin, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        """Answer with the page that asks, or, once the reason is there, act and return to the list."""
        if chosen.count() > MOST_AT_ONCE:
            model_admin.message_user(request, f"At most {MOST_AT_ONCE} at once.", messages.ERROR)
            return None
        rows = list(chosen)
        if "reason" not in request.POST:
            return self._ask(model_admin, request, rows)
        given = {"reason": request.POST["reason"], "extra": request.POST.get("extra", "").strip()}
        for row in rows:
            version = number_in(request.POST, f"version-{row.pk}")
            try:
                told = self.act(row, by=user_of(request), at=timezone.now(), version=version, **given)
                level = messages.SUCCESS
            except DomainError as error:
                told, level = str(error), messages.ERROR
            model_admin.message_user(request, told if str(row) in told else f"{row}: {told}", level)
        return None

    def _ask(self, model_admin: ModelAdmin, request: HttpRequest, rows: Sequence[Any]) -> HttpResponse:
        outlook = self.outlook(rows, user_of(request), timezone.now())
        context = {
            **model_admin.admin_site.each_context(request),
            "title": f"{self.label}: say why",
            "rows": [(row, possible, words) for row, (possible, words) in zip(rows, outlook, strict=True)],
            "any_possible": any(possible for possible, _ in outlook),
            "action": self,
            "checkbox": ACTION_CHECKBOX_NAME,
            "opts": model_admin.opts,
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "production/admin_reason.html", context)
