"""Pages of hosts: the list, exclusions from new jobs, the form for one, and the pages of a host."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Prefetch, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.events import events_of
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in, read_query_or_warn
from apps.core.web.templatetags.formatting import short_time
from apps.hosts.domain.exclusions import (
    count_by_cluster,
    default_expiry,
    exclude_host,
    exclusions_of,
    extend_exclusion,
    list_exclusions,
    open_central_causes,
    open_exclusions,
    return_host,
)
from apps.hosts.domain.failing import failing_beyond_outages
from apps.hosts.domain.probes.results import (
    GOOD_IN_A_ROW,
    count_good_in_a_row,
    finished_jobs_of,
    returns_by_probes,
)
from apps.hosts.domain.probes.states import states_of_host
from apps.hosts.models import HostExclusion, ProbeJob, ProbeResult
from apps.hosts.permissions import may_exclude_hosts
from apps.hosts.web.forms import ExcludeForm, ExtendForm, ReturnForm
from apps.hosts.web.links import hosts_that_work_again
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.records.jobs import matches_host
from apps.jobs.domain.statistics.questions import PERIODS, job_list_query
from apps.jobs.models import Job

PAGE_SIZE = 50
#: Exclusions in effect that the list shows at most.
MOST_OPEN = 200
#: Exclusions on the page of a host.
SHOWN_OF_HOST = 10
#: Probe jobs on the page of an exclusion.
SHOWN_PROBE_JOBS = 10
#: Hosts with failures that the list shows at most.
SHOWN_FAILING = 20
FAILING_PERIODS = {"24h": "24 hours", "7d": "7 days"}


@require_safe
def exclusions(request: AuthenticatedRequest) -> HttpResponse:
    """List hosts by failure rate, those that are excluded now, and earlier exclusions."""
    at = timezone.now()
    cluster = request.GET.get("cluster", "")
    current = open_exclusions(at)
    earlier = list_exclusions().exclude(pk__in=current.values("pk"))
    causes = open_central_causes()
    if cluster:
        current = current.filter(cluster__name=cluster)
        earlier = earlier.filter(cluster__name=cluster)
        causes = causes.filter(cluster__name=cluster)
    page = Paginator(earlier, PAGE_SIZE).get_page(number_in(request.GET, "page") or 1)
    count = current.count()
    context = {
        "cluster": cluster,
        "current": current[:MOST_OPEN],
        "count": count,
        **_failing_hosts(request, cluster),
        "clusters": count_by_cluster(at) if count > MOST_OPEN and not cluster else [],
        "page": page,
        "causes": causes,
        "may_exclude": may_exclude_hosts(request.user),
        "as_of": at,
    }
    return render(request, "hosts/exclusions.html", context)


def _failing_hosts(request: AuthenticatedRequest, cluster: str) -> dict[str, Any]:
    """Return the hosts that fail most beyond outages, each with its exclusion in effect."""
    at = timezone.now()
    periods = {period: period for period in FAILING_PERIODS}
    expected = f"one of {', '.join(periods)}"
    period = read_query_or_warn(request, "period", periods.get, expected=expected) or "24h"
    since, until = last_hours(at, PERIODS[period])
    hosts = failing_beyond_outages(
        user=request.user, since=since, until=until, cluster=cluster, limit=SHOWN_FAILING
    )
    shown = [*hosts.standing_out, *hosts.others]
    names = {_short(host.row.key["host"]) for host in shown}
    excluded = {}
    for exclusion in open_exclusions(at).filter(host__in=names):
        excluded[exclusion.cluster.name, exclusion.host] = exclusion
    work_again = hosts_that_work_again(at, since=since)
    question = hosts.answer.question
    lines = []
    for failing in shown:
        key = (failing.row.key["cluster"], _short(failing.row.key["host"]))
        lines.append(
            {
                "failing": failing,
                "host": key[1],
                "cluster": key[0],
                "exclusion": excluded.get(key),
                "works_again": key in work_again,
                "query": job_list_query(question, failing.row),
                "failed_query": job_list_query(question, failing.row, failed=True),
            }
        )
    return {
        "failing_hosts": hosts,
        "standing_out": lines[: len(hosts.standing_out)],
        "others": lines[len(hosts.standing_out) :],
        "period": period,
        "periods": FAILING_PERIODS,
    }


def _short(host: str) -> str:
    """Return the name of a host without its domain, as exclusions and addresses have it."""
    return host.partition(".")[0] or host


@require_http_methods(["GET", "HEAD", "POST"])
def exclude(request: AuthenticatedRequest) -> HttpResponse:
    """Exclude a host; the query string may name it."""
    if not may_exclude_hosts(request.user):
        raise PermissionDenied
    at = timezone.now()
    initial = {name: request.GET.get(name, "") for name in ("cluster", "host", "group")}
    form = ExcludeForm(request.POST or None, initial=initial | {"expires_at": default_expiry(at)})
    if request.method == "POST" and form.is_valid():
        with show_errors(request, form):
            excluded = exclude_host(by=request.user, at=at, **form.cleaned_data)
            messages.success(
                request, f"The host {excluded.host} of {excluded.cluster} gets no new jobs."
            )
            return redirect(excluded)
    status = 400 if request.method == "POST" else 200
    return render(request, "hosts/exclude.html", {"form": form}, status=status)


def _exclusion(pk: int) -> HostExclusion:
    return get_object_or_404(list_exclusions(), pk=pk)


@require_safe
def exclusion(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    return _page(request, _exclusion(pk))


def _page(request: AuthenticatedRequest, shown: HostExclusion, **forms: Any) -> HttpResponse:
    """Show an exclusion with its evidence, its events and the forms; 400 with problems of one."""
    at = timezone.now()
    is_open = shown.is_in_effect(at)
    context = {
        "exclusion": shown,
        "is_open": is_open,
        "events": events_of(shown),
        "probe_jobs": _probe_jobs_of(shown),
        "good_in_a_row": count_good_in_a_row(finished_jobs_of(shown)),
        "good_needed": GOOD_IN_A_ROW if is_open and returns_by_probes(shown) else 0,
        "extend_form": ExtendForm(initial={"expires_at": shown.expires_at}, prefix="extend"),
        "return_form": ReturnForm(prefix="return"),
        "may_change": is_open and may_exclude_hosts(request.user),
        **forms,
    }
    return render(request, "hosts/exclusion.html", context, status=400 if forms else 200)


@require_POST
def extend(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Let an exclusion expire at another time."""
    form = ExtendForm(request.POST, prefix="extend")
    return _change(request, pk, form, extend_exclusion, "gets no new jobs until {expires_at}.")


@require_POST
def return_to_jobs(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Let a host get new jobs again."""
    form = ReturnForm(request.POST, prefix="return")
    return _change(request, pk, form, return_host, "gets new jobs again.")


def _probe_jobs_of(shown: HostExclusion) -> QuerySet[ProbeJob]:
    jobs = ProbeJob.objects.filter(exclusion=shown).order_by("-planned_at", "-pk")
    results = ProbeResult.objects.select_related("probe").order_by("probe__name")
    return jobs.prefetch_related(Prefetch("results", results))[:SHOWN_PROBE_JOBS]


def _change(
    request: AuthenticatedRequest,
    pk: int,
    form: ExtendForm | ReturnForm,
    change: Callable[..., HostExclusion],
    outcome: str,
) -> HttpResponse:
    """Change an exclusion as a form says; show its page, with the problems of the form if any."""
    if not may_exclude_hosts(request.user):
        raise PermissionDenied
    shown = _exclusion(pk)
    if form.is_valid():
        with show_errors(request, form):
            done = change(exclusion=shown, by=request.user, at=timezone.now(), **form.cleaned_data)
            expires_at = short_time(timezone.localtime(done.expires_at))
            messages.success(request, f"{shown} {outcome.format(expires_at=expires_at)}")
    if form.errors:
        return _page(request, shown, **{f"{form.prefix}_form": form})
    return redirect(shown)


@require_safe
def of_host(request: AuthenticatedRequest, name: str) -> HttpResponse:
    """Show the exclusions of a host; the page of the host loads them."""
    at = timezone.now()
    rows = list(exclusions_of(name)[:SHOWN_OF_HOST])
    may_exclude = may_exclude_hosts(request.user)
    newest = None
    if may_exclude:
        jobs = Job.objects.filter(matches_host(name)).order_by("-ended_at", "-pk")
        newest = jobs.values_list("cluster__name", flat=True).first()
    context = {
        "name": name,
        "rows": rows,
        "current": [row for row in rows if row.is_in_effect(at)],
        "states": states_of_host(name, at).order_by("good", "cluster__name", "probe__name"),
        "may_exclude": may_exclude,
        "cluster": newest or "",
    }
    template = "_of_host.html" if request.htmx else "of_host.html"
    return render(request, f"hosts/{template}", context)
