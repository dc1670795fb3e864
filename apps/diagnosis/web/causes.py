"""The page of common causes of many failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.sorting import read_sort, sort_rows
from apps.diagnosis.domain.causes.common.causes import Causes, CommonCause, newest_causes
from apps.jobs.domain.records.conversion import hour_of
from apps.statusboard.enums import State
from apps.statusboard.models import Service, StateInterval

PERIODS = {"1": "24 hours", "7": "7 days", "30": "30 days"}
#: Maximum number of causes to show; the others are folded.
MOST_SHOWN = 5
#: The columns by which causes can be sorted.
COLUMNS = {
    "failed": attrgetter("failed"),
    "expected": attrgetter("expected"),
    "excess": attrgetter("excess"),
}


@dataclass(frozen=True)
class CauseRow:
    """A cause, with its service if it is an outage; `states` says in words what the service was."""

    cause: CommonCause
    service: Service | None
    states: str


class PeriodForm(forms.Form):
    """The period up to the last full hour."""

    days = forms.ChoiceField(label="Period", choices=list(PERIODS.items()), required=False)


@require_safe
def causes(request: AuthenticatedRequest) -> HttpResponse:
    """Show what the failures of a period have in common, each cause with its excess failures."""
    form = PeriodForm(request.GET or {"days": "7"})
    days = int(form.cleaned_data["days"] or 7) if form.is_valid() else 7
    until = hour_of(timezone.now())
    analysis, is_waiting = newest_causes(
        until=until, length=timedelta(days=days), user=request.user, at=timezone.now()
    )
    sort = read_sort(request, COLUMNS, default="-excess")
    listed = sort_rows(analysis.found, COLUMNS, sort) if analysis else []
    rows = _rows_of(listed, analysis) if analysis else []
    context = {
        "form": form,
        "days": days,
        "analysis": analysis,
        "causes": rows[:MOST_SHOWN],
        "other_causes": rows[MOST_SHOWN:],
        "other_excess": sum(row.cause.excess for row in rows[MOST_SHOWN:]),
        "is_waiting": is_waiting,
        "sort": sort,
    }
    return render(request, "diagnosis/causes.html", context, status=400 if form.errors else 200)


def _rows_of(causes: Sequence[CommonCause], analysis: Causes) -> list[CauseRow]:
    """Return causes with their services, which are called down or degraded as the board does."""
    slugs = [cause.value for cause in causes if cause.attribute == "service"]
    services = Service.objects.in_bulk(slugs, field_name="slug") if slugs else {}
    states: dict[str, set[str]] = {}
    outages = StateInterval.objects.filter(
        service__slug__in=slugs, state__in=(State.DOWN, State.DEGRADED)
    ).overlapping(analysis.since, analysis.until)
    if slugs:
        for slug, state in outages.order_by().values_list("service__slug", "state").distinct():
            states.setdefault(slug, set()).add(state)
    rows = []
    for cause in causes:
        was = states.get(cause.value, {State.DOWN}) if cause.attribute == "service" else set()
        labels = [state.label.lower() for state in (State.DOWN, State.DEGRADED) if state in was]
        rows.append(CauseRow(cause, services.get(cause.value), " or ".join(labels)))
    return rows
