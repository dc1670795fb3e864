"""Rows of the table of stages on the home page, and figures of reports with links to their jobs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.core.web.templatetags.look import number, percent, state, when
from apps.progress.domain.stage_counts import StageProgress

register = template.Library()


@register.simple_tag
def progress_rows(progress: Iterable[StageProgress]) -> SafeString:
    """A row for each stage under its request. There are a hundred of them, too many for a template loop."""
    return mark_safe("".join(_rows(progress)))  # noqa: S308 – names and addresses are escaped, the rest are figures


def _rows(progress: Iterable[StageProgress]) -> Iterator[str]:
    request, jobs = None, reverse("jobs:list")
    for row in progress:
        if row.request.pk != request:
            request = row.request.pk
            name, page = f"{row.request.key} {row.request.title}", row.request.get_absolute_url()
            yield '<tr class="group"><th colspan="5" scope="rowgroup">'
            marks = " ".join(str(state(one.kind, one.get_kind_display())) for one in row.request.attention.all())
            yield f'<a href="{escape(page)}">{escape(name)}</a> {marks}</th></tr>\n'
        sums, wanted = row.sums, "" if row.wanted is None else f" <small>of {number(row.wanted)}</small>"
        completed = _linked(jobs + sums.completed_address, row.completed) if sums.completed else "0"
        failed = _linked(jobs + sums.failed_address, sums.failed) if sums.failed else "0"
        yield f'<tr class="part"><td>{escape(row.stage or "no stage named")}</td><td class="n">{completed}{wanted}</td>'
        yield f'<td class="n">{percent(row.completed, row.wanted)}</td>'
        yield f'<td class="n">{failed}</td><td class="n wide">{when(sums.last_ended_at)}</td></tr>\n'


def _linked(address: str, jobs: int) -> str:
    return f'<a href="{escape(address)}">{number(jobs)}</a>'


@register.simple_tag(takes_context=True)
def behind(context: Context, row: Mapping[str, Any], name: str, figure: float, shown: str) -> str:
    """Link a figure of a row to its jobs; in a frozen report, say that the list is as of now."""
    if not figure:
        return shown
    link = '<a href="{}" title="Jobs as of now">{}</a>' if context.get("digest") else '<a href="{}">{}</a>'
    return format_html(link, row["links"][name], shown)
