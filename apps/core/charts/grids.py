"""Values in rows and columns."""

from collections.abc import Mapping, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.charts.parts import Cell, Part
from apps.core.charts.svg import joined, link, role, short_number


def heat_map(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Cell]]],
    *,
    sentence: str,
    top: float,
    words: bool = False,
) -> SafeString:
    """Return a table of cells that are darker the nearer a value is to `top`; with `words`, cells show their values."""
    head = joined(format_html('<th scope="col">{}</th>', name) if name else SafeString("<td></td>") for name in columns)
    body = format_html_join(
        "",
        '<tr><th scope="row">{}</th>{}</tr>',
        ((name, joined(_cell(cell, top, words) for cell in cells)) for name, cells in rows),
    )
    return format_html(
        '<div class="scroll" tabindex="0" role="region" aria-label="{1}"><table class="heat{0}">'
        '<caption class="vh">{1}</caption><thead><tr><td></td>{2}</tr></thead><tbody>{3}</tbody></table></div>',
        "" if words else " hours",
        sentence,
        head,
        body,
    )


def week_strip(days: Sequence[tuple[str, Mapping[int, Part]]], *, sentence: str) -> SafeString:
    """Return a row per day with a mark at each hour of the clock that is given; `Part.kind` is its state."""
    marks = [format_html('<text x="{}" y="8">{}</text>', f"{30 + hour * 6.7:.1f}", hour) for hour in (0, 6, 12, 18)]
    for row, (name, hours) in enumerate(days):
        y = 11 + row * 6.5
        if row in (0, len(days) - 1):
            marks.append(format_html('<text x="0" y="{}">{}</text>', y + 6, name))
        for hour, part in hours.items():
            mark = format_html(
                '<rect class="f-{}" opacity="{}" x="{}" y="{}" width="5.7" height="5.5"/>',
                part.kind,
                ".4" if part.kind == "up" else "1",
                f"{30 + hour * 6.7:.1f}",
                y,
            )
            marks.append(link(part.address, part.title, mark))
    return format_html(
        '<svg class="chart week" viewBox="0 0 191 {}" role="{}" aria-label="{}">{}</svg>',
        12 + 6.5 * len(days),
        role(marks),
        sentence,
        joined(marks),
    )


def _cell(cell: Cell, top: float, words: bool) -> SafeString:
    if cell.value is None:
        return format_html('<td class="none" title="{}">{}</td>', cell.title, "–" if words else "")
    # in steps of 5 %, as classes: a page's policy lets no element carry a style of its own
    level = 5 * round(20 * min(max(cell.value / top, 0), 1)) if top > 0 else 0
    shown = (
        format_html("{}", short_number(cell.value)) if words else format_html('<span class="vh">{}</span>', cell.title)
    )
    inner = format_html('<a href="{}" title="{}">{}</a>', cell.address, cell.title, shown) if cell.address else shown
    return format_html('<td class="p{}" title="{}">{}</td>', level, cell.title, inner)
