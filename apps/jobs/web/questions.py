"""Parse questions of the statistics explorer from query strings, for page and API."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.http import QueryDict

from apps.core.web.moments import MomentField
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.statistics.levels import DIMENSIONS
from apps.jobs.domain.statistics.questions import (
    MEASURES,
    MOST_BY,
    MOST_HOURS,
    PERIOD_LABELS,
    PERIODS,
    Question,
    describe_unknown,
    read_filters,
    whole_hours,
)

_TEXT = 255


@dataclass(frozen=True)
class ParsedQuestion:
    """A question parsed from a URL; `period` is empty if both times are given."""

    question: Question
    period: str
    problems: Mapping[str, str]


def read_question(
    values: QueryDict,
    *,
    at: datetime,
    measure: str = "wasted_core_hours",
    in_labels: bool = False,
) -> ParsedQuestion:
    """Parse a question; invalid parameters are reported in `problems` and replaced by defaults.

    The problems name the possible values as in URLs, or `in_labels` as on pages.
    """
    problems: dict[str, str] = {}
    measure_name = values.get("measure") or measure
    if measure_name not in MEASURES:
        labels = {name: choice.label for name, choice in MEASURES.items()}
        problems["measure"] = _unknown("measure", measure_name, labels, in_labels)
        measure_name = measure

    parts = [part.strip() for part in ",".join(values.getlist("by")).split(",")]
    known = []
    unknown = []
    for name in dict.fromkeys(filter(None, parts)):
        if name in DIMENSIONS:
            known.append(name)
        else:
            unknown.append(name)
    if unknown:
        problems["by"] = _unknown("dimension", unknown[0], DIMENSIONS, in_labels)
    elif len(known) > MOST_BY:
        problems["by"] = f"Choose at most {MOST_BY} dimensions."
    by = tuple(known[:MOST_BY]) or ("verdict",)

    period = values.get("period") or "7d"
    if period not in PERIODS:
        problems["period"] = _unknown("period", period, PERIOD_LABELS, in_labels)
        period = "7d"
    since, until, period = _limit_period(values, at, period, problems)
    shortened = {}
    for key, texts in values.lists():
        shortened[key] = [text[:_TEXT] for text in texts]
    filters = read_filters(shortened, problems)
    return ParsedQuestion(
        Question(MEASURES[measure_name], by, since, until, filters), period, problems
    )


def _limits(values: QueryDict, problems: dict[str, str]) -> dict[str, datetime]:
    limits = {}
    for name in ("since", "until"):
        if text := values.get(name):
            try:
                if (moment := MomentField().clean(text)) is not None:
                    limits[name] = moment
            except ValidationError as error:
                problems[name] = error.messages[0]
    return limits


def _unknown(field: str, text: str, labels: Mapping[str, str], in_labels: bool) -> str:
    choices = labels.values() if in_labels else labels
    return describe_unknown(field, text, choices)


class _Period(NamedTuple):
    """A period; it has no name if its start or end is in the URL."""

    since: datetime
    until: datetime
    name: str


def _limit_period(
    values: QueryDict, at: datetime, period: str, problems: dict[str, str]
) -> _Period:
    """Return the period that the URL names, or limits by a start or an end."""
    limits = _limits(values, problems)
    since, until = last_hours(at, PERIODS[period])
    if "until" in limits:
        _, until = whole_hours(limits["until"], limits["until"])
        since = until - timedelta(hours=PERIODS[period])
    if "since" in limits:
        since, _ = whole_hours(limits["since"], limits["since"])

    if since >= until:
        problems["since"] = "The period ends before it starts."
    elif until - since > timedelta(hours=MOST_HOURS):
        problems["since"] = "The period is longer than five years."
    if {"since", "until"} & problems.keys():
        since, until = last_hours(at, PERIODS[period])
    return _Period(since, until, "" if limits else period)
