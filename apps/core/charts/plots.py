"""Charts with axes: bars and lines over bins."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.charts.parts import Band, Bin, Series, Tick
from apps.core.charts.svg import joined, link, per_cent, role, short_number

HEIGHT = 176
_BAND = 15
_AXIS = 28
#: Limits of a logarithmic axis. It starts at 0.01 or above, because labels have two decimals, and
#: has up to 7 grid lines.
_LEAST_POWER = -2
_MOST_STEPS = 6


@dataclass(frozen=True)
class _Scale:
    """An axis: the values of its grid lines, lowest first, and the positions of other values."""

    steps: Sequence[float]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 at the lowest grid line to 1 at the highest."""
        low = self.steps[0]
        top = self.steps[-1]
        if self.is_log:
            return log10(max(value, low) / low) / log10(top / low)
        return value / top


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
    is_log: bool = False,
) -> SafeString:
    """Return bars of one or more stacked series, bands below the axis, and a table of the figures.

    With `is_log`, for one series only, equal heights are equal ratios; zero has no bar. `rate`
    names a second figure, from 0 to 1 in each bin, which is drawn in a panel of its own. Omit the
    table on pages that show the same figures anyway.
    """
    is_count = all(float(value).is_integer() for value in _values_of(bins))
    heights = [sum(point.values) for point in bins]
    if is_log and any(heights):
        scale = _Scale(log_axis(heights), is_log=True)
    else:
        scale = _Scale(axis(max(heights, default=0), least=1 if is_count else 0)[1])
    panel = 64 if rate else 0
    foot = height + panel
    drawn = [_wash(bands, len(bins), height), _grid(scale, height)]
    for number, point in enumerate(bins):
        drawn.append(_bar(number, point, series, len(bins), scale, height, foot))
    if rate:
        drawn.append(_rate_panel(bins, height))
    drawn.append(_ticks(ticks, len(bins), foot))
    drawn.append(format_html('<line class="axis" x2="100%" y1="{0}" y2="{0}"/>', height))
    rows = 0
    for band in bands:
        drawn.append(_band(band, len(bins), foot + _AXIS + band.row * _BAND))
        rows = max(rows, band.row + 1)
    table = ""
    if with_table:
        table = _table(bins, [entry.name for entry in series], heading, rate)
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
    """Return a line for each series over evenly spaced points, with a table of the figures."""
    top, steps = axis(max(_values_of(bins), default=0))
    paths = []
    for number, entry in enumerate(series):
        path = _path((point.values[number] for point in bins), top, height)
        paths.append(
            format_html(
                '<path class="line s-{}" vector-effect="non-scaling-stroke" d="{}"/>',
                entry.kind,
                path,
            )
        )
    inner = format_html(
        '<svg width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>',
        height,
        max(len(bins), 1),
        height,
        joined(paths),
    )
    hits = (_hit(number, point, series, len(bins), height) for number, point in enumerate(bins))
    drawn = [_grid(_Scale(steps), height), inner, *hits, _ticks(ticks, len(bins), height)]
    table = _table(bins, [entry.name for entry in series], heading, "")
    return _figure(drawn, height + _AXIS, sentence, table)


def _values_of(bins: Sequence[Bin]) -> Iterator[float]:
    for point in bins:
        yield from point.values


def axis(most: float, *, least: float = 0) -> tuple[float, list[float]]:
    """Return the top of a linear axis that contains `most`, and up to five grid lines.

    Grid lines are at least `least` apart, because counts have no fractions.
    """
    if most <= 0:
        return 1.0, [0.0, 1.0]
    power = 10.0 ** floor(log10(most / 4))
    step = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= most / 4)
    step = max(step, least)
    count = max(ceil(most / step), 1)
    return step * count, [step * number for number in range(count + 1)]


def log_axis(values: Collection[float]) -> list[float]:
    """Return the grid lines of a logarithmic axis, which are powers of ten.

    The lowest one is below all non-zero values.
    """
    least = min(value for value in values if value > 0)
    most = max(values)
    low = max(ceil(log10(least)) - 1, _LEAST_POWER)
    powers = max(ceil(log10(most)) - low, 1)
    every = ceil(powers / _MOST_STEPS)
    return [10.0 ** (low + every * number) for number in range(ceil(powers / every) + 1)]


def spans_powers(values: Iterable[float], powers: int = 2) -> bool:
    """Return whether non-zero values span more than this many powers of ten."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > 10**powers * min(positive)


def edge_ticks(bins: Sequence[Bin], most: int = 12) -> list[Tick]:
    """Return a tick for every bin, or for every n-th if there are more than `most`."""
    every = max(ceil(len(bins) / most), 1)
    ticks = []
    for number, point in enumerate(bins):
        if number % every == 0:
            ticks.append(Tick(number + 0.1, point.label))
    return ticks


def _grid_lines(lines: Iterable[tuple[object, object, str]]) -> SafeString:
    """Return grid lines with labels, each as its height, the height of its label, and its text."""
    return format_html_join(
        "",
        '<line class="grid-line" x2="100%" y1="{0}" y2="{0}"/>'
        '<text x="-8" y="{1}" text-anchor="end">{2}</text>',
        lines,
    )


def _grid(scale: _Scale, height: int) -> SafeString:
    lines = []
    for step in scale.steps:
        y = height - scale.share(step) * height
        lines.append((f"{y:.1f}", f"{y + 4:.1f}", short_number(step)))
    return _grid_lines(lines)


def _title(point: Bin, series: Sequence[Series]) -> str:
    lines = [point.label]
    for entry, value in zip(series, point.values, strict=True):
        lines.append(f"{entry.name} {value:,.6g}")
    if point.rate is not None:
        lines.append(f"{point.rate:.1%}")
    return "\n".join(lines)


def _hit(
    number: int,
    point: Bin,
    series: Sequence[Series],
    count: int,
    height: float,
    marks: Iterable[SafeString] = (),
) -> SafeString:
    """Return the marks of a bin under a full-height area, which has the title and the link."""
    x = per_cent(100 * number / count)
    width = per_cent(100 / count)
    area = format_html('<rect class="hit" x="{}%" width="{}%" height="{}"/>', x, width, height)
    return link(point.address, _title(point, series), joined([*marks, area]))


def _bar(
    number: int,
    point: Bin,
    series: Sequence[Series],
    count: int,
    scale: _Scale,
    height: int,
    foot: int,
) -> SafeString:
    x = per_cent(100 * (number + 0.12) / count)
    width = per_cent(76 / count)
    y = float(height)
    marks = []
    for entry, value in zip(series, point.values, strict=True):
        tall = scale.share(value) * height
        if value > 0:
            y -= tall
            drawn = f"{max(tall - 0.4, 0.6):.1f}"
            marks.append(
                format_html(
                    '<rect class="f-{}" x="{}%" width="{}%" y="{}" height="{}"/>',
                    entry.kind,
                    x,
                    width,
                    f"{y:.1f}",
                    drawn,
                )
            )
    return _hit(number, point, series, count, foot, marks)


def _path(values: Iterable[float | None], top: float, height: float) -> str:
    """Return a line through values, with a gap where there are none."""
    path = ""
    step = "M"
    for number, value in enumerate(values):
        if value is None:
            step = "M"
            continue
        path += f"{step}{number + 0.5},{height - value / top * height:.1f}"
        step = "L"
    return path


def _rate_panel(bins: Sequence[Bin], height: int) -> SafeString:
    """Return the line of the rates in a panel of 48 pixels, 16 below the bars."""
    rates = [point.rate for point in bins]
    most, _ = axis(max((rate for rate in rates if rate is not None), default=0))
    top = height + 16
    bottom = height + 64
    lines = [(top, top + 4, f"{most:.0%}"), (bottom, bottom + 4, f"{0:.0%}")]
    return format_html(
        '{}<svg y="{}" width="100%" height="48" viewBox="0 0 {} 48" preserveAspectRatio="none">'
        '<path class="rate" vector-effect="non-scaling-stroke" d="{}"/></svg>',
        _grid_lines(lines),
        top,
        max(len(bins), 1),
        _path(rates, most, 48),
    )


def _ticks(ticks: Sequence[Tick], count: int, foot: int) -> SafeString:
    """Return the marks of the axis.

    A phone shows at most five labels, evenly spaced and none of them cut at the end.
    """
    major = [tick for tick in ticks if not tick.is_minor and tick.at <= 0.84 * count]
    on_phone = major[:: max(ceil(len(major) / 5), 1)]
    marks = []
    for tick in ticks:
        styles = ""
        length = 4
        label_distance = 2
        if tick.is_day:
            styles = "day"
            length = 18
            label_distance = 4
        if tick not in on_phone:
            styles += " wide"
        # A label at the end would be cut.
        label = tick.label if tick.at <= 0.95 * count else ""
        x = per_cent(100 * tick.at / count)
        marks.append((x, foot, foot + length, styles, label_distance, foot + 15, label))
    return format_html_join(
        "",
        '<line class="axis" x1="{0}%" x2="{0}%" y1="{1}" y2="{2}"/>'
        '<text class="{3}" x="{0}%" dx="{4}" y="{5}">{6}</text>',
        marks,
    )


def _wash(bands: Sequence[Band], count: int, height: int) -> SafeString:
    washes = []
    for band in bands:
        width = per_cent(100 * (band.end - band.start) / count)
        washes.append((per_cent(100 * band.start / count), width, height))
    return format_html_join("", '<rect class="wash" x="{}%" width="{}%" height="{}"/>', washes)


def _band(band: Band, count: int, y: int) -> SafeString:
    # The label is on the side with more space.
    is_on_left = band.start > count / 2.4
    label_at = band.start if is_on_left else band.end
    mark = format_html(
        '<rect class="f-{}" x="{}%" width="{}%" y="{}" height="8" rx="1"/>'
        '<text class="band-label" x="{}%" dx="{}" y="{}" text-anchor="{}">{} <tspan '
        'class="wide">{}</tspan></text>',
        band.kind,
        per_cent(100 * band.start / count),
        per_cent(max(100 * (band.end - band.start) / count, 0.3)),
        y,
        per_cent(100 * label_at / count),
        -6 if is_on_left else 6,
        y + 8,
        "end" if is_on_left else "start",
        band.label,
        band.note,
    )
    return link(band.address, f"{band.label} {band.note}".strip(), mark)


def _figure(drawn: Iterable[str], height: int, sentence: str, table: str) -> SafeString:
    parts = list(drawn)
    return format_html(
        (
            '<div class="plot"><svg class="chart" role="{}" aria-label="{}" '
            'height="{}">{}</svg></div>{}'
        ),
        role(parts),
        sentence,
        height,
        joined(parts),
        table,
    )


def _table(bins: Sequence[Bin], names: list[str], heading: str, rate: str) -> SafeString:
    """Return the figures of a chart as a collapsed table."""
    columns = [*names, rate] if rate else names
    head = format_html_join(
        "", '<th scope="col" class="number">{}</th>', ((name,) for name in columns)
    )
    rows = []
    for point in bins:
        label = point.label
        if point.address:
            label = format_html('<a href="{}">{}</a>', point.address, label)
        cells = format_html_join(
            "", '<td class="number">{}</td>', ((text,) for text in _figures(point, rate))
        )
        rows.append(format_html("<tr><td>{}</td>{}</tr>", label, cells))
    return format_html(
        '<details class="line"><summary>Table</summary><div class="scroll" '
        'tabindex="0"><table class="dense">'
        "<thead><tr><th "
        'scope="col">{}</th>{}</tr></thead><tbody>{}</tbody></table></div></details>',
        heading,
        head,
        joined(rows),
    )


def _figures(point: Bin, rate: str) -> list[str]:
    figures = [f"{value:,.6g}" if value % 1 else f"{value:,.0f}" for value in point.values]
    if rate:
        figures.append("–" if point.rate is None else f"{point.rate:.1%}")
    return figures
