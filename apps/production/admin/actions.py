"""Actions of the back office that ask for a reason and call a service for each row, as the person logged in."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.accounts.models import User
from apps.core.admin import LongListAdmin, ReadOnlyAdmin
from apps.core.errors import DomainError

#: So many rows are acted upon at once; each is a service call of its own.
MOST_AT_ONCE = 100


@dataclass(frozen=True)
class Asked:
    """What the reason page brought, beside the row: who, when, why, the version seen, and another field's value."""

    by: User
    at: datetime
    reason: str
    version: int | None = None
    extra: str = ""


@dataclass(frozen=True)
class ReasonAction:
    """One action. `call` does it to a row and says what became of it; it raises a `DomainError` where it may not.

    `outlook` says for each row, in the same order, what would come of it, and whether it is possible for the person.
    """

    name: str
    label: str
    call: Callable[[Any, Asked], str]
    outlook: Callable[[Sequence[Any], Any, datetime], list[tuple[bool, str]]]
    extra: str = ""


class ReasonActions(LongListAdmin):
    """Rows with actions that call services."""

    reason_actions: Sequence[ReasonAction] = ()

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found = super().get_actions(request)
        own = {action.name: (_entry(action), action.name, f"{action.label}…") for action in self.reason_actions}
        return found | own if self.has_view_permission(request) else {}

    def act(self, request: HttpRequest, chosen: QuerySet[Any], action: ReasonAction) -> HttpResponse | None:
        """Ask for the reason, with what would come of it; then do it to each row by itself, and tell."""
        if chosen.count() > MOST_AT_ONCE:
            self.message_user(request, f"At most {MOST_AT_ONCE} at once.", messages.ERROR)
            return None
        rows = list(chosen)
        if "reason" not in request.POST:
            return self._ask(request, rows, action)
        for row in rows:
            seen = request.POST.get(f"version-{row.pk}", "")
            asked = Asked(
                by=user_of(request),
                at=timezone.now(),
                reason=request.POST["reason"],
                version=int(seen) if seen.isdecimal() and len(seen) < 10 else None,
                extra=request.POST.get("extra", "").strip(),
            )
            try:
                told, level = action.call(row, asked), messages.SUCCESS
            except DomainError as error:
                told, level = str(error), messages.ERROR
            self.message_user(request, told if str(row) in told else f"{row}: {told}", level)
        return None

    def _ask(self, request: HttpRequest, rows: Sequence[Any], action: ReasonAction) -> HttpResponse:
        outlook = action.outlook(rows, user_of(request), timezone.now())
        context = {
            **self.admin_site.each_context(request),
            "title": f"{action.label}: say why",
            "rows": [(row, possible, words) for row, (possible, words) in zip(rows, outlook, strict=True)],
            "any_possible": any(possible for possible, _ in outlook),
            "action": action,
            "checkbox": ACTION_CHECKBOX_NAME,
            "opts": self.model._meta,
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "production/admin_reason.html", context)


class ReasonActionsAdmin(ReasonActions, ReadOnlyAdmin):
    """Rows that only services write, with actions that call them."""


def _entry(action: ReasonAction) -> Any:
    def act(admin: ReasonActions, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        return admin.act(request, chosen, action)

    return act


def each(
    judge: Callable[[Any, Any], str], words: str
) -> Callable[[Sequence[Any], Any, datetime], list[tuple[bool, str]]]:
    """Return an outlook from a function that says why one row is refused to a person, or nothing."""

    def outlook(rows: Iterable[Any], user: User, at: datetime) -> list[tuple[bool, str]]:
        refusals = [judge(row, user) for row in rows]
        return [(not refusal, refusal or words) for refusal in refusals]

    return outlook
