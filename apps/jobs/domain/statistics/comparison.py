"""Compare the rows of a question with the same rows in the period before."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from apps.jobs.domain.statistics.explorer import Explorer
from apps.jobs.domain.statistics.questions import Answer, AnswerRow, Measure, Question

#: How many rows of each period are compared at most.
MOST_COMPARED = 10_000


@dataclass(frozen=True)
class MeasureChange:
    """The value of a measure in both periods; None where no job has one."""

    now: float | None
    before: float | None

    @property
    def difference(self) -> float | None:
        if self.now is None or self.before is None:
            return None
        return self.now - self.before


@dataclass(frozen=True)
class PeriodComparison:
    """The rows of both periods: each row of this period, or without jobs if only the other has it.

    `changes` has one change for each row, `all` the change of the whole population.
    """

    before: Question
    rows: list[AnswerRow]
    changes: list[MeasureChange]
    all: MeasureChange


def question_before(question: Question) -> Question:
    """Return the same question for the period of the same length before."""
    length = question.until - question.since
    return replace(question, since=question.since - length, until=question.since)


def compare_periods(source: Explorer, question: Question, answer: Answer) -> PeriodComparison:
    """Compare an answer with the period before, row by row.

    The answer must have its largest `MOST_COMPARED` rows.
    """
    before = question_before(question)
    answer_before = source.answer(before, limit=MOST_COMPARED, compare=False)
    by_key = {_key(row.key): row for row in answer_before.rows}
    measure = question.measure

    rows = list(answer.rows)
    changes = []
    for row in rows:
        changes.append(_change(row, by_key.pop(_key(row.key), None), measure))
    # Whatever is left had jobs in the period before only.
    for row in by_key.values():
        nothing = AnswerRow(row.key, row.label, dict.fromkeys(row.sums, 0))
        rows.append(nothing)
        changes.append(_change(nothing, row, measure))
    return PeriodComparison(before, rows, changes, _change(answer.all, answer_before.all, measure))


def _key(values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(values.values())


def _change(now: AnswerRow, before: AnswerRow | None, measure: Measure) -> MeasureChange:
    if before is None:
        return MeasureChange(now.value(measure), 0 if measure.is_total else None)
    return MeasureChange(now.value(measure), before.value(measure))
