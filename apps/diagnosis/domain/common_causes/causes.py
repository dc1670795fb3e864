"""Causes of the failures of a period, as pages and API show them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from django.core.cache import cache

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.common_causes.columns import Period, read_columns, text_of
from apps.diagnosis.domain.common_causes.peeling import Codes, FoundCause, find_causes

MOST_DAYS = 31
#: An analysis of the same jobs is not repeated for so long.
KEPT_SECONDS = 600


@dataclass(frozen=True)
class CommonCause:
    """A cause with the text of its value, such as the name of a host."""

    attribute: str
    value: str
    found: FoundCause


@dataclass(frozen=True)
class CauseAnalysis:
    """Jobs of a period, those that failed, and what explains them: strongest cause first."""

    at: datetime
    jobs: int
    failed: int
    causes: list[CommonCause]

    @property
    def excess(self) -> float:
        """Return how many failures the causes explain."""
        return sum(one.found.excess for one in self.causes)


def causes_between(*, since: datetime, until: datetime, user: User, at: datetime) -> CauseAnalysis:
    """Analyse the jobs that ended in [since, until) and that the user may see; kept for some minutes.

    Raises `InvalidFields` for a period that is empty or longer than `MOST_DAYS`.
    """
    if until <= since:
        raise InvalidFields({"until": ["Choose an end after the start."]})
    if until - since > timedelta(days=MOST_DAYS):
        raise InvalidFields({"since": [f"Choose a period of at most {MOST_DAYS} days."]})
    scope = scope_of(user)
    period = Period(since, until, None if scope.sees_all else scope.experiments)
    parts = (since.isoformat(), until.isoformat(), str(period.values["everything"]), str(period.values["experiments"]))
    key = "common-causes-" + blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    found: CauseAnalysis | None = cache.get(key)
    if found is None:
        found = analyse(period, at)
        cache.set(key, found, KEPT_SECONDS)
    return found


def analyse(period: Period, at: datetime) -> CauseAnalysis:
    """Read the jobs of a period and find what their failures have in common."""
    columns = read_columns(period)
    causes = [_named(period, one, columns.stored) for one in find_causes(columns.jobs)]
    return CauseAnalysis(at, len(columns.jobs.failed), int(columns.jobs.failed.sum()), causes)


def _named(period: Period, one: FoundCause, stored: dict[str, Codes]) -> CommonCause:
    if one.attribute.startswith("service "):
        return CommonCause("service", one.attribute.removeprefix("service "), one)
    numbers = stored[one.attribute]
    return CommonCause(one.attribute, text_of(period, one.attribute, int(numbers[one.value])), one)
