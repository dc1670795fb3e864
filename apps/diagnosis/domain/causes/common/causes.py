"""Causes of the failures of a period: computed once, stored, and served to pages and API."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import F, Q

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.background import enqueue
from apps.core.domain.work import BackOff, Queue
from apps.core.errors import InvalidFields
from apps.diagnosis.models import CauseAnalysis

if TYPE_CHECKING:
    from apps.diagnosis.domain.causes.common.columns import JobPeriod
    from apps.diagnosis.domain.causes.common.peeling import Codes, FoundCause

MOST_DAYS = 31
#: A result is served for this long, then computed again: records of jobs arrive late.
FRESH = timedelta(minutes=10)
#: Until a new result exists, a page shows one of a period that ended up to this long before.
STALE = timedelta(days=1)
#: A request without a result after this time has lost its worker or its message.
LOST = timedelta(seconds=90)
TASK = "diagnosis.analyse_causes"
ANALYSES = Queue(
    name="causes",
    title="Analyses of common causes",
    model=CauseAnalysis,
    unfinished_rows=Q(requested_at__isnull=False),
    back_off=BackOff((10,)),
)
_ALL = "all"


@dataclass(frozen=True)
class CommonCause:
    """A value of an attribute, such as the name of a host, with its failures; see `FoundCause`.

    `query` is the query of the job list for the jobs with the value; "" if the list has no such
    filter.
    """

    attribute: str
    value: str
    jobs: int
    failed: int
    expected: float
    low: float
    high: float
    other_jobs: int
    other_failed: int
    query: str = ""

    @property
    def excess(self) -> float:
        return self.failed - self.expected


@dataclass(frozen=True)
class Causes:
    """The jobs of a period, how many failed, and the causes, most excess failures first."""

    since: datetime
    until: datetime
    analysed_at: datetime
    jobs: int
    failed: int
    found: list[CommonCause]

    @property
    def excess(self) -> float:
        """Return how many failures the causes explain."""
        return sum(cause.excess for cause in self.found)


def causes_between(*, since: datetime, until: datetime, user: User, at: datetime) -> Causes:
    """Return the causes for jobs that ended in [since, until) and that the user may see.

    They are computed unless a stored result is fresh. Raises `InvalidFields` for a period that is
    empty or longer than `MOST_DAYS`.
    """
    if until <= since:
        raise InvalidFields({"until": ["Choose an end after the start."]})
    if until - since > timedelta(days=MOST_DAYS):
        raise InvalidFields({"since": [f"Choose a period of at most {MOST_DAYS} days."]})
    period: dict[str, Any] = {"scope": _scope(user), "since": since, "until": until}
    analysis = CauseAnalysis.objects.filter(**period, analysed_at__gt=at - FRESH).first()
    if analysis and (stored := _causes(analysis)):
        return stored
    result = _computed(CauseAnalysis(**period), at)
    CauseAnalysis.objects.update_or_create(defaults=_fields(result), **period)
    return result


@transaction.atomic
def newest_causes(
    *, until: datetime, length: timedelta, user: User, at: datetime
) -> tuple[Causes | None, bool]:
    """Return the newest stored causes for a period of this length, and whether newer are underway.

    The causes are None if nothing is stored yet. This reads no jobs: a worker computes missing and
    outdated results.
    """
    scope = _scope(user)
    analysis, _ = CauseAnalysis.objects.get_or_create(
        scope=scope, since=until - length, until=until, defaults={"due_at": at}
    )
    if not analysis.requested_at and (
        not analysis.analysed_at or analysis.analysed_at <= at - FRESH
    ):
        _request(analysis, at)
    recent = CauseAnalysis.objects.filter(
        scope=scope, since=F("until") - length, until__range=(until - STALE, until)
    )
    stored = recent.exclude(analysed_at=None).order_by("-until").first()
    return _causes(stored) if stored else None, analysis.requested_at is not None


def analyse(*, analysis_id: int, at: datetime) -> None:
    """Compute a requested analysis and store its result.

    Does nothing if the result is stored already, or if another worker is computing it.
    """

    def compute(analysis: CauseAnalysis) -> None:
        CauseAnalysis.objects.filter(pk=analysis.pk).update(**_fields(_computed(analysis, at)))

    ANALYSES.process(ANALYSES.unfinished().filter(pk=analysis_id), compute, at=at)


@transaction.atomic
def requeue_lost(*, at: datetime) -> int:
    """Requeue analyses that lost their worker, and delete old ones; return the number requeued."""
    CauseAnalysis.objects.filter(
        Q(analysed_at__lt=at - STALE) | Q(analysed_at=None),
        Q(requested_at__lt=at - STALE) | Q(requested_at=None),
    ).delete()
    lost = ANALYSES.take_overdue(at=at, grace=LOST)
    for analysis in lost:
        enqueue(TASK, analysis_id=analysis.pk)
    return len(lost)


def _request(analysis: CauseAnalysis, at: datetime) -> None:
    analysis.requested_at = at
    analysis.due_at = at
    analysis.save(update_fields=["requested_at", "due_at"])
    enqueue(TASK, analysis_id=analysis.pk)


def _scope(user: User) -> str:
    scope = scope_of(user)
    if scope.sees_all:
        return _ALL
    return ",".join(map(str, sorted(scope.experiment_keys)))


def _computed(analysis: CauseAnalysis, at: datetime) -> Causes:
    """Read the jobs of a period and find what their failures have in common."""
    from apps.diagnosis.domain.causes.common.columns import JobPeriod, read_columns
    from apps.diagnosis.domain.causes.common.peeling import find_causes

    pks = None
    if analysis.scope != _ALL:
        pks = [int(pk) for pk in analysis.scope.split(",") if pk]
    period = JobPeriod(analysis.since, analysis.until, experiments=pks)
    columns = read_columns(period)

    causes = [_named(period, cause, columns.stored) for cause in find_causes(columns.jobs)]
    failed = int(columns.jobs.failed.sum())
    return Causes(
        analysis.since, analysis.until, at, len(columns.jobs.failed), failed, _by_excess(causes)
    )


def _fields(causes: Causes) -> dict[str, Any]:
    """Return the field values of a row that stores these causes."""
    return {
        "requested_at": None,
        "due_at": causes.analysed_at,
        "attempts": 0,
        "last_error": "",
        "analysed_at": causes.analysed_at,
        "jobs": causes.jobs,
        "failed": causes.failed,
        "causes": [asdict(cause) for cause in causes.found],
    }


def _named(period: "JobPeriod", cause: "FoundCause", stored: "dict[str, Codes]") -> CommonCause:
    from apps.diagnosis.domain.causes.common.columns import job_list_query, text_of

    if cause.attribute.startswith("service "):
        named = {"attribute": "service", "value": cause.attribute.removeprefix("service ")}
    else:
        number = int(stored[cause.attribute][cause.value])
        value = text_of(period, cause.attribute, number)
        query = job_list_query(period, cause.attribute, number)
        named = {"value": value, "query": query}
    return CommonCause(**(asdict(cause) | named))


def _causes(analysis: CauseAnalysis) -> Causes | None:
    """Return the stored result; None if there is none yet."""
    if analysis.analysed_at is None:
        return None
    causes = _by_excess(CommonCause(**fields) for fields in analysis.causes)
    return Causes(
        analysis.since, analysis.until, analysis.analysed_at, analysis.jobs, analysis.failed, causes
    )


def _by_excess(causes: Iterable[CommonCause]) -> list[CommonCause]:
    return sorted(causes, key=lambda cause: -cause.excess)
