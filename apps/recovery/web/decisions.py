"""Lists of decisions, of one rule and of all."""

from collections.abc import Callable

from django.core.paginator import Page
from django.db.models import QuerySet, TextChoices
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.pagination import KeysFirst
from apps.core.web.query import number_in, read_query_or_warn
from apps.recovery.domain.decision_lists import (
    RETRIED,
    WAITS_FOR_OWNER,
    WAITS_FOR_PERSON,
    DecisionFilter,
    count_decisions,
    decisions_of,
    with_jobs,
)
from apps.recovery.domain.rules.lifecycle import visible_rules
from apps.recovery.enums import Arm, RecoveryOutcome
from apps.recovery.models import Decision, RecoveryRule

PAGE_SIZE = 50
#: The decisions that a list can be filtered by, and groups of them.
_ARMS = {
    RETRIED: "Any retry",
    WAITS_FOR_OWNER: "Open question to the owner",
    WAITS_FOR_PERSON: "Open question to approvers and shifters",
    **{arm.value: arm.label for arm in Arm if arm != Arm.PENDING},
}


@require_safe
def decisions(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """List the decisions of a rule, with the parameters of `all_decisions`."""
    return _list_decisions(request, get_object_or_404(visible_rules(request.user), pk=pk))


@require_safe
def all_decisions(request: AuthenticatedRequest) -> HttpResponse:
    """List the decisions of all rules, and those on jobs that matched no rule.

    `?arm=`, `?outcome=`, `?owner=`, `?version=`, `?last=day`, `?page=`. The arm `retried` stands
    for all arms whose jobs are retried, `waits-for-owner` and `waits-for-person` for open
    questions.
    """
    return _list_decisions(request, None)


def _list_decisions(request: AuthenticatedRequest, rule: RecoveryRule | None) -> HttpResponse:
    arm = read_query_or_warn(
        request, "arm", {value: value for value in _ARMS}.get, expected=", ".join(_ARMS)
    )
    last_day_at = timezone.now() if request.GET.get("last") == "day" else None
    outcome = read_query_or_warn(
        request, "outcome", value_of(RecoveryOutcome), expected=", ".join(RecoveryOutcome.values)
    )
    shown = DecisionFilter(
        arm=arm or "",
        outcome=outcome or "",
        version=number_in(request.GET, "version"),
        owner=request.GET.get("owner", "").replace("\0", ""),
        last_day_at=last_day_at,
    )
    listed = decisions_of(request.user, shown, rule)
    context = {
        "rule": rule,
        "page": page_of(listed, request, count=count_decisions(request.user, shown, rule)),
        "arms": _ARMS.items(),
        "outcomes": RecoveryOutcome.choices,
        "shown": shown,
    }
    return render(request, "recovery/decisions.html", context)


def page_of(
    decisions: QuerySet[Decision],
    request: AuthenticatedRequest,
    *,
    count: int | None = None,
    pages: type[KeysFirst] = KeysFirst,
) -> Page[Decision]:
    """Return the page of a list that `?page=` asks for; `count` is its length, if known."""
    paginator = pages(
        decisions, PAGE_SIZE, rows=with_jobs(Decision.objects.all()), known_count=count
    )
    return paginator.get_page(request.GET.get("page"))


def value_of(choices: type[TextChoices]) -> Callable[[str], str | None]:
    """Return a function that returns a text if it is one of these choices, or else None."""
    return {value: value for value in choices.values}.get
