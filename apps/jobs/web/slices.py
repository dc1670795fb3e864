"""The pages of a host, a site and a user: their jobs and failures."""

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import read_query_or_warn
from apps.core.web.turns import one_at_a_time
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.records.jobs import collections_behind, totals_as_of, with_columns
from apps.jobs.domain.statistics.levels import DIMENSIONS
from apps.jobs.domain.statistics.questions import PERIOD_LABELS, PERIODS, Answer, job_list_query
from apps.jobs.domain.statistics.slices import SliceKind, recent_failures, slice_of
from apps.jobs.domain.statistics.words import words_of
from apps.jobs.web import explorer_charts as charts


@require_safe
@one_at_a_time
def show_slice(request: AuthenticatedRequest, kind: SliceKind, name: str) -> HttpResponse:
    """Show the jobs of a host, site or user; 404 if the user can see none."""
    periods = {period: period for period in PERIODS}
    expected = f"one of {', '.join(PERIODS)}"
    period = read_query_or_warn(request, "period", periods.get, expected=expected) or "7d"
    at = timezone.now()
    since, until = last_hours(at, PERIODS[period])
    jobs = slice_of(kind, name, user=request.user, since=since, until=until)
    if jobs is None:
        raise Http404
    over_time = charts.chart_over_time(
        jobs.question, jobs.steps, step=jobs.step_hours, dimension="verdict"
    )
    columns, rows = with_columns(jobs.newest)
    context = {
        "slice": jobs,
        "period": period,
        "periods": PERIOD_LABELS,
        "all_query": job_list_query(jobs.question),
        "failed_query": job_list_query(jobs.question, failed=True),
        "chart": over_time.chart,
        "legend": over_time.legend,
        "tables": [_table(answer) for answer in jobs.tables],
        "columns": columns,
        "rows": rows,
        "as_of": totals_as_of(),
        "behind": collections_behind(at),
    }
    return render(request, "jobs/slice.html", context)


@require_safe
def host_rate(request: AuthenticatedRequest, name: str) -> HttpResponse:
    """Show in one line how many jobs of a host failed in the last 24 hours, for another page."""
    since, until = last_hours(timezone.now(), 24)
    failures = recent_failures(name, user=request.user, since=since, until=until)
    context = {
        "of_host": failures.of_host,
        "of_site": failures.of_site,
        "site": failures.site,
        "query": job_list_query(failures.question),
        "failed_query": job_list_query(failures.question, failed=True),
    }
    return render(request, "jobs/_host_rate.html", context)


def _table(answer: Answer) -> dict[str, Any]:
    """Return the title and the rows of a table of failures; rows without failures are left out."""
    question = answer.question
    values = {}
    for name in question.by:
        values[name] = {row.key[name] for row in answer.rows}
    meanings = words_of(values)

    rows = []
    for row in answer.rows:
        if not row.failed and "verdict" in question.by:
            continue
        cells = []
        for name, label in zip(question.by, row.label, strict=True):
            cells.append((name, label, meanings.get((name, row.key[name]), "")))
        rows.append(
            {
                "row": row,
                "cells": cells,
                "query": job_list_query(question, row),
                "failed_query": job_list_query(question, row, failed=True),
            }
        )
    labels = [DIMENSIONS[name] for name in question.by]
    return {"labels": labels, "by": question.by, "rows": rows, "more": answer.left_out}
