"""Rows of the table of requests on the home page, and linked figures of reports."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from django import template
from django.template import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.charts import Part, share_bar
from apps.core.web.templatetags.formatting import number, percent, state
from apps.jobs.domain.totals.totals import Sums
from apps.production.domain.slack import slack_until
from apps.production.models import Request
from apps.progress.domain.stage_counts import StageProgress

register = template.Library()

#: How many stages of a request have a bar at most.
MOST_BARS = 8


@register.simple_tag
def progress_rows(progress: Iterable[StageProgress]) -> SafeString:
    """Render a row for each request, with a bar for each stage.

    There may be a hundred bars, too many for a template loop.
    """
    rows = []
    for request, stages in groupby(progress, key=lambda stage_progress: stage_progress.request):
        rows.append((_row(request, list(stages)),))
    return format_html_join("\n", "{}", rows)


def _row(request: Request, stages: list[StageProgress]) -> SafeString:
    rows = request.attention.all()
    marks = format_html_join(
        " ", "{}", ((state(need.kind, need.get_kind_display()),) for need in rows)
    )
    failed = Sums(
        query={"request": request.key},
        failed=sum(stage_progress.sums.failed for stage_progress in stages),
    )
    address = reverse("jobs:list") + failed.failed_address
    more = ""
    if len(stages) > MOST_BARS:
        more = format_html("<small>{} more</small>", len(stages) - MOST_BARS)
    return format_html(
        '<tr><td><a class="title" href="{}"><span class="nowrap">{}</span> {}</a> {}</td>'
        '<td class="bars"><div class="stages">{}{}</div></td>'
        '<td class="number">{}</td><td class="number">{}</td></tr>',
        request.get_absolute_url(),
        request.key,
        request.title,
        marks,
        format_html_join(
            "", "{}", ((_bar(stage_progress),) for stage_progress in stages[:MOST_BARS])
        ),
        more,
        format_html('<a href="{}">{}</a>', address, number(failed.failed))
        if failed.failed
        else "0",
        _end(request),
    )


def _bar(stage_progress: StageProgress) -> SafeString:
    """Render the completed and failed jobs of a stage, with a link to its finished jobs."""
    lost = max(0, stage_progress.ended - stage_progress.completed)
    whole = stage_progress.requested_jobs or max(1, stage_progress.ended)
    parts = [
        Part("done", stage_progress.completed, "completed"),
        Part("failed", min(lost, whole - stage_progress.completed), "not completed"),
    ]

    name = stage_progress.stage or "no stage named"
    done = f"{number(stage_progress.completed)} completed"
    share = number(stage_progress.completed)
    if stage_progress.requested_jobs is not None:
        done += f" of {number(stage_progress.requested_jobs)}"
        share = percent(stage_progress.completed, stage_progress.requested_jobs)
    sentence = f"{name}: {done}, {number(stage_progress.sums.failed)} failed"
    bar = share_bar(parts, sentence=sentence, whole=whole)
    address = reverse("jobs:list") + stage_progress.sums.address
    return format_html(
        '<a href="{}" title="{}"><b>{}</b> {}{}</a>', address, sentence, share, name, bar
    )


def _end(request: Request) -> SafeString:
    """Render the expected end, and its difference from the deadline."""
    slack = slack_until(
        request.deadline,
        request.expected_end,
        today=timezone.localdate(),
        start=request.expected_start,
    )
    day = f"{request.expected_end:%-d %b %Y}" if request.expected_end else "–"
    if slack is None:
        return format_html("{}", day)

    difference = "on time"
    if slack.days:
        days = f"{abs(slack.days)} day{'' if abs(slack.days) == 1 else 's'}"
        difference = f"{days} late" if slack.is_late else f"{days} early"
    if slack.start:
        difference = f"starts {difference}"
    return format_html(
        '{}<br><small class="{}">{}</small>', day, "late" if slack.is_late else "", difference
    )


@register.simple_tag(takes_context=True)
def behind(context: Context, row: Mapping[str, Any], name: str, figure: float, shown: str) -> str:
    """Link a figure of a row to its jobs. In a frozen report, note that the list is current."""
    if not figure:
        return shown
    if context.get("digest"):
        link = '<a href="{}" title="Jobs as of now">{}</a>'
    else:
        link = '<a href="{}">{}</a>'
    return format_html(link, row["links"][name], shown)
