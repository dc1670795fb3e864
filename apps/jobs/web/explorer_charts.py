"""Charts of the statistics explorer: time series, heat maps, histograms."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse_lazy
from django.utils.safestring import SafeString

from apps.core.charts import Bin, Cell, Series, Tick, bars, heat_map
from apps.core.web.templatetags.formatting import duration, number
from apps.jobs.domain.statistics.questions import (
    NO_VALUE,
    Answer,
    AnswerRow,
    Measure,
    Question,
    job_list_query,
    start_of_step,
)
from apps.jobs.domain.statistics.windows import WEEKDAYS, portal_zone

if TYPE_CHECKING:
    import numpy as np

_VERDICTS = ("service", "code", "resource", "user", "unknown")
#: Colours of values without a colour of their own; "other" comes last.
_KINDS = ("accent", "running", "queued", "held", "up", "none")
_JOBS = reverse_lazy("jobs:list")
#: Steps of a series, in hours, and what pages call them.
DAY = 24
WEEK = 7 * DAY
STEP_NAMES = {1: "hour", DAY: "UTC day", WEEK: "week"}
_MOST_SERIES = 5
_MOST_CELLS = 14
BINS = 20


def value_text(value: float | None, measure: Measure) -> str:
    """Return a value formatted with its unit."""
    if value is None:
        return "–"
    match measure.unit:
        case "%":
            return f"{100 * value:.1f} %"
        case "s":
            return duration(value)
        case "h" | "GPU-h" | "kWh":
            return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
        case _:
            return number(value)


def _plotted(value: float | None, measure: Measure) -> float:
    """Return a value in the unit of the chart: shares in per cent, times in minutes."""
    return (value or 0) * {"%": 100, "s": 1 / 60}.get(measure.unit, 1)


def axis_unit(measure: Measure) -> str:
    return {"%": "%", "s": "minutes"}.get(measure.unit, "")


class LegendEntry(NamedTuple):
    """A series of a chart: its name, the kind that gives its colour, and its total as text."""

    name: str
    kind: str
    total: str


class ChartOverTime(NamedTuple):
    """A chart of a measure over time, and its legend; the legend is empty without a dimension."""

    chart: SafeString
    legend: list[LegendEntry]


def chart_over_time(
    question: Question,
    steps: Mapping[int, Sequence[AnswerRow]],
    *,
    step: int,
    dimension: str,
    rate: str = "failure rate",
    is_log: bool = False,
) -> ChartOverTime:
    """Draw a measure over time, with a series for each value of a dimension.

    An empty `rate` hides the panel of the failure rate. `is_log` makes the scale logarithmic,
    without a dimension only.
    """
    measure = question.measure
    totals: dict[str, float] = {}
    for rows in steps.values():
        for row in rows:
            totals[_name(row)] = totals.get(_name(row), 0) + (row.value(measure) or 0)
    names = sorted(totals, key=lambda name: (-totals[name], name))[:_MOST_SERIES]
    if dimension == "verdict":
        names = [name for name in (*_VERDICTS, NO_VALUE["verdict"]) if name in totals]
    series = [Series(name, _kind(dimension, name, index)) for index, name in enumerate(names)]
    if len(totals) > len(names):
        series.append(Series("other", "none"))

    first = start_of_step(int(question.since.timestamp()) // 3600, step)
    last = int((question.until - timedelta(seconds=1)).timestamp()) // 3600
    bins = []
    ticks = []
    for index, hour in enumerate(range(first, last + 1, step)):
        start = datetime.fromtimestamp(hour * 3600, UTC).astimezone(portal_zone())
        bins.append(_bin(question, steps.get(hour, ()), series, start, step))
        if start.hour == 0 or step > 1:
            ticks.append(Tick(index, _tick_label(start, step), step == 1))
    # The label of the last tick would be cut off.
    ticks = [tick for tick in ticks if tick.at < 0.96 * len(bins)]
    every = max(ceil(len(ticks) / 12), 1)

    unit = STEP_NAMES[step].removeprefix("UTC ")
    day = "%d %b" if step <= DAY else "%d %b %Y"
    sentence = f"{measure.label} by {unit}, from {question.since:{day}} to {question.until:{day}}"
    if is_log:
        sentence += ", logarithmic scale"
    chart = bars(
        bins,
        series,
        sentence=sentence,
        heading="From",
        ticks=ticks[::every],
        rate=rate,
        is_log=is_log,
    )
    legend = []
    for line in series:
        if dimension and line.name in totals:
            total = value_text(totals[line.name], measure)
            legend.append(LegendEntry(line.name, line.kind, total))
    return ChartOverTime(chart, legend)


def _tick_label(start: datetime, step: int) -> str:
    if step == 1:
        return f"{start:%a} {start.day}"
    if step == DAY:
        return f"{start.day} {start:%b}"
    return f"{start:%b %Y}"


def _bin(
    question: Question,
    rows: Sequence[AnswerRow],
    series: Sequence[Series],
    start: datetime,
    step: int,
) -> Bin:
    values = {line.name: 0.0 for line in series}
    jobs = 0
    failed = 0
    for row in rows:
        jobs += row.jobs
        failed += row.failed
        name = _name(row)
        values[name if name in values else "other"] += _plotted(
            row.value(question.measure), question.measure
        )
    end = start + timedelta(hours=step)
    part = Question(
        question.measure, (), max(start, question.since), min(end, question.until), question.filters
    )
    label = f"{start:%a} {start.day} {start:%b}"
    if step == 1:
        label += f" {start:%H:%M}"
    elif step == WEEK:
        label += f" {start:%Y}"
    return Bin(
        label,
        [values[line.name] for line in series],
        str(_JOBS)
        + job_list_query(part, failed=question.measure.name in {"failures", "wasted_core_hours"}),
        failed / jobs if jobs else None,
    )


def _name(row: AnswerRow) -> str:
    return row.label[0] if row.label else "all"


def _kind(dimension: str, name: str, index: int) -> str:
    if dimension == "verdict":
        return name if name in _VERDICTS else "none"
    return _KINDS[index % (len(_KINDS) - 1)]


def matrix(answer: Answer) -> SafeString:
    """Return the heat map of an answer by two dimensions, for the largest values of each."""
    measure = answer.question.measure
    sizes: tuple[dict[str, float], dict[str, float]] = ({}, {})
    cells = {}
    for row in answer.rows:
        for index in (0, 1):
            sizes[index][row.label[index]] = sizes[index].get(row.label[index], 0) + row.jobs
        cells[row.label[0], row.label[1]] = row
    rows, columns = ([*sorted(size, key=lambda name: -size[name])[:_MOST_CELLS]] for size in sizes)
    top = max((_plotted(row.value(measure), measure) for row in cells.values()), default=0) or 1
    lines = []
    for name in rows:
        line = []
        for column in columns:
            line.append(_cell(answer.question, cells.get((name, column)), f"{name}, {column}"))
        lines.append((name, line))
    return heat_map(
        columns,
        lines,
        sentence=f"{measure.label} by {' and '.join(answer.question.by)}",
        top=top,
        with_values=True,
    )


def _cell(question: Question, row: AnswerRow | None, title: str) -> Cell:
    if row is None:
        return Cell(f"{title}: no jobs", None)
    value = row.value(question.measure)
    text = value_text(value, question.measure)
    return Cell(
        f"{title}: {text}, {row.jobs:,} jobs", value, str(_JOBS) + job_list_query(question, row)
    )


def week(question: Question, rows: Sequence[AnswerRow]) -> SafeString:
    """Return the heat map of the failure rate by weekday and hour."""
    by_hour = {(row.key["weekday"], row.key["hour"]): row for row in rows}
    hours = [f"{hour:02d}" for hour in range(24)]
    lines = []
    for day in WEEKDAYS:
        cells = []
        for hour in hours:
            row = by_hour.get((day, hour))
            title = f"{day} {hour}:00: " + (
                f"{row.failed:,} of {row.jobs:,} failed" if row else "no jobs"
            )
            address = ""
            if row:
                address = str(_JOBS) + job_list_query(question, row, failed=True)
            cells.append(Cell(title, row.rate if row else None, address))
        lines.append((day, cells))
    top = max((row.rate for row in rows), default=0) or 1
    heads = [hour if int(hour) % 3 == 0 else "" for hour in hours]
    return heat_map(heads, lines, sentence="Failure rate by weekday and hour", top=top)


def histogram(measure: Measure, values: "np.ndarray") -> SafeString:
    """Return the histogram of a measure in bins of equal width.

    The last two bins are outliers and jobs without data.
    """
    import numpy as np

    known = values[values >= 0]
    if measure.unit == "%":
        most = 1.0
    elif len(known):
        most = float(np.quantile(known, 0.99))
    else:
        most = 1.0
    edges = np.linspace(0, most or 1.0, BINS + 1)
    counts = [int(n) for n in np.histogram(known, BINS, range=(0, most or 1.0))[0]]
    above = len(known) - sum(counts)
    bins = [Bin(_edge(measure, edges[index]), [counts[index]]) for index in range(BINS)]
    bins += [
        Bin(f"over {_edge(measure, edges[-1])}", [above]),
        Bin("no data", [len(values) - len(known)]),
    ]
    ticks = [
        Tick(index, _edge(measure, edges[index]), is_minor=index % 10 > 0)
        for index in range(0, BINS, 5)
    ]
    ticks.append(Tick(BINS + 1, "no data"))
    return bars(
        bins,
        [Series("jobs", "accent")],
        sentence=f"jobs by {measure.label}",
        heading="From",
        ticks=ticks,
    )


def _edge(measure: Measure, value: float) -> str:
    if measure.unit == "%":
        return f"{100 * value:.0f} %"
    return duration(value)


def address_of(measure: str, by: Sequence[str], **more: object) -> str:
    """Return the query string of a question."""
    return "?" + urlencode({"measure": measure, "by": ",".join(by), **more}, doseq=True)
