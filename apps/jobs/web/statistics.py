"""The statistics explorer: one question per URL, with chart, table, heat maps, ledger and CSV."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.http import HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.charts import interval, spans_powers
from apps.core.web.sorting import read_sort, sort_rows
from apps.core.web.tables import csv_file
from apps.core.web.turns import one_at_a_time
from apps.jobs.domain.records.jobs import collections_behind, totals_as_of
from apps.jobs.domain.statistics.levels import DIMENSIONS, OF_THE_END
from apps.jobs.domain.statistics.questions import (
    MEASURES,
    MOST_BY,
    NO_DATA,
    NO_VALUE,
    PERIOD_LABELS,
    Answer,
    AnswerRow,
    Measure,
    Question,
    job_list_query,
    parse_value,
)
from apps.jobs.domain.statistics.windows import portal_zone
from apps.jobs.domain.statistics.words import words_of
from apps.jobs.domain.totals.totals import accounted_core_seconds
from apps.jobs.enums import NONE
from apps.jobs.web import explorer_charts as charts
from apps.jobs.web.questions import read_question

if TYPE_CHECKING:
    from apps.jobs.domain.statistics.comparison import MeasureChange
    from apps.jobs.domain.statistics.explorer import Explorer

SHOWN = 50
#: The value of `?compare=` for the period before.
PREVIOUS = "previous"
EXPORTED = 10_000
#: Rows from which the cells of a matrix are taken.
_MATRIX_ROWS = 500
#: What a verdict without a known error says about the cause.
_CAUSES_WITHOUT_ERROR = {"resource": "memory or time limit", "user": "cancelled by a user"}
#: Hours up to which charts have a bar for each hour, and for each day.
_HOURLY = 8 * 24
_DAILY = 366 * 24
#: Maximum hours of charts that read single jobs or every hour.
_MOST_DETAIL = 31 * 24

#: Labels of parameters that are no dimension.
_FIELDS = {
    "measure": "measure",
    "by": "dimensions",
    "period": "period",
    "since": "start",
    "until": "end",
}
#: Measures of which presets show the smallest values first.
_WORST_IS_LOWEST = ("cpu_efficiency",)


class Preset(NamedTuple):
    """A question that the page offers. It shows the worst rows first."""

    name: str
    measure: str
    dimensions: tuple[str, ...]
    period: str


PRESETS = (
    Preset("Wasted hours", "wasted_core_hours", ("verdict", "cause"), "7d"),
    Preset("Failures", "failures", ("verdict", "cause"), "7d"),
    Preset("Exit codes by day", "jobs", ("exit_code", "signal"), "24h"),
    Preset("Site and request", "failure_rate", ("site", "request"), "7d"),
    Preset("CPU models", "cpu_efficiency", ("stage", "release", "cpu_model"), "30d"),
    Preset("Black-hole hosts", "failure_rate", ("host",), "7d"),
    Preset("Slow jobs", "wall_time", ("stage", "release"), "7d"),
    Preset("Efficiency", "cpu_efficiency", ("request", "stage"), "7d"),
    Preset("Queue time", "queue_time", ("cluster", "hour"), "7d"),
    Preset("Memory", "memory", ("request", "stage"), "7d"),
    Preset("Users", "wasted_core_hours", ("user",), "7d"),
)


@require_safe
@one_at_a_time
def explorer(request: AuthenticatedRequest) -> HttpResponse:
    from apps.jobs.domain.statistics.comparison import MOST_COMPARED, compare_periods
    from apps.jobs.domain.statistics.explorer import LARGEST, ORDERS, Explorer

    if request.GET.get("filter") in DIMENSIONS:
        return HttpResponseRedirect(f"?{_with_filter(request.GET).urlencode()}")
    parsed = read_question(request.GET, at=timezone.now(), in_labels=True)
    question = parsed.question
    source = Explorer(request.user)
    is_compared = request.GET.get("compare") == PREVIOUS
    columns = [*ORDERS, "before", "change"] if is_compared else ORDERS
    sort = read_sort(request, columns, default=LARGEST)
    if request.GET.get("format") == "csv" and not parsed.problems:
        return _csv(source.answer(question, limit=EXPORTED), source if is_compared else None)

    comparison = None
    rows_with_changes: list[tuple[AnswerRow, MeasureChange | None]] = []
    if is_compared:
        answer = source.answer(question, limit=MOST_COMPARED)
        comparison = compare_periods(source, question, answer)
        pairs = list(zip(comparison.rows, comparison.changes, strict=True))
        compared = sort_rows(pairs, _sort_keys(), sort)
        rows_with_changes += compared
    else:
        answer = source.answer(question, limit=_MATRIX_ROWS, sort=sort)
        for row in answer.rows:
            rows_with_changes.append((row, None))

    # The bars of failure rates reach to 50 %, or to 100 % if a rate is higher.
    highest_rate = max((row.rate for row in answer.rows[:SHOWN]), default=0)
    top = 0.5 if highest_rate <= 0.5 else 1.0
    number_of_rows = max(answer.groups, len(rows_with_changes))
    context = {
        "parsed": parsed,
        "question": question,
        "answer": answer,
        "rows": _rows(question, answer, rows_with_changes[:SHOWN], top),
        "sort": sort,
        "comparison": comparison,
        "change_of_all": _change_text(comparison.all, question.measure) if comparison else None,
        "top": top,
        "compares_rates": OF_THE_END.isdisjoint(question.by),
        "without_data": _names_without_data(question, answer.rows[:SHOWN]),
        "more": number_of_rows - min(len(rows_with_changes), SHOWN),
        "headline": charts.value_text(answer.all.value(question.measure), question.measure),
        "all_query": job_list_query(question),
        "as_of": totals_as_of(),
        "behind": collections_behind(timezone.now()),
        "measures": MEASURES.values(),
        "dimensions": DIMENSIONS,
        "dimension_labels": [DIMENSIONS[name] for name in question.by],
        "picked": [*question.by, *[""] * MOST_BY][:MOST_BY],
        "portal_zone": portal_zone(),
        "periods": PERIOD_LABELS,
        "problems": [
            (_FIELDS.get(name) or DIMENSIONS[name], problem)
            for name, problem in parsed.problems.items()
        ],
        "filter_chips": list(_filter_chips(request.GET, question, source)),
        "presets": _preset_links(question),
        **(_charts(source, question, answer) if answer.all.jobs else {}),
    }
    return render(request, "jobs/statistics.html", context, status=400 if parsed.problems else 200)


class PresetLink(NamedTuple):
    """A link to a preset; `is_shown` if the page shows its answer."""

    name: str
    query: str
    is_shown: bool


def _preset_links(question: Question) -> list[PresetLink]:
    links = []
    for preset in PRESETS:
        # Of an efficiency, the lowest is the worst.
        order = {"sort": "value"} if preset.measure in _WORST_IS_LOWEST else {}
        query = charts.address_of(preset.measure, preset.dimensions, period=preset.period, **order)
        is_shown = (preset.measure, preset.dimensions) == (question.measure.name, question.by)
        links.append(PresetLink(preset.name, query, is_shown))
    return links


def _names_without_data(question: Question, rows: Sequence[AnswerRow]) -> list[str]:
    """Return the labels of the dimensions for which some of these jobs have no value."""
    names = []
    for position, name in enumerate(question.by):
        if any(row.label[position] == NO_DATA for row in rows):
            names.append(DIMENSIONS[name])
    return names


def _spread_widely(steps: Mapping[int, Sequence[AnswerRow]], question: Question) -> bool:
    """Return whether the values over time need a logarithmic scale, as after an import of jobs."""
    values: list[float] = []
    for rows in steps.values():
        for row in rows:
            values.append(row.value(question.measure) or 0)
    return spans_powers(values)


def _step_of(question: Question) -> int:
    """Return the hours of a bar of the chart over time."""
    if question.hours <= _HOURLY:
        return 1
    return charts.DAY if question.hours <= _DAILY else charts.WEEK


def _charts(source: "Explorer", question: Question, answer: Answer) -> dict[str, Any]:
    """Return the charts of a page, and the ledger if the measure is wasted hours."""
    step = _step_of(question)
    dimension = ""
    if question.measure.is_total:
        dimension = "verdict" if "verdict" in question.by else question.by[0]
    steps = source.series(question, step_hours=step, dimension=dimension)
    is_log = question.measure.unit == "s" and _spread_widely(steps, question)
    over_time = charts.chart_over_time(
        question, steps, step=step, dimension=dimension, is_log=is_log
    )

    context: dict[str, Any] = {
        "chart": over_time.chart,
        "chart_is_log": is_log,
        "legend": over_time.legend,
        "step": charts.STEP_NAMES[step],
    }
    context["unit"] = charts.axis_unit(question.measure)
    if len(question.by) == 2:
        context["matrix"] = charts.matrix(answer)
    if question.hours <= _MOST_DETAIL:
        of_week = Question(
            question.measure, ("weekday", "hour"), question.since, question.until, question.filters
        )
        context["week"] = charts.week(
            of_week, source.answer(of_week, limit=7 * 24, compare=False).rows
        )
        if question.measure.figure:
            context["histogram"] = charts.histogram(question.measure, source.figures(question))
    if question.measure.name == "wasted_core_hours":
        context["ledger"] = _ledger(source, question)
    return context


def _ledger(source: "Explorer", question: Question) -> dict[str, Any]:
    """Assign every wasted core-hour to one cause, and compare the total with accounting."""
    by_cause = Question(
        question.measure, ("verdict", "cause"), question.since, question.until, question.filters
    )
    answer = source.answer(by_cause, limit=EXPORTED, compare=False)
    verdicts: dict[str, list[AnswerRow]] = {}
    for row in answer.rows:
        if row.wasted_core_seconds or row.failed:
            verdicts.setdefault(row.label[0], []).append(row)
    entries = []
    for name, rows in verdicts.items():
        entry = {
            "name": name,
            "kind": "unknown" if name == NO_VALUE["verdict"] else name,
            "seconds": sum(row.wasted_core_seconds for row in rows),
            "failed": sum(row.failed for row in rows),
            "rows": [_ledger_row(row, by_cause) for row in rows],
        }
        entries.append(entry)

    total = answer.all
    accounted = accounted_core_seconds(
        source.user, question.since, question.until, question.filters
    )
    return {
        "verdicts": entries,
        "all": total,
        "useful": total.core_seconds - total.wasted_core_seconds - total.interrupted_core_seconds,
        "accounted": accounted,
        "difference": None if accounted is None else accounted - total.core_seconds,
    }


def _ledger_row(row: AnswerRow, by_cause: Question) -> dict[str, Any]:
    return {
        "figures": row,
        "cause": _cause_of(row),
        "failed_query": job_list_query(by_cause, row, failed=True),
    }


def _cause_of(row: AnswerRow) -> str:
    """Return the cause of a row of the ledger: a limit is one, though no known error matched."""
    verdict, cause = row.label
    if cause == NO_VALUE["cause"]:
        return _CAUSES_WITHOUT_ERROR.get(verdict, cause)
    return cause


def _sort_keys() -> "dict[str, Callable[[tuple[AnswerRow, MeasureChange]], float | None]]":
    """Return what compared rows are ordered by, by name of the column."""
    return {
        "value": lambda pair: pair[1].now,
        "before": lambda pair: pair[1].before,
        "change": lambda pair: pair[1].difference,
        "jobs": lambda pair: pair[0].jobs,
        "failed": lambda pair: pair[0].failed,
        "rate": lambda pair: pair[0].rate,
        "ratio": lambda pair: pair[0].ratio,
    }


def _rows(
    question: Question,
    answer: Answer,
    shown: "Sequence[tuple[AnswerRow, MeasureChange | None]]",
    top: float,
) -> list[dict[str, Any]]:
    values = {}
    for name in question.by:
        values[name] = {row.key[name] for row, _ in shown}
    meanings = words_of(values)
    rows = []
    for row, change in shown:
        entry = _shown(question, row, answer, top, meanings)
        entry["change"] = _change_text(change, question.measure) if change else None
        rows.append(entry)
    return rows


def _change_text(change: "MeasureChange", measure: Measure) -> dict[str, str]:
    """Return the value before and the difference with its sign, such as `+134` or `−2.5 pp`."""
    texts = {"before": charts.value_text(change.before, measure), "difference": "–"}
    difference = change.difference
    if difference is not None:
        sign = "±"
        if difference > 0:
            sign = "+"
        elif difference < 0:
            sign = "−"
        text = charts.value_text(abs(difference), measure)
        if measure.unit == "%":
            # A rate that rises from 2 % to 4 % rises by two points, not by 2 %.
            text = text.replace("%", "pp")
        texts["difference"] = sign + text
    return texts


def _shown(
    question: Question,
    row: AnswerRow,
    answer: Answer,
    top: float,
    meanings: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    value = row.value(question.measure)
    whole = answer.all.value(question.measure)
    labels = zip(question.by, row.label, strict=True)
    return {
        "row": row,
        "cells": [(label, meanings.get((name, row.key[name]), "")) for name, label in labels],
        "query": job_list_query(question, row),
        "failed_query": job_list_query(question, row, failed=True),
        "value": charts.value_text(value, question.measure),
        "share": value / whole
        if question.measure.is_total and value is not None and whole
        else None,
        "interval": interval(
            value=row.rate, low=row.rate_low, high=row.rate_high, expected=row.expected, top=top
        ),
    }


class FilterChip(NamedTuple):
    """A filter of the question; `query` is the query without this filter."""

    dimension: str
    values: str
    query: str


def _filter_chips(
    values: QueryDict, question: Question, source: "Explorer"
) -> Iterator[FilterChip]:
    """Yield the filters of the question."""
    for name, texts in question.filters.items():
        other_filters = values.copy()
        other_filters.pop(name)
        shown = [NO_VALUE.get(name, NO_DATA) if text == NONE else text for text in texts]
        if name == "experiment":
            shown = [source.name_of_experiment(text) for text in shown]
        yield FilterChip(DIMENSIONS[name], ", ".join(shown), "?" + other_filters.urlencode())


def _with_filter(values: QueryDict) -> QueryDict:
    """Return the query with the filter of the form added."""
    changed = values.copy()
    name = changed.pop("filter")[-1]
    text = parse_value(name, changed.pop("value", [""])[-1].strip())
    if text and text not in changed.getlist(name):
        changed.appendlist(name, text)
    return changed


def _csv(answer: Answer, source: "Explorer | None") -> HttpResponse:
    """Return the rows as a file; with a source, also the measure in the period before."""
    figures = (
        "jobs",
        "failed",
        "rate",
        "rate_low",
        "rate_high",
        "expected",
        "core_hours",
        "wasted_core_hours",
    )
    name = answer.question.measure.name
    rows = []
    for row in answer.rows:
        rates = []
        for share in (row.rate, row.rate_low, row.rate_high, row.expected or 0):
            rates.append(f"{share:.6f}")
        hours = [f"{row.core_seconds / 3600:.4f}", f"{row.wasted_core_seconds / 3600:.4f}"]
        value = row.value(answer.question.measure)
        if name in figures:
            extra = []
        else:
            extra = ["" if value is None else f"{value:.6g}"]
        rows.append([*row.label, row.jobs, row.failed, *rates, *hours, *extra])
    columns = [*answer.question.by, *figures, *([] if name in figures else [name])]
    if source:
        from apps.jobs.domain.statistics.comparison import compare_periods

        comparison = compare_periods(source, answer.question, answer)
        columns += [f"{name}_before", f"{name}_change"]
        for cells, change in zip(rows, comparison.changes, strict=False):
            for value in (change.before, change.difference):
                cells.append("" if value is None else f"{value:.6g}")
    return csv_file("statistics", columns, rows)
