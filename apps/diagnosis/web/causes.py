"""The page of common causes of many failures."""

from datetime import timedelta
from operator import attrgetter

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.sorting import read_sort, sort_rows
from apps.diagnosis.domain.causes.common.causes import newest_causes
from apps.jobs.domain.records.conversion import hour_of
from apps.statusboard.models import Service

PERIODS = {"1": "24 hours", "7": "7 days", "30": "30 days"}
#: The columns by which causes can be sorted. Without an order, the strongest comes first.
COLUMNS = {
    "failed": attrgetter("failed"),
    "expected": attrgetter("expected"),
    "excess": attrgetter("excess"),
}


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
    sort = read_sort(request, COLUMNS, default="")
    listed = analysis.found if analysis else []
    if sort:
        listed = sort_rows(listed, COLUMNS, sort)
    slugs = []
    for cause in listed:
        if cause.attribute == "service":
            slugs.append(cause.value)
    services = Service.objects.in_bulk(slugs, field_name="slug")
    context = {
        "form": form,
        "days": days,
        "analysis": analysis,
        "causes": [(cause, services.get(cause.value)) for cause in listed],
        "is_waiting": is_waiting,
        "sort": sort,
    }
    return render(request, "diagnosis/causes.html", context, status=400 if form.errors else 200)
