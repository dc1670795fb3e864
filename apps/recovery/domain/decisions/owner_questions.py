"""Jobs that a rule would retry, but that only their owners can submit: one question to each."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, QuerySet

from apps.accounts.models import User
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.errors import InvalidTransition
from apps.production.domain.reasons import checked_reason
from apps.recovery.domain.decisions.questions import StageQuestion, examine_jobs, leave_to_person
from apps.recovery.enums import Mode
from apps.recovery.models import OPEN_OWNER_QUESTION, Decision, RecoveryRule
from apps.submission.domain.retries.bundle import retry_bundle
from apps.submission.domain.retries.eligibility import MOST_JOBS


@dataclass(frozen=True)
class OwnerQuestion(StageQuestion):
    """A question about the failed jobs of one owner, stage and failure group."""

    @property
    def in_bundle(self) -> int:
        """The number of jobs in the bundle of retries."""
        return len(self.dry_run.only_by_owner)


def owner_questions_for(user: User) -> QuerySet[Decision]:
    """Return the decisions of active rules on jobs that the user sees and an owner must submit.

    A job that was retried or answered since is no question any more.
    """
    questions = _questions_of_all_rules(user).filter(rule__mode=Mode.ACTIVE)
    return questions.select_related("job__cluster", "job__verdict", "rule").order_by(
        "-decided_at", "-pk"
    )


def _questions_of_all_rules(user: User) -> QuerySet[Decision]:
    questions = Decision.objects.visible_to(user).filter(OPEN_OWNER_QUESTION)
    return questions.filter(job__verdict__later_state="")


def grouped_owner_questions(user: User) -> QuerySet[Any, Any]:
    """Return the questions by owner, stage and failure group, newest first.

    Each has the number of `jobs`, when the newest was asked (`last_at`) and its primary key
    (`newest`).
    """
    # By their keys: PostgreSQL has no statistics of a table that changes so rarely. It would expect
    # one active rule, and read all questions once for each rule that is active.
    active_rules = RecoveryRule.objects.filter(mode=Mode.ACTIVE).values_list("pk", flat=True)
    questions = _questions_of_all_rules(user).filter(rule__in=list(active_rules.order_by()))
    groups = questions.values(
        "rule",
        "rule__name",
        "job__user",
        "job__request_key",
        "job__stage",
        "job__verdict__group",
        "job__verdict__group__title",
    )
    counted = groups.annotate(jobs=Count("pk"), last_at=Max("decided_at"), newest=Max("pk"))
    return counted.order_by("-last_at", "-newest")


def jobs_by_owner(questions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many jobs of `grouped_owner_questions` wait for each owner, by name."""
    jobs: Counter[str] = Counter()
    for question in questions:
        jobs[question["job__user"]] += question["jobs"]
    return dict(sorted(jobs.items()))


def jobs_by_rule(questions: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return how many jobs of `grouped_owner_questions` each rule left, by its primary key."""
    jobs: Counter[int] = Counter()
    for question in questions:
        jobs[question["rule"]] += question["jobs"]
    return dict(jobs)


def read_owner_question(*, decision: Decision, user: User, at: datetime) -> OwnerQuestion:
    """Return the question of a decision with all its jobs, 5,000 at most."""
    job = decision.job
    alike = owner_questions_for(user).filter(
        rule=decision.rule_id,
        job__user=job.user,
        job__request_key=job.request_key,
        job__stage=job.stage,
        job__verdict__group=job.verdict.group_id,
    )
    jobs = list(alike[:MOST_JOBS])
    return OwnerQuestion(decision, jobs, examine_jobs(jobs, user=user, at=at))


def owner_bundle(*, decision: Decision, by: User, at: datetime) -> bytes:
    """Return a tar of the retries of a question's jobs, for their owner.

    Raises `InvalidTransition` if none of them can be in it.
    """
    question = read_owner_question(decision=decision, user=by, at=at)
    content: bytes = retry_bundle(verdicts=question.dry_run.only_by_owner, by=by, at=at)
    return content


@transaction.atomic
def note_submitted(*, decision: Decision, by: User, at: datetime, reason: str = "") -> int:
    """Note that the owner has submitted the jobs of a question; return how many.

    They stay *left to their owner*, and their outcome is followed. Raises `InvalidTransition` if
    another user has answered.
    """
    reason = checked_reason(reason, needed=False)
    jobs = _jobs_to_answer(decision, by, at)
    why = f"Submitted by the owner, noted by {by}. {reason}".strip()
    Decision.objects.filter(pk__in=[waiting.pk for waiting in jobs]).update(why=why[:500])
    return len(jobs)


@transaction.atomic
def leave_to_fail(*, decision: Decision, by: User, at: datetime, reason: str) -> int:
    """Leave the jobs of a question failed; return how many.

    Raises `InvalidFields`, and `InvalidTransition` if another user has answered.
    """
    reason = checked_reason(reason, needed=True)
    jobs = _jobs_to_answer(decision, by, at)
    leave_to_person(jobs, by=by, reason=reason)
    return len(jobs)


def _jobs_to_answer(decision: Decision, by: User, at: datetime) -> list[Decision]:
    """Return the jobs of a question. Users who see them by a role in the experiment may answer."""
    lock_for_this_transaction("recovery.decisions")
    jobs = read_owner_question(decision=decision, user=by, at=at).jobs
    if not jobs:
        raise InvalidTransition("This question is answered.")
    return jobs
