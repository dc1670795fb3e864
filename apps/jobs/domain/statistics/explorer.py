"""Answer questions of the statistics explorer: a measure by some dimensions, for a period, with filters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from urllib.parse import urlencode

import numpy as np

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.jobs.domain.statistics.columns import DIMENSIONS, OF_HOUR, STORED, SUMS, Columns, grouped
from apps.jobs.domain.statistics.cube import ALIKE, TIME, Kinds, Query, count, figures, outcome_ids
from apps.jobs.domain.statistics.intervals import wilson
from apps.jobs.domain.statistics.windows import WEEKDAYS, window_names
from apps.jobs.enums import ANY_FAILURE, FAILED_STATES, INTERRUPTED, INTERRUPTED_STATES, NONE, NOT_COMPLETED
from apps.jobs.models import StatisticsValue

#: Dimensions whose empty value means "none", not "unknown".
_ABSENT = {"verdict", "cause", "reason"}
_STATE_GROUPS = {
    ANY_FAILURE: FAILED_STATES,
    INTERRUPTED: INTERRUPTED_STATES,
    NOT_COMPLETED: FAILED_STATES | INTERRUPTED_STATES,
}
_MOST_VALUES = 100
NO_DATA = "no data"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a question asks for: `part` of the sums, times `scale`, divided by `whole` if there is one.

    `figure` is that of a single job, of which a histogram is made.
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
        """Whether the values of groups add up to that of all."""
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
        Measure("memory", "memory used of requested", "%", "memory_mb", "requested_mb", figure="memory_mb"),
        Measure("queue_time", "mean queue time", "s", "queued_seconds", "started", figure="queued_seconds"),
        Measure("wall_time", "mean wall time", "s", "wall_seconds", "jobs", figure="wall_seconds"),
    )
}


@dataclass(frozen=True)
class Question:
    """A question as the URL has it: `filters` are texts by dimension; the period is of whole hours, [since, until)."""

    measure: Measure
    by: tuple[str, ...]
    since: datetime
    until: datetime
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def hours(self) -> int:
        return round((self.until - self.since) / timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of the jobs with some values; `key` has the values as filters take them, `label` as pages show them.

    `expected` is the rate of jobs of the same experiment, stage and release in the whole population; None without it.
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
        """Return the lower end of the 95 % Wilson interval of the rate."""
        return wilson(self.failed, self.jobs)[0]

    @property
    def rate_high(self) -> float:
        return wilson(self.failed, self.jobs)[1]

    @property
    def ratio(self) -> float | None:
        """Return how many times as often as expected the jobs failed."""
        return self.rate / self.expected if self.expected else None

    @property
    def stands_out(self) -> bool:
        """Whether the whole interval is above the expected rate."""
        return self.expected is not None and self.rate_low > self.expected

    def value(self, measure: Measure) -> float | None:
        """Return the value of a measure: hours, seconds, a share of 1, or a number; None if nothing is known."""
        part = self.sums[measure.part] * measure.scale
        if measure.is_total:
            return part
        whole = self.sums[measure.whole]
        return part / whole if whole else None


@dataclass(frozen=True)
class Answer:
    """The rows of a question, largest value first, at most as many as asked for; `all` sums the whole population."""

    question: Question
    rows: list[Row]
    groups: int
    all: Row

    @property
    def left_out(self) -> int:
        return self.groups - len(self.rows)


@dataclass(frozen=True)
class Explorer:
    """Answers questions about the jobs that a user can see."""

    user: User

    def answer(self, question: Question, *, limit: int, compare: bool = True) -> Answer:
        """Return the rows of a question with the largest values; of rates, those with the largest lower bounds.

        Compared with jobs alike, rows have an expected rate.
        """
        by = question.by
        rows = self._counted_with_expected(question) if compare else count(self._query(question, by))
        sums = [name for name in rows if name not in (*by, "expected")]
        order = _largest_first(question.measure, rows)[:limit]
        total = Row({}, (), {name: int(rows[name].sum()) for name in sums})
        labels = self._labels(rows, by, order)
        found = [
            Row(
                {name: labels[name][int(rows[name][at])][0] for name in by},
                [labels[name][int(rows[name][at])][1] for name in by],
                {name: int(rows[name][at]) for name in sums},
                float(rows["expected"][at] / rows["jobs"][at]) if compare else None,
            )
            for at in order
        ]
        return Answer(question, found, len(rows["jobs"]), total)

    def _counted_with_expected(self, question: Question) -> Columns:
        """Return the sums by the dimensions of a question, with `expected`: failures at the rates of jobs alike."""
        by = question.by
        alike, query = self._query(question, ALIKE), self._query(question, by)
        both = replace(query, by=(*by, *(name for name in ALIKE if name not in by)))
        if alike.levels != both.levels:  # much less to read than to tell all groups apart
            return count(replace(query, rates=_rates(count(replace(alike, sums=frozenset({"jobs"}))))))
        cells = count(both)
        rates = _rates(cells)
        cells["expected"] = np.array([rates[key] for key in _keys(cells)]) * cells["jobs"]
        return grouped(cells, by, cells.keys() - {*by, *ALIKE})

    def series(self, question: Question, *, step_hours: int, dimension: str) -> dict[int, list[Row]]:
        """Return the sums of each step by the values of a dimension; steps are in hours since 1970."""
        by = (TIME, dimension) if dimension else (TIME,)
        rows = count(self._query(question, by, step_hours=step_hours))
        sums = [name for name in rows if name not in by]
        labels = self._labels(rows, by[1:], range(len(rows[TIME])))
        found: dict[int, list[Row]] = {}
        for at in range(len(rows[TIME])):
            key = {name: labels[name][int(rows[name][at])] for name in by[1:]}
            one = Row(
                {name: value for name, (value, _) in key.items()},
                [label for _, label in key.values()],
                {name: int(rows[name][at]) for name in sums},
            )
            found.setdefault(int(rows[TIME][at]), []).append(one)
        return found

    def figures(self, question: Question) -> np.ndarray:
        """Return the measure of each single job: seconds or a share of 1; -1 where it is unknown."""
        name = question.measure.figure
        whole = {"cpu_ms": "core_seconds", "memory_mb": "requested_mb"}.get(name)
        parts = []
        for part in figures(self._query(question, ()), {name, whole or name}):
            values = part[name].astype(np.float32)
            if whole:
                of_whole = part[whole].astype(np.float32)
                known = (values >= 0) & (of_whole > 0)
                values *= np.float32(question.measure.scale)
                np.divide(values, of_whole, out=values, where=known)
                values[~known] = -1
            parts.append(values)
        return np.concatenate(parts) if parts else np.zeros(0)

    @cached_property
    def _experiments(self) -> dict[str, str]:
        """The keys of experiments that the user sees, by primary key as a text."""
        scope = scope_of(self.user)
        found = Experiment.objects.all() if scope.sees_all else Experiment.objects.filter(pk__in=scope.experiments)
        return {str(pk): key for pk, key in found.order_by("key").values_list("pk", "key")}

    @cached_property
    def _outcomes(self) -> tuple[frozenset[int], frozenset[int]]:
        return outcome_ids()

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds()

    def _query(self, question: Question, by: Sequence[str], step_hours: int = 24) -> Query:
        filters = {name: self._ids(name, texts) for name, texts in question.filters.items()}
        if not scope_of(self.user).sees_all:
            own = self._ids_of_texts("experiment", self._experiments)
            filters["experiment"] = filters.get("experiment", own) & own
        sums = frozenset({"jobs", "core_seconds"} | ({question.measure.part, question.measure.whole} & {*SUMS}))
        return Query(question.since, question.until, tuple(by), filters, sums, step_hours, self._outcomes, self._kinds)

    def _ids(self, dimension: str, texts: Iterable[str]) -> frozenset[int]:
        """Return the IDs of values as filters have them."""
        wanted = {"" if text == NONE else text for text in texts}
        if dimension in OF_HOUR:
            return frozenset(at for at, text in enumerate(_texts_of_hour(dimension)) if text in wanted)
        if dimension == "experiment":
            wanted = {pk for pk, key in self._experiments.items() if key in wanted} | (wanted & {""})
        if dimension == "state":
            wanted = {state for text in wanted for state in _STATE_GROUPS.get(text, {text})}
        if dimension == "stage":
            return frozenset(
                pk
                for text in wanted
                for pk in StatisticsValue.objects.filter(dimension="stage", text__iexact=text).values_list(
                    "pk", flat=True
                )
            )
        return self._ids_of_texts(dimension, wanted)

    def _ids_of_texts(self, dimension: str, texts: Iterable[str]) -> frozenset[int]:
        values = StatisticsValue.objects.filter(dimension=dimension, text__in=set(texts))
        return frozenset(values.values_list("pk", flat=True))

    def _labels(
        self, rows: Columns, names: Iterable[str], order: Iterable[int]
    ) -> dict[str, dict[int, tuple[str, str]]]:
        """Return value and label of the numbers in these rows, by dimension."""
        shown = list(order)
        names = list(names)
        wanted = {int(rows[name][at]) for name in names if name in STORED for at in shown}
        texts = dict(StatisticsValue.objects.filter(pk__in=wanted).values_list("pk", "text")) if wanted else {}
        labels: dict[str, dict[int, tuple[str, str]]] = {}
        for name in names:
            if name in OF_HOUR:
                labels[name] = {number: (text, text) for number, text in enumerate(_texts_of_hour(name))}
                continue
            labels[name] = {}
            for number in {int(rows[name][at]) for at in shown}:
                text = texts[number]
                if name == "experiment":
                    text = self._experiments.get(text, "")
                labels[name][number] = (text or NONE, text or ("none" if name in _ABSENT else NO_DATA))
        return labels


def _texts_of_hour(dimension: str) -> Sequence[str]:
    if dimension == "hour":
        return [f"{hour:02d}" for hour in range(24)]
    return WEEKDAYS if dimension == "weekday" else window_names()


def _keys(cells: Columns) -> list[tuple[int, ...]]:
    return list(zip(*(cells[name].tolist() for name in ALIKE), strict=True))


def _rates(cells: Columns) -> dict[tuple[int, ...], float]:
    """Return the failure rates by the IDs of experiment, stage and release."""
    sums = grouped(cells, ALIKE, ("jobs", "failed"))
    return dict(zip(_keys(sums), (sums["failed"] / sums["jobs"]).tolist(), strict=True))


def _largest_first(measure: Measure, rows: Columns) -> list[int]:
    if measure.name == "failure_rate":  # one job that failed is no proof
        values = np.array([wilson(int(f), int(n))[0] for f, n in zip(rows["failed"], rows["jobs"], strict=True)])
    else:
        values = rows[measure.part] / (np.maximum(rows[measure.whole], 1) if measure.whole else 1)
    return [int(at) for at in np.lexsort((-rows["jobs"], -values))]


# Questions as URLs


PERIODS = {"24h": 24, "7d": 7 * 24, "30d": 30 * 24, "90d": 90 * 24}
PERIOD_LABELS = {"24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days", "90d": "last 90 days"}
MOST_BY = 3
MOST_HOURS = 5 * 366 * 24


def read_filters(values: Mapping[str, Sequence[str]], problems: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the filters in the parameters of a URL; what is wrong with them goes to `problems`."""
    filters = {}
    for name, texts in values.items():
        given = tuple(dict.fromkeys(text for text in texts if text))
        if name not in DIMENSIONS or not given:
            continue
        if len(given) > _MOST_VALUES:
            problems[name] = f"Enter at most {_MOST_VALUES} values."
        if name in OF_HOUR and (unknown := set(given) - set(_texts_of_hour(name))):
            problems[name] = f"{min(unknown)!r} is not one of {', '.join(_texts_of_hour(name))}."
        filters[name] = given
    return filters


def whole_hours(since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """Return the period in whole UTC hours that covers a period."""
    start = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    end = until.astimezone(UTC)
    floor = end.replace(minute=0, second=0, microsecond=0)
    return start, floor if floor == end else floor + timedelta(hours=1)


def job_list_query(question: Question, row: Row | None = None, *, failed: bool = False) -> str:
    """Return the query string of the job list with exactly the jobs of a row, or only the failed ones of them."""
    filters: dict[str, list[str]] = {name: list(texts) for name, texts in question.filters.items()}
    if row is not None:
        filters |= {name: [text] for name, text in row.key.items()}
    if failed:
        filters["state"] = [ANY_FAILURE]
    # In their shortest form: a page has a thousand such links.
    since, until = (f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}" for at in (question.since, question.until))
    return "?" + urlencode(filters | {"ended_from": since, "ended_to": until}, doseq=True, safe=":")
