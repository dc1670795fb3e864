"""Queries of the statistics explorer and their results.

A question is a measure by dimensions, for a period, with filters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from apps.core.domain.quantities import JOULES_PER_KWH
from apps.jobs.domain.statistics.intervals import wilson_interval
from apps.jobs.domain.statistics.levels import DIMENSIONS, OF_HOUR
from apps.jobs.domain.statistics.windows import WEEKDAYS, parse_hour, parse_weekday, window_names
from apps.jobs.enums import ANY_FAILURE

_MOST_VALUES = 100
PERIODS = {"24h": 24, "7d": 7 * 24, "30d": 30 * 24, "90d": 90 * 24}
PERIOD_LABELS = {
    "24h": "last 24 hours",
    "7d": "last 7 days",
    "30d": "last 30 days",
    "90d": "last 90 days",
}
#: The labels of jobs without a value, by dimension. Without a label, the value is unknown.
NO_VALUE = {
    "experiment": "no experiment",
    "verdict": "no verdict",
    "cause": "no known error",
    "reason": "no reason",
    "request": "no request",
    "stage": "no stage",
}
NO_DATA = "no data"
MOST_BY = 3
MOST_HOURS = 5 * 366 * 24
#: Monday 5 January 1970, in hours since 1970.
_FIRST_MONDAY = 4 * 24


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: `part` of the sums times `scale`, divided by `whole` if set.

    `figure` is the figure of a single job, for histograms.
    """

    name: str
    label: str
    unit: str
    part: str
    whole: str = ""
    scale: float = 1.0
    figure: str = ""

    @property
    def is_total(self) -> bool:
        """Return whether the values of groups add up to the total."""
        return not self.whole


_HOUR = 1 / 3600
MEASURES = {
    measure.name: measure
    for measure in (
        Measure("wasted_core_hours", "wasted core-hours", "h", "wasted_core_seconds", scale=_HOUR),
        Measure("failures", "failures", "", "failed"),
        Measure("failure_rate", "failure rate", "%", "failed", "jobs"),
        Measure("jobs", "jobs", "", "jobs"),
        Measure("core_hours", "core-hours", "h", "core_seconds", scale=_HOUR),
        Measure("cpu_efficiency", "CPU efficiency", "%", "cpu_ms", "core_seconds", 0.001, "cpu_ms"),
        Measure(
            "memory",
            "memory used of requested",
            "%",
            "memory_mb",
            "requested_mb",
            figure="memory_mb",
        ),
        Measure(
            "queue_time",
            "mean queue time",
            "s",
            "queued_seconds",
            "started",
            figure="queued_seconds",
        ),
        Measure("wall_time", "mean wall time", "s", "wall_seconds", "jobs", figure="wall_seconds"),
        Measure("gpu_hours", "GPU-hours", "GPU-h", "gpu_seconds", scale=_HOUR),
        Measure("gpu_use", "GPU use", "%", "gpu_used_seconds", "gpu_measured_seconds"),
        Measure("energy", "kWh, as measured", "kWh", "energy_joules", scale=1 / JOULES_PER_KWH),
    )
}


@dataclass(frozen=True)
class Question:
    """A question as given by the URL.

    `filters` has texts by dimension. The period is [since, until), in whole hours.
    """

    measure: Measure
    by: tuple[str, ...]
    since: datetime
    until: datetime
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def hours(self) -> int:
        return round((self.until - self.since) / timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """Figures of a group of jobs; `key` has its values for filters, `label` for pages.

    `expected` is the failure rate of jobs of the same experiment, stage and release in the whole
    population; None if not computed.
    """

    key: Mapping[str, str]
    label: Sequence[str]
    sums: Mapping[str, int]
    expected: float | None = None

    @property
    def jobs(self) -> int:
        return self.sums["jobs"]

    @property
    def failed(self) -> int:
        return self.sums["failed"]

    @property
    def core_seconds(self) -> int:
        return self.sums["core_seconds"]

    @property
    def wasted_core_seconds(self) -> int:
        return self.sums["wasted_core_seconds"]

    @property
    def interrupted_core_seconds(self) -> int:
        return self.sums["interrupted_core_seconds"]

    @property
    def rate(self) -> float:
        return self.failed / self.jobs if self.jobs else 0.0

    @property
    def rate_low(self) -> float:
        """The lower end of the 95 % Wilson interval of the rate."""
        return wilson_interval(self.failed, self.jobs)[0]

    @property
    def rate_high(self) -> float:
        return wilson_interval(self.failed, self.jobs)[1]

    @property
    def ratio(self) -> float | None:
        """The failure rate divided by the expected rate."""
        return self.rate / self.expected if self.expected else None

    @property
    def stands_out(self) -> bool:
        """Return whether the whole interval is above the expected rate."""
        return self.expected is not None and self.rate_low > self.expected

    def value(self, measure: Measure) -> float | None:
        """Return the value of a measure: hours, seconds, a share of 1, a number; or None."""
        part = self.sums[measure.part] * measure.scale
        if measure.is_total:
            return part
        whole = self.sums[measure.whole]
        return part / whole if whole else None


@dataclass(frozen=True)
class Answer:
    """The largest rows of a question, up to the limit; `all` sums the whole population."""

    question: Question
    rows: list[AnswerRow]
    groups: int
    all: AnswerRow

    @property
    def left_out(self) -> int:
        return self.groups - len(self.rows)


def read_filters(
    values: Mapping[str, Sequence[str]], problems: dict[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the filters in the parameters of a URL; errors are added to `problems`."""
    filters = {}
    for name, texts in values.items():
        chosen_texts = tuple(dict.fromkeys(parse_value(name, text) for text in texts if text))
        if name not in DIMENSIONS or not chosen_texts:
            continue
        if len(chosen_texts) > _MOST_VALUES:
            problems[name] = f"Enter at most {_MOST_VALUES} values for {DIMENSIONS[name]}."
        if name in OF_HOUR and (unknown := set(chosen_texts) - set(texts_of_hour(name))):
            problems[name] = describe_unknown(DIMENSIONS[name], min(unknown), texts_of_hour(name))
        filters[name] = chosen_texts
    return filters


def describe_unknown(field: str, text: str, choices: Iterable[str]) -> str:
    """Return a sentence about a value that a field does not have."""
    return f"There is no {field} “{text[:64]}”. Choose one of: {', '.join(choices)}."


def start_of_step(hour: int, step: int) -> int:
    """Return the start of the step of `step` hours that includes an hour.

    `hour` and the result are in hours since 1970. Steps of a week begin on Monday, steps of a day
    at 0:00 UTC.
    """
    return hour - (hour - _FIRST_MONDAY) % step


def whole_hours(since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """Extend a period to whole UTC hours."""
    start = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    end = until.astimezone(UTC)
    floor = end.replace(minute=0, second=0, microsecond=0)
    return start, floor if floor == end else floor + timedelta(hours=1)


def job_list_query(
    question: Question, row: AnswerRow | None = None, *, failed: bool = False
) -> str:
    """Return the query string of the job list for a row, optionally only for failed jobs."""
    filters: dict[str, Sequence[str]] = dict(question.filters)
    if row is not None:
        for name, text in row.key.items():
            filters[name] = [text]
    if failed:
        filters["state"] = [ANY_FAILURE]
    # Use the shortest form: a page has a thousand such links.
    since, until = (
        f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}" for at in (question.since, question.until)
    )
    return "?" + urlencode(filters | {"ended_from": since, "ended_to": until}, doseq=True, safe=":")


def parse_value(dimension: str, text: str) -> str:
    """Return the canonical form of a value that a user typed."""
    if dimension == "hour":
        return parse_hour(text)
    return parse_weekday(text) if dimension == "weekday" else text


def texts_of_hour(dimension: str) -> Sequence[str]:
    """Return the values of a dimension of the hour, in order."""
    if dimension == "hour":
        return [f"{hour:02d}" for hour in range(24)]
    return WEEKDAYS if dimension == "weekday" else window_names()
