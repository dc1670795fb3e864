"""Charts of one line, for table cells and sentences."""

from collections.abc import Iterable, Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.charts.parts import Part
from apps.core.charts.svg import joined, link, per_cent, role, share


def interval(
    *, value: float, low: float, high: float, expected: float | None = None, top: float = 1.0
) -> SafeString:
    """Return a whisker from `low` to `high`, a point at `value`, and a mark at `expected`.

    The axis ends at `top`.
    """
    sentence = f"{value:.1%}, between {low:.1%} and {high:.1%}"
    mark = SafeString("")
    if expected is not None:
        sentence += f", expected {expected:.1%}"
        mark = format_html('<rect x="{}%" y="1" width="2" height="12"/>', share(expected, top))
    return format_html(
        '<svg class="interval" width="120" height="14" role="img" aria-label="{0}">'
        '<title>{0}</title><line class="grid-line" x1="50%" x2="50%" y2="14"/>{1}'
        '<line x1="{2}%" x2="{3}%" y1="7" y2="7"/>'
        '<circle cx="{4}%" cy="7" r="3.5"/></svg>',
        sentence,
        mark,
        share(low, top),
        share(high, top),
        share(value, top),
    )


def spread(quantiles: Sequence[float], *, value: float | None, sentence: str) -> SafeString:
    """Return a bar of quantiles at 10, 25, 50, 75 and 90 %, whose middle half is darker.

    `value` is shown as a mark.
    """
    least, low, mid, high, most = quantiles
    top = max(most, value or 0) * 1.15 or 1
    marks = []
    for kind, start, end in (("all", 0, top), ("most", least, most), ("half", low, high)):
        marks.append(
            format_html(
                '<rect class="{}" x="{}%" width="{}%" y="5" height="6"/>',
                kind,
                share(start, top),
                share(end - start, top),
            )
        )
    marks.append(
        format_html('<rect class="mid" x="{}%" width="1" y="4" height="8"/>', share(mid, top))
    )
    if value:
        kind = "mine short" if value < most else "mine"
        marks.append(
            format_html('<rect class="{}" x="{}%" width="2" height="16"/>', kind, share(value, top))
        )
    return format_html(
        (
            '<svg class="spread" width="100%" height="16" role="img" '
            'aria-label="{0}"><title>{0}</title>{1}</svg>'
        ),
        sentence,
        joined(marks),
    )


def bar_with_mark(most: float, *, value: float, sentence: str) -> SafeString:
    """Return a bar from zero to `most`, and a mark at `value`."""
    top = max(most, value) * 1.02 or 1
    return format_html(
        '<svg class="spread" width="100%" height="16" role="img" '
        'aria-label="{0}"><title>{0}</title>'
        '<rect class="all" width="100%" y="5" height="6"/>'
        '<rect class="half" width="{1}%" y="5" height="6"/>'
        '<rect class="mine" x="{2}%" width="2" y="1" height="14"/></svg>',
        sentence,
        share(max(most, 0.02 * top), top),
        share(value, top),
    )


def spark(values: Sequence[float], *, sentence: str, height: int = 20) -> SafeString:
    """Return one thin bar per value, four pixels apart, in the height of a line of text."""
    most = max(values, default=0) or 1
    path = ""
    for number, value in enumerate(values):
        if value:
            size = max(1.5, value / most * (height - 1))
            path += f"M{number * 4},{height}v{-size:.1f}h3V{height}z"
    return format_html(
        '<svg class="spark" width="{0}" height="{1}" role="img" '
        'aria-label="{2}"><title>{2}</title><path d="{3}"/>'
        '<line class="base" x2="{0}" y1="{4}" y2="{4}"/></svg>',
        len(values) * 4,
        height,
        sentence,
        path,
        height - 0.5,
    )


def share_bar(
    parts: Iterable[Part],
    *,
    sentence: str,
    whole: float | None = None,
    height: int = 8,
    target: Part | None = None,
) -> SafeString:
    """Return one bar with its parts side by side; the remainder of `whole` stays empty.

    A line across the bar marks the value of the `target`.
    """
    shown = [part for part in parts if part.value > 0]
    total = whole or sum(part.value for part in shown) or 1
    place = 0.0
    drawn = []
    for part in shown:
        width = min(100 * part.value / total, 100 - place)
        mark = format_html(
            '<rect class="f-{}" x="{}%" width="{}%" height="{}"><title>{}</title></rect>',
            part.kind,
            per_cent(place),
            per_cent(width),
            height,
            part.title,
        )
        drawn.append(link(part.address, "", mark))
        place += width
    if target is not None:
        line = '<rect class="f-{}" x="{}%" width="2" height="{}"><title>{}</title></rect>'
        target_place = per_cent(min(100 * target.value / total, 99))
        drawn.append(format_html(line, target.kind, target_place, height, target.title))
    return format_html(
        '<svg class="share-bar" width="100%" height="{}" role="{}" aria-label="{}">{}</svg>',
        height,
        role(drawn),
        sentence,
        joined(drawn),
    )
