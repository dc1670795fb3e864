"""How many failed jobs end well without a person: by week, experiment and category."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, Sum

from apps.accounts.models import Experiment, ExperimentQuerySet, User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.short_cache import cached_for
from apps.diagnosis.enums import VERDICT_OF, Category, VerdictKind
from apps.diagnosis.models import Verdict
from apps.recovery.domain.decisions.outcomes import GIVEN_UP_AFTER
from apps.recovery.enums import Recovery
from apps.recovery.models import FIRST_FAILURES, Decision, WeeklyRecovery
from apps.submission.domain.retries.links import cluster_of_retry
from apps.submission.models import RetryJob

BATCH = 1000
#: Weeks that the page of the rules shows.
WEEKS = 8
#: Stands for jobs of no experiment in the address of a list.
NO_EXPERIMENT = "none"
_WEEK = timedelta(days=7)
#: How long the number of requeues is kept: to count those of a week takes tens of milliseconds.
KEPT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    """Jobs that failed at their first attempt, by how they were recovered."""

    by_rule: int = 0
    by_person: int = 0
    not_recovered: int = 0
    waiting: int = 0

    @property
    def saved_seconds(self) -> float:
        """The work of people that the rules saved, by the setting RECOVERY_MINUTES_PER_JOB."""
        return self.by_rule * settings.RECOVERY_MINUTES_PER_JOB * 60

    @property
    def jobs(self) -> int:
        return self.by_rule + self.by_person + self.not_recovered + self.waiting

    @property
    def is_known(self) -> bool:
        """Whether the outcome of a job is known; if of none, a share would say nothing."""
        return self.waiting < self.jobs


@dataclass(frozen=True, kw_only=True)
class Week(Recoveries):
    """The recoveries of the jobs that failed in a week."""

    monday: date


@dataclass(frozen=True, kw_only=True)
class RecoverySlice(Recoveries):
    """The recoveries of one experiment, or of one category of causes; `key` filters lists."""

    key: str
    label: str


@dataclass(frozen=True)
class Breakdown:
    """The recoveries of a week by experiment and by verdict, those with the most jobs first."""

    experiments: list[RecoverySlice]
    verdicts: list[RecoverySlice]


def monday_of(day: date) -> date:
    return day - timedelta(days=day.weekday())


@transaction.atomic
def follow_recoveries(*, at: datetime) -> int:
    """Store how jobs were recovered that failed at their first attempt; return how many."""
    lock_for_this_transaction("recovery.decisions")
    waiting = Decision.objects.filter(
        attempt=1, recovery=Recovery.WAITING, decided_at__isnull=False
    )
    is_over = Q(job__verdict__later_state=JobState.COMPLETED) | Q(
        decided_at__lt=at - GIVEN_UP_AFTER
    )
    rows = waiting.filter(is_over).select_related("job__verdict").order_by("pk")
    decisions = list(rows.select_for_update(of=("self",))[:BATCH])
    by_rule = _retries_of_rules(decisions)
    for decision in decisions:
        decision.recovery = _recovery_of(decision, by_rule)
    Decision.objects.bulk_update(decisions, ["recovery"], batch_size=BATCH)
    return len(decisions)


def _recovery_of(decision: Decision, by_rule: Collection[tuple[int, str]]) -> Recovery:
    verdict = getattr(decision.job, "verdict", None)
    if verdict is None or verdict.later_state != JobState.COMPLETED:
        return Recovery.NOT_RECOVERED
    is_restart = verdict.later_attempt is not None
    spool_id = verdict.retried_as.partition("_")[0]
    if is_restart or (cluster_of_retry(verdict), spool_id) in by_rule:
        return Recovery.BY_RULE
    return Recovery.BY_PERSON


def _retries_of_rules(decisions: Sequence[Decision]) -> set[tuple[int, str]]:
    """Return cluster and spool ID of the retries of these jobs that rules have planned."""
    spool_ids = set()
    for decision in decisions:
        verdict = getattr(decision.job, "verdict", None)
        if verdict is not None and verdict.retried_as:
            spool_ids.add(verdict.retried_as.partition("_")[0])
    of_rules = RetryJob.objects.filter(batch__decisions__isnull=False)
    owned = of_rules.filter(spool_id__in=spool_ids).values_list("job__cluster", "spool_id")
    arrays = of_rules.filter(submission__spool_id__in=spool_ids)
    sent = arrays.values_list("submission__cluster", "submission__spool_id")
    return {*owned.distinct(), *sent.distinct()}


@transaction.atomic
def recount_weeks(mondays: Iterable[date]) -> None:
    """Recount the failed first attempts of these weeks."""
    lock_for_this_transaction("recovery.weeks")
    totals = []
    counted = sorted(set(mondays))
    for monday in counted:
        rows = (
            failures_of(monday)
            .order_by()
            .values("experiment_id", "job__verdict__category", "recovery")
        )
        for row in rows.annotate(jobs=Count("pk")):
            total = WeeklyRecovery(
                week=monday,
                experiment_id=row["experiment_id"],
                category=row["job__verdict__category"],
                recovery=row["recovery"],
                jobs=row["jobs"],
            )
            totals.append(total)
    WeeklyRecovery.objects.filter(week__in=counted).delete()
    WeeklyRecovery.objects.bulk_create(totals)


def failures_of(monday: date) -> ExperimentQuerySet[Decision]:
    """Return the decisions on production jobs that failed at their first attempt in a week."""
    start = datetime.combine(monday, time(), tzinfo=UTC)
    return Decision.objects.filter(
        FIRST_FAILURES, failed_at__gte=start, failed_at__lt=start + _WEEK
    )


def categories_of(verdict: VerdictKind) -> list[str]:
    """Return the categories of causes for which a job gets a verdict."""
    categories = []
    for category, kind in VERDICT_OF.items():
        if kind == verdict:
            categories.append(category.value)
    return categories


def with_categories(
    failures: ExperimentQuerySet[Decision], categories: Collection[str]
) -> ExperimentQuerySet[Decision]:
    """Keep the decisions on jobs whose failures have one of these categories of causes.

    Only verdicts on jobs between the lowest and the highest primary key are searched. Keys grow
    with time, so that these are the verdicts of about a week, and not all: with a million jobs,
    100 ms instead of 400.
    """
    # The sum hides the keys from the index of all jobs, which PostgreSQL would search for them.
    job = F("job_id") + 0
    jobs = failures.order_by().aggregate(first=Min(job), last=Max(job))
    if jobs["first"] is None:
        return failures.none()
    verdicts = Verdict.objects.filter(
        job=OuterRef("job"), job__gte=jobs["first"], job__lte=jobs["last"], category__in=categories
    )
    return failures.filter(Exists(verdicts))


def recent_mondays(at: datetime) -> list[date]:
    """Return the Mondays of the weeks in which recoveries may still change."""
    this_week = monday_of(at.astimezone(UTC).date())
    return [this_week - 2 * _WEEK, this_week - _WEEK, this_week]


def weeks_for(user: User, *, at: datetime) -> list[Week]:
    """Return the last weeks, oldest first, with the jobs that the user sees."""
    this_week = monday_of(at.astimezone(UTC).date())
    since = this_week - (WEEKS - 1) * _WEEK
    totals = WeeklyRecovery.objects.visible_to(user).filter(week__gte=since).order_by()
    counts: dict[date, dict[str, int]] = {}
    for week, recovery, jobs in totals.values_list("week", "recovery").annotate(Sum("jobs")):
        counts.setdefault(week, {})[recovery] = jobs
    weeks = []
    for number in range(WEEKS):
        monday = since + number * _WEEK
        weeks.append(Week(monday=monday, **_by_recovery(counts.get(monday, {}))))
    return weeks


@dataclass(frozen=True)
class WithoutPerson:
    """Jobs of a week that ended well without a person, by who started them again."""

    by_cluster: int
    by_rules: int


def who_recovered(week: Week, user: User) -> WithoutPerson:
    """Divide the jobs of a week that ended well without a person, as of a minute ago at most.

    A cluster requeues a job under its ID, so that a later attempt of the same job completed.
    """
    if not week.by_rule:
        return WithoutPerson(0, 0)
    key = f"requeued:{user.pk}:{week.monday}:{week.by_rule}"
    by_rule = failures_of(week.monday).visible_to(user).filter(recovery=Recovery.BY_RULE)
    requeued_jobs = by_rule.filter(job__verdict__later_attempt__isnull=False)
    requeued = min(cached_for(KEPT_SECONDS, key, requeued_jobs.count), week.by_rule)
    return WithoutPerson(by_cluster=requeued, by_rules=week.by_rule - requeued)


def breakdown_for(user: User, *, monday: date) -> Breakdown:
    """Return the recoveries of a week by experiment and by verdict, of jobs that the user sees."""
    totals = WeeklyRecovery.objects.visible_to(user).filter(week=monday).order_by()
    rows = totals.values_list("experiment__key", "experiment__name", "category", "recovery", "jobs")
    names = {NO_EXPERIMENT: "No experiment"}
    of_experiments: dict[str, dict[str, int]] = {}
    of_verdicts: dict[str, dict[str, int]] = {}
    for key, name, category, recovery, jobs in rows:
        if key:
            names[key] = name
        _add(of_experiments, key or NO_EXPERIMENT, recovery, jobs)
        _add(of_verdicts, VERDICT_OF[Category(category)].value, recovery, jobs)
    return Breakdown(
        _slices(of_experiments, names),
        _slices(of_verdicts, dict(VerdictKind.choices)),
    )


def causes_of(experiment: Experiment, *, monday: date) -> list[RecoverySlice]:
    """Count the recoveries of the jobs of an experiment that failed in a week, by cause."""
    failures = failures_of(monday).filter(experiment=experiment).order_by()
    rows = failures.values_list("job__verdict__category", "recovery").annotate(Count("pk"))
    of_categories: dict[str, dict[str, int]] = {}
    for category, recovery, jobs in rows:
        _add(of_categories, category, recovery, jobs)
    return _slices(of_categories, dict(Category.choices))


def _add(counts: dict[str, dict[str, int]], key: str, recovery: str, jobs: int) -> None:
    counts_of_key = counts.setdefault(key, {})
    counts_of_key[recovery] = counts_of_key.get(recovery, 0) + jobs


def _slices(
    counts: Mapping[str, Mapping[str, int]], labels: Mapping[str, str]
) -> list[RecoverySlice]:
    slices = []
    for key, by_recovery in counts.items():
        label = labels.get(key, key)
        slices.append(RecoverySlice(key=key, label=label, **_by_recovery(by_recovery)))
    slices.sort(key=lambda part: (-part.jobs, part.label))
    return slices


def _by_recovery(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts by recovery as the arguments of `Recoveries`."""
    return {
        "by_rule": counts.get(Recovery.BY_RULE, 0),
        "by_person": counts.get(Recovery.BY_PERSON, 0),
        "not_recovered": counts.get(Recovery.NOT_RECOVERED, 0),
        "waiting": counts.get(Recovery.WAITING, 0),
    }
