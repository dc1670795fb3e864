"""Charts: SVG made on the server, with a sentence for those who do not see it and a table behind.

Across, a chart is measured in per cent, so that it stretches with its card; down, and in its type, in pixels. A mark
takes the colour of its kind (`up`, `down`, `service`, `code`, …: the classes `f-…` of static/opsportal/css/states.css)
and links to the list that it counts. These links are not in the tab order: the table behind has the same ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

HEIGHT = 176
_BAND, _AXIS = 15, 28


@dataclass(frozen=True)
class Series:
    """What one colour of a chart counts: its name in titles and in the table, and its kind."""

    name: str
    kind: str


@dataclass(frozen=True)
class Bin:
    """One bar, or one point of a line: what it covers, a value per series, and the list that it counts."""

    label: str
    values: Sequence[float]
    address: str = ""
    rate: float | None = None


@dataclass(frozen=True)
class Tick:
    """A mark of the axis at the left edge of a bin. The name of a day is bold; a minor one goes on a phone."""

    at: float
    label: str
    is_day: bool = False
    is_minor: bool = False


@dataclass(frozen=True)
class Band:
    """What went on beside the bars, such as an outage: from bin to bin, in fractions of bins."""

    label: str
    kind: str
    start: float
    end: float
    address: str = ""
    note: str = ""
    row: int = 0


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map; without a value there was too little to say."""

    title: str
    value: float | None
    address: str = ""


@dataclass(frozen=True)
class Part:
    """One part of a whole: its kind, its share in any unit, what it is, and its list."""

    kind: str
    value: float
    title: str
    address: str = ""


def bars(
    bins: Sequence[Bin],
    series: Sequence[Series],
    *,
    sentence: str,
    heading: str = "Time",
    ticks: Sequence[Tick] = (),
    bands: Sequence[Band] = (),
    rate: str = "",
    height: int = HEIGHT,
    with_table: bool = True,
) -> SafeString:
    """Return bars of one series or of several stacked ones, bands under their axis, and a table behind.

    `rate` names a second figure, 0 to 1 in each bin, drawn in a small panel of its own. No table is needed where the
    page shows the same figures as one anyway.
    """
    is_count = all(float(value).is_integer() for each in bins for value in each.values)
    top, steps = axis(max((sum(each.values) for each in bins), default=0), least=1 if is_count else 0)
    panel = 64 if rate else 0
    foot = height + panel
    drawn = [
        _wash(bands, len(bins), height),
        _grid(steps, top, height),
        *(_bar(number, each, series, len(bins), top, height, foot) for number, each in enumerate(bins)),
        _rate_panel(bins, height) if rate else "",
        _ticks(ticks, len(bins), foot),
        format_html('<line class="ax" x2="100%" y1="{0}" y2="{0}"/>', height),
        *(_band(band, len(bins), foot + _AXIS + band.row * _BAND) for band in bands),
    ]
    rows = 1 + max((band.row for band in bands), default=-1)
    table = _table(bins, [each.name for each in series], heading, rate) if with_table else ""
    return _figure(drawn, foot + _AXIS + rows * _BAND, sentence, table)


def line(
    bins: Sequence[Bin],
    series: Sequence[Series],
    *,
    sentence: str,
    heading: str = "Time",
    ticks: Sequence[Tick] = (),
    height: int = HEIGHT,
) -> SafeString:
    """Return a line for each series over evenly spaced points, with a table behind."""
    top, steps = axis(max((value for each in bins for value in each.values), default=0))
    paths = (
        format_html(
            '<path class="line s-{}" vector-effect="non-scaling-stroke" d="{}"/>',
            each.kind,
            _path((point.values[number] for point in bins), top, height),
        )
        for number, each in enumerate(series)
    )
    inner = format_html(
        '<svg width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>',
        height,
        max(len(bins), 1),
        height,
        _joined(paths),
    )
    hits = (_hit(number, each, series, len(bins), height) for number, each in enumerate(bins))
    drawn = [_grid(steps, top, height), inner, *hits, _ticks(ticks, len(bins), height)]
    return _figure(drawn, height + _AXIS, sentence, _table(bins, [each.name for each in series], heading, ""))


def interval(*, value: float, low: float, high: float, expected: float | None = None, top: float = 1.0) -> SafeString:
    """Return a whisker from `low` to `high`, a point at `value` and a mark where it was expected, of `top`."""
    words = f"{value:.1%}, between {low:.1%} and {high:.1%}"
    mark = SafeString("")
    if expected is not None:
        words += f", expected {expected:.1%}"
        mark = format_html('<rect x="{}%" y="1" width="2" height="12"/>', _share(expected, top))
    return format_html(
        '<svg class="ci" width="120" height="14" role="img" aria-label="{0}"><title>{0}</title>'
        '<line class="g" x1="50%" x2="50%" y2="14"/>{1}<line x1="{2}%" x2="{3}%" y1="7" y2="7"/>'
        '<circle cx="{4}%" cy="7" r="3.5"/></svg>',
        words,
        mark,
        _share(low, top),
        _share(high, top),
        _share(value, top),
    )


def spread(quantiles: Sequence[float], *, value: float | None, sentence: str) -> SafeString:
    """Return what was used, from quantiles at 10, 25, 50, 75 and 90 %: the middle half is darker; `value` is a mark."""
    least, low, mid, high, most = quantiles
    top = max(most, value or 0) * 1.15 or 1
    marks = [
        format_html(
            '<rect class="{}" x="{}%" width="{}%" y="5" height="6"/>',
            kind,
            _share(start, top),
            _share(end - start, top),
        )
        for kind, start, end in (("all", 0, top), ("most", least, most), ("half", low, high))
    ]
    marks.append(format_html('<rect class="mid" x="{}%" width="1" y="4" height="8"/>', _share(mid, top)))
    if value:
        kind = "mine short" if value < most else "mine"
        marks.append(format_html('<rect class="{}" x="{}%" width="2" height="16"/>', kind, _share(value, top)))
    return format_html(
        '<svg class="spread" width="100%" height="16" role="img" aria-label="{0}"><title>{0}</title>{1}</svg>',
        sentence,
        _joined(marks),
    )


def spark(values: Sequence[float], *, sentence: str, height: int = 20) -> SafeString:
    """Return one thin bar per value, four pixels apart, of the height of a line of text."""
    most = max(values, default=0) or 1
    path = "".join(
        f"M{number * 4},{height}v{-max(1.5, value / most * (height - 1)):.1f}h3V{height}z"
        for number, value in enumerate(values)
        if value
    )
    return format_html(
        '<svg class="spark" width="{0}" height="{1}" role="img" aria-label="{2}"><title>{2}</title><path d="{3}"/>'
        '<line class="base" x2="{0}" y1="{4}" y2="{4}"/></svg>',
        len(values) * 4,
        height,
        sentence,
        path,
        height - 0.5,
    )


def share_bar(parts: Iterable[Part], *, sentence: str, whole: float | None = None, height: int = 8) -> SafeString:
    """Return one bar, its parts beside each other; what parts leave of `whole` stays empty."""
    shown = [part for part in parts if part.value > 0]
    total = whole or sum(part.value for part in shown) or 1
    place = 0.0
    drawn = []
    for part in shown:
        width = min(100 * part.value / total, 100 - place)
        mark = format_html(
            '<rect class="f-{}" x="{}%" width="{}%" height="{}"><title>{}</title></rect>',
            part.kind,
            _per_cent(place),
            _per_cent(width),
            height,
            part.title,
        )
        drawn.append(_link(part.address, "", mark))
        place += width
    return format_html(
        '<svg class="sharebar" width="100%" height="{}" role="{}" aria-label="{}">{}</svg>',
        height,
        _role(drawn),
        sentence,
        _joined(drawn),
    )


def heat_map(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Cell]]],
    *,
    sentence: str,
    top: float,
    words: bool = False,
) -> SafeString:
    """Return a table of cells that are darker the nearer a value is to `top`; with `words`, cells show their values."""
    head = _joined(
        format_html('<th scope="col">{}</th>', name) if name else SafeString("<td></td>") for name in columns
    )
    body = format_html_join(
        "",
        '<tr><th scope="row">{}</th>{}</tr>',
        ((name, _joined(_cell(cell, top, words) for cell in cells)) for name, cells in rows),
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
            marks.append(_link(part.address, part.title, mark))
    return format_html(
        '<svg class="chart week" viewBox="0 0 191 {}" role="{}" aria-label="{}">{}</svg>',
        12 + 6.5 * len(days),
        _role(marks),
        sentence,
        _joined(marks),
    )


def axis(most: float, *, least: float = 0) -> tuple[float, list[float]]:
    """Return the top of an axis from zero that holds `most`, and the values of its up to five grid lines.

    They are at least `least` apart: counts have no fractions.
    """
    if most <= 0:
        return 1.0, [0.0, 1.0]
    power = 10.0 ** floor(log10(most / 4))
    step = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= most / 4)
    step = max(step, least)
    count = max(ceil(most / step), 1)
    return step * count, [step * number for number in range(count + 1)]


def edge_ticks(bins: Sequence[Bin], most: int = 12) -> list[Tick]:
    """Return a tick with the label of every bin, or of every n-th where there are more than `most`."""
    every = max(ceil(len(bins) / most), 1)
    return [Tick(number + 0.1, each.label) for number, each in enumerate(bins) if number % every == 0]


def short_number(value: float) -> str:
    """`1.5`, `320`, `4k`, `1.2M`: for the scale of an axis."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size or (value >= size and unit != "k"):
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _joined(marks: Iterable[str]) -> SafeString:
    return format_html_join("", "{}", ((mark,) for mark in marks))


def _share(value: float, top: float) -> str:
    return _per_cent(100 * min(max(value, 0), top) / top)


def _per_cent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _role(drawn: Iterable[str]) -> str:
    """An image has no parts; a drawing with links is a group."""
    return "group" if any("<a " in each for each in drawn) else "img"


def _link(address: str, title: str, mark: SafeString) -> SafeString:
    shown = format_html("<title>{}</title>", title) if title else ""
    if not address:
        return format_html("<g>{}{}</g>", shown, mark) if title else mark
    return format_html('<a href="{}" tabindex="-1">{}{}</a>', address, shown, mark)


def _grid(steps: Sequence[float], top: float, height: int) -> SafeString:
    return format_html_join(
        "",
        '<line class="g" x2="100%" y1="{0}" y2="{0}"/><text x="-8" y="{1}" text-anchor="end">{2}</text>',
        ((f"{y:.1f}", f"{y + 4:.1f}", short_number(step)) for step in steps for y in [height - step / top * height]),
    )


def _title(each: Bin, series: Sequence[Series]) -> str:
    lines = [each.label, *(f"{one.name} {value:,.6g}" for one, value in zip(series, each.values, strict=True))]
    return "\n".join(lines if each.rate is None else [*lines, f"{each.rate:.1%}"])


def _hit(
    number: int, each: Bin, series: Sequence[Series], count: int, height: float, marks: Iterable[SafeString] = ()
) -> SafeString:
    """Return the marks of a bin under an area of the whole height, which has the title and the link."""
    x, width = _per_cent(100 * number / count), _per_cent(100 / count)
    area = format_html('<rect class="hit" x="{}%" width="{}%" height="{}"/>', x, width, height)
    return _link(each.address, _title(each, series), _joined([*marks, area]))


def _bar(
    number: int, each: Bin, series: Sequence[Series], count: int, top: float, height: int, foot: int
) -> SafeString:
    x, width = _per_cent(100 * (number + 0.12) / count), _per_cent(76 / count)
    y = float(height)
    marks = []
    for one, value in zip(series, each.values, strict=True):
        tall = value / top * height
        if tall > 0:
            y -= tall
            drawn = f"{max(tall - 0.4, 0.6):.1f}"
            marks.append(
                format_html(
                    '<rect class="f-{}" x="{}%" width="{}%" y="{}" height="{}"/>', one.kind, x, width, f"{y:.1f}", drawn
                )
            )
    return _hit(number, each, series, count, foot, marks)


def _path(values: Iterable[float], top: float, height: float) -> str:
    points = (f"{number + 0.5},{height - value / top * height:.1f}" for number, value in enumerate(values))
    return "M" + "L".join(points)


def _rate_panel(bins: Sequence[Bin], height: int) -> SafeString:
    most, _ = axis(max((each.rate or 0 for each in bins), default=0))
    return format_html(
        '{}<svg y="{}" width="100%" height="48" viewBox="0 0 {} 48" preserveAspectRatio="none">'
        '<path class="rate" vector-effect="non-scaling-stroke" d="{}"/></svg>',
        format_html_join(
            "",
            '<line class="g" x2="100%" y1="{0}" y2="{0}"/><text x="-8" y="{1}" text-anchor="end">{2}</text>',
            ((y, y + 4, f"{share:.0%}") for y, share in ((height + 16, most), (height + 64, 0))),
        ),
        height + 16,
        max(len(bins), 1),
        _path((each.rate or 0 for each in bins), most, 48),
    )


def _ticks(ticks: Sequence[Tick], count: int, foot: int) -> SafeString:
    """Return the marks of the axis. On a phone at most five labels stay, evenly spaced, none cut at the end."""
    major = [tick for tick in ticks if not tick.is_minor and tick.at <= 0.84 * count]
    on_phone = major[:: max(ceil(len(major) / 5), 1)]
    return format_html_join(
        "",
        '<line class="ax" x1="{0}%" x2="{0}%" y1="{1}" y2="{2}"/>'
        '<text class="{3}" x="{0}%" dx="{4}" y="{5}">{6}</text>',
        (
            (
                _per_cent(100 * tick.at / count),
                foot,
                foot + (18 if tick.is_day else 4),
                ("day" if tick.is_day else "") + ("" if tick in on_phone else " wide"),
                4 if tick.is_day else 2,
                foot + 15,
                tick.label if tick.at <= 0.95 * count else "",  # it would be cut
            )
            for tick in ticks
        ),
    )


def _wash(bands: Sequence[Band], count: int, height: int) -> SafeString:
    return format_html_join(
        "",
        '<rect class="wash" x="{}%" width="{}%" height="{}"/>',
        ((_per_cent(100 * b.start / count), _per_cent(100 * (b.end - b.start) / count), height) for b in bands),
    )


def _band(band: Band, count: int, y: int) -> SafeString:
    is_right = band.start > count / 2.4
    mark = format_html(
        '<rect class="f-{}" x="{}%" width="{}%" y="{}" height="8" rx="1"/>'
        '<text class="bandlabel" x="{}%" dx="{}" y="{}" text-anchor="{}">{} <tspan class="wide">{}</tspan></text>',
        band.kind,
        _per_cent(100 * band.start / count),
        _per_cent(max(100 * (band.end - band.start) / count, 0.3)),
        y,
        _per_cent(100 * (band.start if is_right else band.end) / count),
        -6 if is_right else 6,
        y + 8,
        "end" if is_right else "start",
        band.label,
        band.note,
    )
    return _link(band.address, f"{band.label} {band.note}".strip(), mark)


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


def _figure(drawn: Iterable[str], height: int, sentence: str, table: str) -> SafeString:
    parts = list(drawn)
    return format_html(
        '<div class="plot"><svg class="chart" role="{}" aria-label="{}" height="{}">{}</svg></div>{}',
        _role(parts),
        sentence,
        height,
        _joined(parts),
        table,
    )


def _table(bins: Sequence[Bin], names: list[str], heading: str, rate: str) -> SafeString:
    """Return the figures of a chart as a table that opens."""
    head = format_html_join(
        "", '<th scope="col" class="n">{}</th>', ((name,) for name in [*names, *([rate] if rate else [])])
    )
    rows = format_html_join(
        "",
        "<tr><td>{}</td>{}</tr>",
        (
            (
                format_html('<a href="{}">{}</a>', each.address, each.label) if each.address else each.label,
                format_html_join("", '<td class="n">{}</td>', ((text,) for text in _figures(each, rate))),
            )
            for each in bins
        ),
    )
    return format_html(
        '<details class="line"><summary>Table</summary><div class="scroll" tabindex="0"><table class="dense">'
        '<thead><tr><th scope="col">{}</th>{}</tr></thead><tbody>{}</tbody></table></div></details>',
        heading,
        head,
        rows,
    )


def _figures(each: Bin, rate: str) -> list[str]:
    figures = [f"{value:,.6g}" if value % 1 else f"{value:,.0f}" for value in each.values]
    return [*figures, "–" if each.rate is None else f"{each.rate:.1%}"] if rate else figures
