"""Charts of values in rows and columns."""

from collections.abc import Mapping, Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.charts.parts import Cell, Part
from apps.core.charts.svg import joined, link, role, short_number


def heat_map(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Cell]]],
    *,
    sentence: str,
    top: float,
    with_values: bool = False,
) -> SafeString:
    """Return a table whose cells are darker the nearer their value is to `top`.

    Cells may show their values.
    """
    heads = []
    for name in columns:
        if name:
            heads.append(format_html('<th scope="col">{}</th>', name))
        else:
            heads.append(SafeString("<td></td>"))
    head = joined(heads)
    lines = []
    for name, cells in rows:
        inner = joined(_cell(cell, top, with_values) for cell in cells)
        lines.append(format_html('<tr><th scope="row">{}</th>{}</tr>', name, inner))
    return format_html(
        '<div class="scroll" tabindex="0" role="region" aria-label="{1}"><table class="heat{0}">'
        '<caption class="visually-hidden">{1}</caption><thead><tr><td></td>{2}</tr></thead>'
        "<tbody>{3}</tbody></table></div>",
        "" if with_values else " hours",
        sentence,
        head,
        joined(lines),
    )


def week_strip(days: Sequence[tuple[str, Mapping[int, Part]]], *, sentence: str) -> SafeString:
    """Return a row per day, with a mark at each hour of the day that has a part.

    `Part.kind` is the state of the hour.
    """
    marks = []
    for hour in (0, 6, 12, 18):
        marks.append(format_html('<text x="{}" y="8">{}</text>', f"{30 + hour * 6.7:.1f}", hour))
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


def _cell(cell: Cell, top: float, with_values: bool) -> SafeString:
    if cell.value is None:
        return format_html(
            '<td class="none" title="{}">{}</td>', cell.title, "–" if with_values else ""
        )

    # In steps of 5 %, as classes: the content security policy allows no inline styles.
    if top > 0:
        level = 5 * round(20 * min(max(cell.value / top, 0), 1))
    else:
        level = 0
    if with_values:
        inner = format_html("{}", short_number(cell.value))
    else:
        inner = format_html('<span class="visually-hidden">{}</span>', cell.title)
    if cell.address:
        inner = format_html('<a href="{}" title="{}">{}</a>', cell.address, cell.title, inner)
    return format_html('<td class="p{}" title="{}">{}</td>', level, cell.title, inner)
