"""The list of campaigns. The request list shows their requests by its campaign filter."""

from operator import attrgetter

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.charts import Part, share_bar
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import read_sort, sort_rows
from apps.core.web.tables import csv_file
from apps.production.domain.campaigns import Campaign, campaigns_for
from apps.production.models import Request

PAGE_SIZE = 50
#: The columns by which campaigns can be sorted.
ORDERS = {
    "name": attrgetter("name"),
    "requests": attrgetter("requests"),
    "jobs": attrgetter("jobs"),
    "deadline": attrgetter("deadline"),
    "end": attrgetter("expected_end"),
}
_COLUMNS = [
    "Campaign",
    "Experiment",
    "Requests",
    "Open",
    "Done",
    "Need attention",
    "Jobs",
    "Completed jobs",
]
_COLUMNS += ["Deadline", "Expected end"]


@require_safe
def campaigns(request: AuthenticatedRequest) -> HttpResponse:
    """List campaigns with totals.

    `?experiment=` lists those of one experiment; `?format=csv` returns all as a file.
    """
    experiments = {experiment.key: experiment for experiment in visible_experiments(request.user)}
    chosen = read_query_or_warn(request, "experiment", experiments.get, expected="an experiment")
    requests = Request.objects.visible_to(request.user)
    if chosen:
        requests = requests.filter(experiment=chosen)
    rows = campaigns_for(request.user, requests)
    if request.GET.get("format") == "csv":
        return csv_file("campaigns", _COLUMNS, map(_cells, rows))

    sort = read_sort(request, ORDERS, default="")
    if sort:
        rows = sort_rows(rows, ORDERS, sort)
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "experiments": experiments.values(),
        "chosen": chosen,
        "page": page,
        "sort": sort,
        "rows": [(campaign, _bar(campaign)) for campaign in page.object_list],
    }
    return render(request, "production/catalogue/campaigns.html", context)


def _bar(campaign: Campaign) -> str:
    sentence = f"{campaign.completed:,.0f} of {campaign.jobs:,} jobs completed"
    return share_bar(
        [Part("done", campaign.completed, sentence)], sentence=sentence, whole=campaign.jobs
    )


def _cells(campaign: Campaign) -> list[object]:
    counts: list[object] = [
        campaign.name,
        campaign.experiment,
        campaign.requests,
        campaign.open,
        campaign.done,
        campaign.attention,
        campaign.jobs,
    ]
    return [
        *counts,
        f"{campaign.completed:.0f}",
        campaign.deadline or "",
        campaign.expected_end or "",
    ]
