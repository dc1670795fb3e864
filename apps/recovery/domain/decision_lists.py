"""Lists of decisions: their filters, their rows, and how many there are."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum

from apps.accounts.models import User
from apps.recovery.domain.decisions.owner_questions import owner_questions_for
from apps.recovery.domain.decisions.questions import questions_for
from apps.recovery.enums import RETRIED_ARMS, Arm
from apps.recovery.models import DailyEffect, Decision, RecoveryRule
from apps.submission.enums import IN_BATCH
from apps.submission.models import RetryJob

#: The value of a filter for all jobs that a rule retries, with its action or without.
RETRIED = "retried"
#: The values for open questions to owners and to other people.
WAITS_FOR_OWNER = "waits-for-owner"
WAITS_FOR_PERSON = "waits-for-person"
LAST_DAY = timedelta(hours=24)
#: The columns of a list of decisions: 50 rows take 8 ms to read, and 18 ms with all columns.
_LISTED = (
    "arm",
    "outcome",
    "why",
    "changes",
    "attempt",
    "decided_at",
    "act_at",
    "batch__id",
    "rule__name",
    "job__job_id",
    "job__request_key",
    "job__stage",
    "job__cluster__name",
    "job__verdict__later_attempt",
)


@dataclass(frozen=True, kw_only=True)
class DecisionFilter:
    """Which decisions of a rule are listed; empty: all."""

    arm: str = ""
    outcome: str = ""
    version: int | None = None
    #: The user name of the jobs' owner.
    owner: str = ""
    #: Only decisions of the 24 hours until then.
    last_day_at: datetime | None = None

    @property
    def is_counted_daily(self) -> bool:
        """Whether the number of decisions can be read from the daily totals.

        These have neither times nor owners, nor whether a question is still open.
        """
        is_open_question = self.arm in (WAITS_FOR_OWNER, WAITS_FOR_PERSON)
        return self.last_day_at is None and not self.owner and not is_open_question

    @property
    def condition(self) -> Q:
        """The condition on decisions, and on daily totals if `is_counted_daily`.

        It does not contain `last_day_at` and open questions.
        """
        condition = Q()
        if self.version is not None:
            condition &= Q(version=self.version)
        if self.owner:
            condition &= Q(job__user=self.owner)
        if self.arm == RETRIED:
            condition &= Q(arm__in=RETRIED_ARMS)
        elif self.arm in Arm.values:
            condition &= Q(arm=self.arm)
        if self.outcome:
            condition &= Q(outcome=self.outcome)
        return condition


def decisions_of(
    user: User, shown: DecisionFilter, rule: RecoveryRule | None = None
) -> QuerySet[Decision]:
    """Return the decisions on jobs that the user sees, of one rule or of all, newest first."""
    if shown.arm == WAITS_FOR_OWNER:
        decisions = owner_questions_for(user)
    elif shown.arm == WAITS_FOR_PERSON:
        decisions = questions_for(user)
    else:
        decisions = Decision.objects.visible_to(user).filter(decided_at__isnull=False)
    decisions = decisions.filter(shown.condition)
    if rule is not None:
        decisions = decisions.filter(rule=rule)
    if shown.last_day_at is not None:
        decisions = decisions.filter(decided_on_last_day(shown.last_day_at))
    return decisions.order_by("-decided_at", "-pk")


def count_decisions(user: User, shown: DecisionFilter, rule: RecoveryRule | None = None) -> int:
    """Return how many decisions `decisions_of` returns; read from the daily totals if possible."""
    if not shown.is_counted_daily:
        return decisions_of(user, shown, rule).count()
    totals = DailyEffect.objects.visible_to(user).filter(shown.condition)
    if rule is not None:
        totals = totals.filter(rule=rule)
    return totals.aggregate(all_jobs=Sum("jobs"))["all_jobs"] or 0


def decided_on_last_day(at: datetime) -> Q:
    """Return the condition on decisions of the 24 hours until `at`."""
    return Q(decided_at__gt=at - LAST_DAY)


def with_jobs(decisions: QuerySet[Decision]) -> QuerySet[Decision]:
    """Return decisions with the columns and related rows that a list shows, and no others."""
    current = RetryJob.objects.filter(job=OuterRef("job"), state__in=IN_BATCH).values("batch")
    listed = decisions.select_related("job__cluster", "job__verdict", "rule", "batch").only(
        *_LISTED
    )
    return listed.annotate(current_batch_id=Subquery(current[:1]))
