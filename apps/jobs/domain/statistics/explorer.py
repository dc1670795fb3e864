"""Run the queries of the statistics explorer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.jobs.domain.statistics.columns import Columns, sum_by
from apps.jobs.domain.statistics.cube import (
    ALIKE,
    TIME,
    CubeQuery,
    Kinds,
    count,
    outcome_ids,
    read_figures,
)
from apps.jobs.domain.statistics.intervals import wilson_interval
from apps.jobs.domain.statistics.levels import OF_HOUR, STORED, SUMS
from apps.jobs.domain.statistics.questions import (
    NO_DATA,
    NO_VALUE,
    Answer,
    AnswerRow,
    Measure,
    Question,
    texts_of_hour,
)
from apps.jobs.enums import (
    ANY_FAILURE,
    FAILED_STATES,
    INTERRUPTED,
    INTERRUPTED_STATES,
    NONE,
    NOT_COMPLETED,
)
from apps.jobs.models import StatisticsValue

_STATE_GROUPS = {
    ANY_FAILURE: FAILED_STATES,
    INTERRUPTED: INTERRUPTED_STATES,
    NOT_COMPLETED: FAILED_STATES | INTERRUPTED_STATES,
}
#: The columns by which rows can be ordered.
ORDERS = ("value", "jobs", "failed", "rate", "ratio")
#: The order of rows, unless the user chooses another.
LARGEST = "-value"


@dataclass(frozen=True)
class Explorer:
    """Runs queries over the jobs that a user can see."""

    user: User

    def answer(
        self, question: Question, *, limit: int, compare: bool = True, sort: str = LARGEST
    ) -> Answer:
        """Return the first rows in an order: a column of `ORDERS`, or `-` and a column.

        The largest values come first unless the order says otherwise; rates count by the lower end
        of the interval then. With `compare`, rows have the rate expected from similar jobs.
        """
        by = question.by
        if compare:
            rows = self._counted_with_expected(question)
        else:
            rows = count(self._query(question, by))
        sums = [name for name in rows if name not in (*by, "expected")]
        order = _in_order(question.measure, rows, sort)[:limit]
        total = AnswerRow({}, (), {name: int(rows[name].sum()) for name in sums})
        labels = self._labels(rows, by, order)
        largest = []
        for index in order:
            row = _row(rows, index, by, labels, sums)
            if compare:
                row = replace(row, expected=float(rows["expected"][index] / rows["jobs"][index]))
            largest.append(row)
        return Answer(question, largest, len(rows["jobs"]), total)

    def _counted_with_expected(self, question: Question) -> Columns:
        """Return the sums by the dimensions of a question.

        `expected` is the number of failures at the rates of similar jobs.
        """
        by = question.by
        alike = self._query(question, ALIKE)
        query = self._query(question, by)
        both = replace(query, by=(*by, *(name for name in ALIKE if name not in by)))
        # Two queries then read much less than one over all combinations.
        if alike.levels != both.levels:
            return count(
                replace(query, rates=_rates(count(replace(alike, sums=frozenset({"jobs"})))))
            )
        cells = count(both)
        rates = _rates(cells)
        cells["expected"] = np.array([rates[key] for key in _keys(cells)]) * cells["jobs"]
        return sum_by(cells, by, cells.keys() - {*by, *ALIKE})

    def series(
        self, question: Question, *, step_hours: int, dimension: str
    ) -> dict[int, list[AnswerRow]]:
        """Return the rows of each step by dimension; steps are in hours since 1970."""
        by = (TIME, dimension) if dimension else (TIME,)
        rows = count(self._query(question, by, step_hours=step_hours))
        sums = [name for name in rows if name not in by]
        labels = self._labels(rows, by[1:], range(len(rows[TIME])))
        steps: dict[int, list[AnswerRow]] = {}
        for index in range(len(rows[TIME])):
            row = _row(rows, index, by[1:], labels, sums)
            steps.setdefault(int(rows[TIME][index]), []).append(row)
        return steps

    def figures(self, question: Question) -> np.ndarray:
        """Return the measure of each job, in seconds or as a share of 1; -1 where unknown."""
        name = question.measure.figure
        whole = {"cpu_ms": "core_seconds", "memory_mb": "requested_mb"}.get(name)
        parts = []
        for part in read_figures(self._query(question, ()), {name, whole or name}):
            values = part[name].astype(np.float32)
            if whole:
                of_whole = part[whole].astype(np.float32)
                known = (values >= 0) & (of_whole > 0)
                values *= np.float32(question.measure.scale)
                np.divide(values, of_whole, out=values, where=known)
                values[~known] = -1
            parts.append(values)
        return np.concatenate(parts) if parts else np.zeros(0)

    def median(self, question: Question) -> float | None:
        """Return the median of a measure over all jobs in seconds; None if always unknown."""
        values = self.figures(question)
        known = values[values >= 0]
        return float(np.median(known)) if len(known) else None

    def medians(self, question: Question) -> dict[int, float]:
        """Return the median of a measure in seconds, by hour of the job's end.

        Hours are counted since 1970.
        """
        name = question.measure.figure
        parts = list(read_figures(self._query(question, (TIME,), step_hours=1), {name, TIME}))
        if not parts:
            return {}
        hours = np.concatenate([part[TIME] for part in parts])
        values = np.concatenate([part[name] for part in parts])
        known = values >= 0
        hours = hours[known]
        values = values[known]
        return {int(hour): float(np.median(values[hours == hour])) for hour in np.unique(hours)}

    @cached_property
    def _experiments(self) -> dict[str, Experiment]:
        """The experiments that the user can see, by primary key as text."""
        visible = visible_experiments(self.user).order_by("key")
        return {str(experiment.pk): experiment for experiment in visible}

    def name_of_experiment(self, text: str) -> str:
        """Return the name of the experiment that a filter names; the text if there is none."""
        for experiment in self._experiments.values():
            if _is_named(experiment, {text}):
                return experiment.name
        return text

    @cached_property
    def _outcomes(self) -> tuple[frozenset[int], frozenset[int]]:
        return outcome_ids()

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds()

    def _query(self, question: Question, by: Sequence[str], step_hours: int = 24) -> CubeQuery:
        filters = {name: self._ids(name, texts) for name, texts in question.filters.items()}
        if not scope_of(self.user).sees_all:
            own = self._ids_of_texts("experiment", self._experiments)
            filters["experiment"] = filters.get("experiment", own) & own
        sums = frozenset(
            {"jobs", "core_seconds"} | ({question.measure.part, question.measure.whole} & {*SUMS})
        )
        return CubeQuery(
            question.since,
            question.until,
            tuple(by),
            filters,
            sums,
            step_hours,
            self._outcomes,
            self._kinds,
        )

    def _ids(self, dimension: str, texts: Iterable[str]) -> frozenset[int]:
        """Return the IDs of filter values."""
        values = {"" if text == NONE else text for text in texts}
        if dimension in OF_HOUR:
            numbers = set()
            for index, text in enumerate(texts_of_hour(dimension)):
                if text in values:
                    numbers.add(index)
            return frozenset(numbers)
        if dimension == "stage":
            return ids_of_stages(values)

        if dimension == "experiment":
            named = set()
            for pk, experiment in self._experiments.items():
                if _is_named(experiment, values):
                    named.add(pk)
            values = named | (values & {""})
        elif dimension == "state":
            values = set().union(*(_STATE_GROUPS.get(state, {state}) for state in values))
        return self._ids_of_texts(dimension, values)

    def _ids_of_texts(self, dimension: str, texts: Iterable[str]) -> frozenset[int]:
        values = StatisticsValue.objects.filter(dimension=dimension, text__in=set(texts))
        return frozenset(values.values_list("pk", flat=True))

    def _labels(
        self, rows: Columns, names: Iterable[str], order: Iterable[int]
    ) -> dict[str, dict[int, tuple[str, str]]]:
        """Return the filter value and label of each number in these rows, by dimension."""
        shown = list(order)
        names = list(names)
        pks: set[int] = set()
        for name in names:
            if name in STORED:
                pks.update(int(rows[name][index]) for index in shown)
        if pks:
            texts = dict(StatisticsValue.objects.filter(pk__in=pks).values_list("pk", "text"))
        else:
            texts = {}

        labels: dict[str, dict[int, tuple[str, str]]] = {}
        for name in names:
            if name in OF_HOUR:
                labels[name] = {
                    number: (text, text) for number, text in enumerate(texts_of_hour(name))
                }
                continue
            labels[name] = {}
            for number in {int(rows[name][index]) for index in shown}:
                text = label = texts[number]
                if name == "experiment":
                    experiment = self._experiments.get(text)
                    text = experiment.key if experiment else ""
                    label = experiment.name if experiment else ""
                labels[name][number] = (
                    text or NONE,
                    label or NO_VALUE.get(name, NO_DATA),
                )
        return labels


def _is_named(experiment: Experiment, texts: Collection[str]) -> bool:
    """Return whether one of these texts is the key or the name of an experiment."""
    return experiment.key in texts or experiment.name in texts


def ids_of_stages(names: Iterable[str]) -> frozenset[int]:
    """Return the IDs of stages; stage names are case-insensitive."""
    ids: set[int] = set()
    for name in names:
        stages = StatisticsValue.objects.filter(dimension="stage", text__iexact=name)
        ids.update(stages.values_list("pk", flat=True))
    return frozenset(ids)


def _row(
    rows: Columns,
    index: int,
    by: Iterable[str],
    labels: Mapping[str, Mapping[int, tuple[str, str]]],
    sums: Iterable[str],
) -> AnswerRow:
    key = {}
    shown = []
    for name in by:
        value, label = labels[name][int(rows[name][index])]
        key[name] = value
        shown.append(label)
    return AnswerRow(key, shown, {name: int(rows[name][index]) for name in sums})


def _keys(cells: Columns) -> list[tuple[int, ...]]:
    return list(zip(*(cells[name].tolist() for name in ALIKE), strict=True))


def _rates(cells: Columns) -> dict[tuple[int, ...], float]:
    """Return the failure rates by the IDs of experiment, stage and release."""
    sums = sum_by(cells, ALIKE, ("jobs", "failed"))
    return dict(zip(_keys(sums), (sums["failed"] / sums["jobs"]).tolist(), strict=True))


def _in_order(measure: Measure, rows: Columns, sort: str) -> list[int]:
    """Return the positions of the rows in an order; rows without a value come last."""
    name = sort.removeprefix("-")
    # Order by the lower end of the interval, so that one failed job alone does not come first.
    if name == "value" and measure.name == "failure_rate":
        lower_ends = []
        for failed, jobs in zip(rows["failed"], rows["jobs"], strict=True):
            lower_ends.append(wilson_interval(int(failed), int(jobs))[0])
        values = np.array(lower_ends)
    elif name == "value":
        values = rows[measure.part] / (np.maximum(rows[measure.whole], 1) if measure.whole else 1)
    elif name in ("jobs", "failed"):
        values = rows[name].astype(float)
    else:
        values = rows["failed"] / rows["jobs"]
        if name == "ratio":
            expected = rows["expected"] / rows["jobs"]
            no_value = np.full(len(values), np.nan)
            values = np.divide(values, expected, out=no_value, where=expected > 0)
    ranks = -values if sort.startswith("-") else values
    return [int(index) for index in np.lexsort((-rows["jobs"], ranks))]
