"""The list of requests, and the changes of one request.

The page of a request is in `portal`, its form in `form`.
"""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.accounts.web.saved_views import views_context
from apps.core.domain.pagination import in_order
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import field_order, read_sort
from apps.core.web.tables import csv_file
from apps.core.web.templatetags.formatting import percent
from apps.production.domain.campaigns import Campaign, campaigns_for
from apps.production.domain.content.revisions import compare, last_reviewed, revisions_of
from apps.production.domain.priority.shown_forecasts import shown_forecasts
from apps.production.filters import ORDERS, RequestFilter, ordered
from apps.production.models import Request
from apps.production.web.forms.request import writable_experiments
from apps.production.web.lookup import request_or_404

#: Common views of the list: name and query.
STANDARD_FILTERS = {
    "All": "",
    "Mine": "mine=yes",
    "Waiting for me": "mine=turn",
    "In production": "state=testing&state=running&state=completing&sort=deadline",
    "Need attention": "attention=yes",
    "Late": "attention=late&sort=deadline",
}
_COLUMNS = [
    "Request",
    "Title",
    "Campaign",
    "State",
    "Experiment",
    "Type",
    "Progress",
    "Deadline",
    "Expected end",
]
_COLUMNS += ["Requested", "Priority", "Requester", "Created"]


@require_safe
def request_list(request: AuthenticatedRequest) -> HttpResponse:
    """List the requests that a user can see.

    `?sort=-deadline` sets the order; `?format=csv` returns all of them as a file.
    """
    visible = ordered(
        Request.objects.visible_to(request.user)
        .select_related("experiment", "created_by", "workflow__type")
        .prefetch_related("attention")
    )
    request_filter = RequestFilter(request.GET, queryset=visible, request=request)
    if request_filter.is_valid():
        shown = request_filter.qs
    else:
        shown = visible.none()
    sort = read_sort(request, ORDERS, default="-created")
    by = field_order(sort, ORDERS)
    if request.GET.get("format") == "csv" and request_filter.is_valid():
        return csv_file(
            "requests", _COLUMNS, map(_cells, shown.order_by(by, "-pk").iterator(chunk_size=500))
        )

    more_open = True
    is_filtered = True
    campaigns: list[Campaign] = []
    if request_filter.is_valid():
        cleaned = request_filter.form.cleaned_data
        more_open = any(
            cleaned.get(name)
            for name in request_filter.form.fields
            if name not in request_filter.FIRST
        )
        is_filtered = any(value not in (None, "", []) for value in cleaned.values())
        if cleaned.get("campaign"):
            of_campaign = visible.filter(campaign=cleaned["campaign"])
            if cleaned.get("experiment"):
                of_campaign = of_campaign.filter(experiment=cleaned["experiment"])
            campaigns = campaigns_for(request.user, of_campaign)
    page = in_order(shown, by=by, query=request.GET)
    forecasts = shown_forecasts(page.rows, at=timezone.now())
    context = {
        **views_context(request),
        "sort": sort,
        "views": STANDARD_FILTERS,
        "shown_view": request.GET.urlencode(),
        "more_open": more_open,
        "filter": request_filter,
        "filtered": is_filtered,
        "page": page,
        "campaigns": campaigns,
        "rows": list(zip(page.rows, forecasts, strict=True)),
        "may_write": writable_experiments(request.user).exists(),
    }
    return render(request, "production/request_list.html", context)


def _cells(production_request: Request) -> list[object]:
    texts: list[object] = [
        production_request.key,
        production_request.title,
        production_request.campaign,
        production_request.get_state_display(),
        production_request.experiment,
        production_request.workflow.type,
    ]
    texts += [
        None if production_request.part_done is None else percent(production_request.part_done, 1),
        production_request.deadline,
        production_request.expected_end,
    ]
    texts += [
        production_request.get_requested_priority_display(),
        production_request.level,
        production_request.created_by,
    ]
    return [
        "" if text is None else text
        for text in (*texts, production_request.created_at.isoformat(timespec="seconds"))
    ]


@require_safe
def changes(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Compare version `?old=` (default: the last reviewed) with `?new=` (default: the current)."""
    production_request = request_or_404(request.user, key)
    kept = revisions_of(production_request)
    by_number = {str(revision.pk): revision for revision in kept}.get
    expected = "a version of this request"
    old = read_query_or_warn(request, "old", by_number, expected=expected)
    new = read_query_or_warn(request, "new", by_number, expected=expected)
    old = old or last_reviewed(production_request)
    context = {
        "object": production_request,
        "revisions": kept,
        "comparison": compare(production_request, old=old, new=new) if old else None,
    }
    return render(request, "production/request/changes.html", context)
