"""The queue of failed jobs about which recovery rules decide, once each."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q

from apps.core.domain.locks import lock_for_this_transaction
from apps.core.domain.work import BackOff, Queue
from apps.diagnosis.models import Verdict
from apps.recovery.domain.decisions.carry_out import hold_stages
from apps.recovery.domain.decisions.decider import Decider
from apps.recovery.domain.figures.daily_effects import add_decisions, recount_days
from apps.recovery.enums import RETRIED_ARMS, Arm
from apps.recovery.models import (
    NO_LONGER_ASKED,
    NO_LONGER_RETRIED,
    OPEN_OWNER_QUESTION,
    OPEN_QUESTION,
    TO_RETRY,
    WITHDRAWN,
    Decision,
)

#: Failures whose verdict is older are not decided about.
VERDICT_WITHIN = timedelta(days=1)
#: Jobs decided about in one transaction, and added to the queue in one statement.
BATCH = 500
#: What a decision, or its delay, changes.
_DECIDED_FIELDS = (
    "arm",
    "rule",
    "version",
    "why",
    "changes",
    "attempt",
    "first_asked",
    "decided_at",
    "act_at",
    "failed_core_seconds",
    "due_at",
    "attempts",
)

_COPIED_FROM_VERDICT = ("job", "experiment", "failed_at")
#: Adds jobs without a decision; their other columns have the defaults of the model.
_ENROL = """
INSERT INTO recovery_decision (job_id, experiment_id, failed_at, due_at, {columns})
SELECT verdict.job_id, verdict.experiment_id, verdict.ended_at, %s, {placeholders}
FROM diagnosis_verdict verdict
LEFT JOIN recovery_decision decision ON decision.job_id = verdict.job_id
WHERE verdict.decided_at >= %s AND decision.id IS NULL
ORDER BY verdict.decided_at, verdict.id
LIMIT %s
ON CONFLICT DO NOTHING
"""

#: The failed jobs to decide about.
DECISIONS = Queue(
    name="recovery_decisions",
    title="Recovery decisions",
    model=Decision,
    unfinished_rows=Q(arm=Arm.PENDING),
    back_off=BackOff((15, 60, 300, 900)),
    lease=timedelta(seconds=60),
)


def enrol_failures(*, at: datetime) -> int:
    """Add failed jobs with a new verdict to the queue of decisions; return how many.

    One statement, as rows that pass through Python took a fifth of the time of deciding.
    """
    quote = connection.ops.quote_name
    columns = []
    values = []
    for decision_field in Decision._meta.concrete_fields:
        if decision_field.name not in (*_COPIED_FROM_VERDICT, "id", "due_at"):
            columns.append(quote(str(decision_field.column)))
            default = decision_field.get_default()
            values.append(decision_field.get_db_prep_save(default, connection))
    statement = _ENROL.format(
        columns=", ".join(columns), placeholders=", ".join(["%s"] * len(columns))
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [at, *values, at - VERDICT_WITHIN, 10 * BATCH])
        enrolled: int = cursor.rowcount
    return enrolled


def decide_due(*, at: datetime) -> int:
    """Decide about the next failed jobs of the queue, once each; return how many were examined.

    A batch is one transaction with a fixed number of queries.
    """
    claimed = DECISIONS.claim(DECISIONS.due(at)[:BATCH], at=at)
    if not claimed:
        return 0
    with transaction.atomic():
        # Two processes would both spend what is left of a budget.
        lock_for_this_transaction("recovery.decisions")
        held = DECISIONS.hold(claimed)
        _decide(held, at)
    return len(claimed)


@transaction.atomic
def decide_again_about(job_pk: int, *, at: datetime) -> bool:
    """Decide again about a job whose verdict a person has changed.

    Return whether there was a decision: the retry is planned, a question is open, or either was
    withdrawn by an earlier change. Rules may have read the old verdict after the change was made.
    """
    lock_for_this_transaction("recovery.decisions")
    decisions = Decision.objects.filter(job=job_pk).select_related("job__verdict")
    decisions = decisions.filter(TO_RETRY | OPEN_QUESTION | OPEN_OWNER_QUESTION | WITHDRAWN)
    decision = decisions.select_for_update(of=("self",)).first()
    if decision is None:
        return False

    was_to_be_retried = decision.arm in RETRIED_ARMS or decision.why.startswith(NO_LONGER_RETRIED)
    day = decision.time.date()
    _reset(decision, at)
    recount_days([day])
    _decide([decision], at)
    if decision.arm not in RETRIED_ARMS and not decision.why:
        start = NO_LONGER_RETRIED if was_to_be_retried else NO_LONGER_ASKED
        decision.why = start + describe_override(decision.job.verdict)
        decision.save(update_fields=["why"])
    return True


def _reset(decision: Decision, at: datetime) -> None:
    """Make a decision undecided again."""
    decision.arm = Arm.PENDING
    decision.rule = None
    decision.version = 0
    decision.why = ""
    decision.changes = {}
    decision.decided_at = None
    decision.act_at = None
    decision.due_at = at
    decision.attempts = 0
    decision.save(update_fields=_DECIDED_FIELDS)


def describe_override(verdict: Verdict) -> str:
    """Return who changed a verdict, and to what."""
    return f"{verdict.overridden_by} changed the verdict to “{verdict.get_verdict_display()}”."


def _decide(decisions: Sequence[Decision], at: datetime) -> None:
    """Decide, and save the decisions; hold the stages that rules hold."""
    decider = Decider(_verdicts_by_job(decisions), at)
    for decision in decisions:
        decider.decide(decision)
    # All rows exist and are locked, so this updates them, several times as fast as `bulk_update`.
    Decision.objects.bulk_create(
        decisions,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=_DECIDED_FIELDS,
    )
    add_decisions(decision.pk for decision in decisions)
    hold_stages(decider.rules_to_hold, at=at)


def _verdicts_by_job(decisions: Sequence[Decision]) -> dict[int, Verdict]:
    job_pks = [decision.job_id for decision in decisions]
    # Many jobs share few clusters, sites and experiments: each is read once, not with every job.
    verdicts = Verdict.objects.filter(job__in=job_pks).select_related("job")
    verdicts = verdicts.prefetch_related("job__cluster", "job__site", "experiment")
    return {verdict.job_id: verdict for verdict in verdicts}
