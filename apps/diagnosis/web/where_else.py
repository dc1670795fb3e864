"""The page "Where else?": which jobs wrote a line of a log; and lines that are new."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core import charts
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in, number_of, read_query_or_warn
from apps.diagnosis.domain.groups.where_else import (
    JobHit,
    groups_of,
    hash_line,
    job_hits,
    parse_line_hash,
    search_for,
)
from apps.diagnosis.domain.reading.line_hits import SHOWN_BYTES, line_hash_at
from apps.diagnosis.permissions import may_propose_known_errors
from apps.jobs.models import Job
from apps.jobs.web.one_job import of_job
from apps.search.domain import line_watches
from apps.search.domain import new_lines as new_line_list
from apps.search.domain.where_else import Occurrences, compare, count_occurrences
from apps.search.models import LineTemplate

#: Periods that can be chosen, in days, and the longest period with a bar for each hour.
DAYS = (1, 7, 30, 90)
DEFAULT_DAYS = 30
HOURLY_DAYS = 3
PAGE_SIZE = 50
_OUTCOMES = {"failed": True, "completed": False}


def _parse_before(text: str) -> tuple[datetime, int] | None:
    """Return the end and the primary key of a job, as `more` has them; None for other texts."""
    end_text, _, pk_text = text.partition("-")
    microseconds = number_of(end_text)
    job_pk = number_of(pk_text)
    if microseconds is None or job_pk is None or microseconds > 1e17:
        return None
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds), job_pk


@require_safe
def where_else(request: AuthenticatedRequest) -> HttpResponse:
    """Show which jobs wrote a line, given as text or by the hash of its template."""
    line = request.GET.get("line", "").strip()
    line_hash = read_query_or_warn(
        request, "template", parse_line_hash, expected="16 hexadecimal digits"
    )
    days = read_query_or_warn(
        request,
        "days",
        lambda text: number_of(text) if number_of(text) in DAYS else None,
        expected="1, 7, 30 or 90",
    )
    days = days or DEFAULT_DAYS
    context: dict[str, Any] = {"line": line, "days": days, "all_days": DAYS}
    line_hash = line_hash or (hash_line(line) if line else None)
    if line_hash:
        context |= _answer(request, line_hash, days)
    elif line:
        context["without_words"] = True
    return render(request, "diagnosis/where_else.html", context)


@require_safe
@of_job
def line(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Go to the page about the line of a job's log at the byte `at`."""
    offset = number_in(request.GET, "at") or 0
    line_hash = line_hash_at(job, request.GET.get("stream", ""), offset)
    if line_hash is None:
        messages.warning(request, "This part of the log is not kept. Paste the line instead.")
        return redirect("diagnosis:where-else")
    return redirect(f"{reverse('diagnosis:where-else')}?template={line_hash:016x}")


@require_POST
def watch_line(request: AuthenticatedRequest) -> HttpResponse:
    """Watch a line, given by the hash of its template, or with `do=remove` watch it no longer."""
    line_hash = parse_line_hash(request.POST.get("template", ""))
    if line_hash is None:
        messages.error(request, "Nothing was changed. Open the line again.")
        return redirect("diagnosis:where-else")
    if request.POST.get("do") == "remove":
        line_watches.unwatch_line(user=request.user, line_hash=line_hash)
        messages.success(request, "You no longer watch this line.")
    else:
        with show_errors(request):
            line_watches.watch_line(user=request.user, line_hash=line_hash, at=timezone.now())
            messages.success(
                request, "You will be notified when a job writes this line, at most once an hour."
            )
    return redirect(f"{reverse('diagnosis:where-else')}?template={line_hash:016x}")


@require_safe
def template(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Go to the page about a stored template, such as one that a notification names."""
    line_template = get_object_or_404(LineTemplate.objects.visible_to(request.user), pk=pk)
    return redirect(f"{reverse('diagnosis:where-else')}?template={line_template.number}")


def _answer(request: AuthenticatedRequest, line_hash: int, days: int) -> dict[str, Any]:
    outcome = read_query_or_warn(
        request,
        "outcome",
        lambda text: text if text in _OUTCOMES else None,
        expected="failed or completed",
    )
    before = read_query_or_warn(request, "before", _parse_before, expected="the end of a page")
    stages = request.GET.getlist("stage")
    occurrences = count_occurrences(
        line_hash,
        user=request.user,
        since=timezone.now() - timedelta(days=days),
        stages=stages,
    )
    failed = _OUTCOMES[outcome] if outcome else None
    hits, next_before = job_hits(
        occurrences, line_hash, user=request.user, failed=failed, before=before
    )
    more = ""
    if next_before:
        ended_at, job_pk = next_before
        more = f"{int(ended_at.timestamp()) * 1_000_000 + ended_at.microsecond}-{job_pk}"
    context = {
        "occurrences": occurrences,
        "template": f"{line_hash:016x}",
        "text": occurrences.templates[0].text if occurrences.templates else "",
        "outcome": outcome or "",
        "stages": stages,
        "hits": hits,
        "more": more,
        "before": before,
        "may_propose": may_propose_known_errors(request.user),
    }
    if occurrences.templates:
        context |= _actions(request, line_hash, occurrences.templates[0].text, hits)
    if occurrences.hours:
        context |= {
            "chart": _chart(occurrences, days),
            "comparison": compare(occurrences, user=request.user),
            "groups": groups_of(occurrences, user=request.user),
        }
    return context


def _actions(
    request: AuthenticatedRequest, line_hash: int, text: str, hits: Sequence[JobHit]
) -> dict[str, Any]:
    """Return what the buttons of a line need: an example of it, its search, whether it is watched.

    A known error needs a whole line as its example; for a line that is shown cut, its template.
    """
    example = _example(hits)
    is_cut = len(example.encode()) >= SHOWN_BYTES
    search = search_for(text, example)
    return {
        "example_line": "" if is_cut else example,
        "search_url": f"{reverse('portal:text-search')}?{urlencode({'q': str(search)})}",
        "is_searchable": bool(search.texts),
        "is_watched": line_watches.is_watched(user=request.user, line_hash=line_hash),
    }


def _example(hits: Sequence[JobHit]) -> str:
    """Return the line as one of the jobs wrote it; empty if no log is kept."""
    for hit in hits:
        for line in hit.lines:
            if line.is_hit:
                return line.text
    return ""


def _chart(occurrences: Occurrences, days: int) -> str:
    """Draw how many jobs have the line, by hour or by day."""
    if days <= HOURLY_DAYS:
        bars = [*occurrences.hours]
        step = timedelta(hours=1)
        label, heading = "%d %b %H:%M", "Hour"
    else:
        bars = occurrences.days
        step = timedelta(days=1)
        label, heading = "%d %b", "Day"
    by_start = {bar.start: bar for bar in bars}
    bins = []
    start = bars[0].start
    while start <= bars[-1].start:
        bar = by_start.get(start)
        values = (bar.failed, bar.completed) if bar else (0, 0)
        shown = start.astimezone(UTC) if heading == "Day" else timezone.localtime(start)
        bins.append(charts.Bin(f"{shown:{label}}", values))
        start += step
    series = [charts.Series("failed", "down"), charts.Series("completed", "up")]
    sentence = (
        f"{occurrences.failed} failed and {occurrences.completed} completed jobs have the line"
    )
    return charts.bars(
        bins, series, sentence=sentence, heading=heading, ticks=charts.edge_ticks(bins, most=6)
    )


@require_safe
def new_lines(request: AuthenticatedRequest) -> HttpResponse:
    """List the lines of failed jobs that no log had before the last day or week."""
    days = read_query_or_warn(
        request,
        "days",
        lambda text: number_of(text) if number_of(text) in (1, 7) else None,
        expected="1 or 7",
    )
    days = days or 1
    in_completed_jobs = request.GET.get("good") == "yes"
    lines = new_line_list.new_lines(
        user=request.user,
        since=timezone.now() - timedelta(days=days),
        in_completed_jobs=in_completed_jobs,
    )
    shows_all = request.GET.get("all") == "yes"
    telling = [line for line in lines if line.spread_at or line.template.names_error]
    page = Paginator(lines if shows_all else telling, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "days": days,
        "in_completed_jobs": in_completed_jobs,
        "page": page,
        "shows_all": shows_all,
        "others": len(lines) - len(telling),
    }
    return render(request, "diagnosis/new_lines.html", context)
