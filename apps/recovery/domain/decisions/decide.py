"""Decide about failed jobs: the first matching rule, its control group, bounds and budget."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from math import floor

from django.db import connection, transaction
from django.db.models import Count, Q, Sum

from apps.core.domain.locks import lock_for_this_transaction
from apps.core.domain.work import BackOff, Queue
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.production.enums import RequestState
from apps.production.models import Stage
from apps.recovery.domain.decisions.alike import AlikeJobs
from apps.recovery.domain.decisions.carry_out import hold_stages
from apps.recovery.domain.decisions.choice import Budget, FailedAttempt, choose
from apps.recovery.domain.decisions.earlier_attempts import (
    earlier_decisions,
    resources_of_stages,
    workflow_types,
)
from apps.recovery.domain.decisions.match import (
    Failure,
    ReadRule,
    deciding_rule,
    rules_in_order,
    waits_for_company,
)
from apps.recovery.domain.decisions.remedies import RequestedResources, choose_cluster
from apps.recovery.domain.figures.daily_effects import add_decisions, recount_days
from apps.recovery.enums import ACTED_ARMS, RETRIED_ARMS, ActionKind, Arm
from apps.recovery.models import (
    NO_LONGER_ASKED,
    NO_LONGER_RETRIED,
    OPEN_OWNER_QUESTION,
    OPEN_QUESTION,
    TO_RETRY,
    WITHDRAWN,
    Decision,
    RecoveryRule,
)
from apps.submission.domain.retries.eligibility import (
    Candidate,
    DryRun,
    Limits,
    array_of,
    arrays_with_ids_of,
    examine,
)
from apps.submission.domain.retries.other_clusters import OtherClusters
from apps.submission.enums import ALREADY_RETRIED, LeftOut, SubmissionState
from apps.submission.models import Submission

#: Failures whose verdict is older are not decided about.
VERDICT_WITHIN = timedelta(days=1)
#: Jobs decided about in one transaction, and added to the queue in one statement.
BATCH = 500
#: How long a decision waits for accounting to count the job, and for a request on hold.
UNSETTLED_WAIT = timedelta(seconds=60)
ON_HOLD_WAIT = timedelta(minutes=5)
#: How often a job is looked at again whose rule acts only if others fail alike.
COMPANY_WAIT = timedelta(minutes=5)
#: These are no failures of production, or nobody wants them retried.
_NOT_PRODUCTION = (LeftOut.TEST, LeftOut.DEBUG, LeftOut.NOT_RUNNING, LeftOut.ACCEPTED)
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
    """Decide about the next failed jobs of the queue, once each; return how many were looked at.

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
def decide_again_about(job: int, *, at: datetime) -> bool:
    """Decide again about a job whose verdict a person has changed; say if there was a decision.

    That is so if its retry is planned, if a question about it is open, or if either was withdrawn
    by an earlier change. `job` is its primary key. Rules may have read the old verdict after the
    change was made.
    """
    lock_for_this_transaction("recovery.decisions")
    decisions = Decision.objects.filter(job=job).select_related("job__verdict")
    decisions = decisions.filter(TO_RETRY | OPEN_QUESTION | OPEN_OWNER_QUESTION | WITHDRAWN)
    decision = decisions.select_for_update(of=("self",)).first()
    if decision is None:
        return False
    was_question = decision.arm not in RETRIED_ARMS and not decision.why.startswith(
        NO_LONGER_RETRIED
    )
    day = decision.time.date()
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
    recount_days([day])
    _decide([decision], at)
    if decision.arm not in RETRIED_ARMS and not decision.why:
        start = NO_LONGER_ASKED if was_question else NO_LONGER_RETRIED
        decision.why = start + describe_override(decision.job.verdict)
        decision.save(update_fields=["why"])
    return True


def describe_override(verdict: Verdict) -> str:
    """Return who changed a verdict, and to what."""
    return f"{verdict.overridden_by} changed the verdict to “{verdict.get_verdict_display()}”."


def _decide(decisions: Sequence[Decision], at: datetime) -> None:
    verdict_of = _verdicts_of(decisions)
    # Whether a retry stays on the cluster of its job follows from the rule that decides.
    dry_run = examine(list(verdict_of.values()), limits=Limits(), at=at, elsewhere=verdict_of)
    reason_of = _reasons(dry_run)
    candidate_of = {candidate.verdict.job_id: candidate for candidate in dry_run.eligible}
    context = _Context(list(candidate_of.values()), AlikeJobs(verdict_of.values()), at)
    on_hold = _jobs_on_hold(dry_run.left_out.get(LeftOut.NOT_RUNNING, []))

    decided = []
    for decision in decisions:
        verdict = verdict_of.get(decision.job_id)
        if verdict is None:
            _settle(decision, Arm.PERSON, "It has no verdict any more.", at)
        elif decision.job_id in candidate_of:
            context.decide(decision, candidate_of[decision.job_id])
        elif reason_of[decision.job_id] == LeftOut.UNSETTLED:
            _postpone(decision, at + UNSETTLED_WAIT)
        elif decision.job_id in on_hold:
            _postpone(decision, at + ON_HOLD_WAIT)
        else:
            context.leave(decision, verdict, reason_of[decision.job_id])
        decided.append(decision)
    # All rows exist and are locked, so this updates them, several times as fast as `bulk_update`.
    Decision.objects.bulk_create(
        decided,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=_DECIDED_FIELDS,
    )
    add_decisions(decision.pk for decision in decisions)
    hold_stages(context.to_hold, at=at)


def _verdicts_of(decisions: Sequence[Decision]) -> dict[int, Verdict]:
    jobs = [decision.job_id for decision in decisions]
    # Many jobs share few clusters, sites and experiments: each is read once, not with every job.
    verdicts = Verdict.objects.filter(job__in=jobs).select_related("job")
    verdicts = verdicts.prefetch_related("job__cluster", "job__site", "experiment")
    return {verdict.job_id: verdict for verdict in verdicts}


def _jobs_on_hold(verdicts: Sequence[Verdict]) -> set[int]:
    """Return the primary keys of the jobs whose request is on hold."""
    arrays = arrays_with_ids_of(verdict.job for verdict in verdicts)
    on_hold = set()
    for verdict in verdicts:
        submission = array_of(verdict.job, arrays)
        if submission is not None and submission.request.state == RequestState.ON_HOLD:
            on_hold.add(verdict.job_id)
    return on_hold


def _reasons(dry_run: DryRun) -> dict[int, LeftOut]:
    """Return why each job that cannot be retried is left out."""
    reasons = {}
    for reason, verdicts in dry_run.left_out.items():
        for verdict in verdicts:
            reasons[verdict.job_id] = reason
    return reasons


def _postpone(decision: Decision, until: datetime) -> None:
    decision.due_at = until
    decision.attempts = 0


def _settle(decision: Decision, arm: Arm, why: str, at: datetime) -> None:
    decision.arm = arm
    decision.why = why[:500]
    decision.decided_at = at


class _Context:
    """What decides about jobs, read for all jobs of a batch at once."""

    def __init__(
        self, candidates: Sequence[Candidate], alike_jobs: AlikeJobs, at: datetime
    ) -> None:
        self.at = at
        self.alike_jobs = alike_jobs
        self.rules = rules_in_order()
        submissions = []
        places = {}
        others = []
        for candidate in candidates:
            job = candidate.verdict.job
            if candidate.submission is None:
                others.append(job)
            else:
                submissions.append(candidate.submission)
                places[job.pk] = (candidate.submission.pk, candidate.index)
        self.budget = Budget(_left_today(self.rules, at), _retries_left(self.rules, submissions))
        halves = any(rule.definition.action.kind == ActionKind.HALF_EVENTS for rule in self.rules)
        self.resources_of_array = resources_of_stages(submissions, with_events=halves)
        self.workflow_type_of_request = workflow_types(submissions)
        self.earlier = earlier_decisions(places, others)
        self.other_clusters: OtherClusters | None = None
        if any(rule.definition.action.goes_elsewhere for rule in self.rules):
            self.other_clusters = OtherClusters(submissions, at)
        #: Rules that hold a stage, by request and position of the stage.
        self.to_hold: dict[tuple[int, int], RecoveryRule] = {}

    def leave(self, decision: Decision, verdict: Verdict, reason: LeftOut) -> None:
        """Note that a job cannot be retried now, and which rule matched it."""
        decision.failed_core_seconds = verdict.job.core_seconds
        if reason in ALREADY_RETRIED:
            _settle(decision, Arm.HANDLED, reason.label, self.at)
            return
        if reason in _NOT_PRODUCTION:
            _settle(decision, Arm.PERSON, reason.label, self.at)
            return
        failure = Failure(verdict, alike_jobs=self.alike_jobs.count(verdict))
        match = deciding_rule(self.rules, failure)
        if self._waits_for_company(failure, match):
            _postpone(decision, self.at + COMPANY_WAIT)
            return
        if match is not None:
            _note_rule(decision, match)
            _settle(decision, Arm.OWNER, reason.label, self.at)
            return
        _settle(decision, Arm.NO_RULE, "", self.at)

    def decide(self, decision: Decision, candidate: Candidate) -> None:
        """Decide about a job that can be retried."""
        verdict = candidate.verdict
        failure = Failure(
            verdict, self._workflow_type_of(candidate), self.alike_jobs.count(verdict)
        )
        match = deciding_rule(self.rules, failure)
        if self._waits_for_company(failure, match):
            _postpone(decision, self.at + COMPANY_WAIT)
            return
        if not _may_retry(candidate, match):
            self.leave(decision, verdict, LeftOut.CLUSTER)
            return
        decision.failed_core_seconds = verdict.job.core_seconds
        earlier = self.earlier.get(verdict.job_id)
        decision.attempt = _attempt(candidate, earlier)
        requested = self._requested(candidate, earlier)
        decision.first_asked = {
            "memory_bytes": requested.memory_bytes,
            "time_limit_seconds": requested.time_limit_seconds,
        }

        if match is None:
            _settle(decision, Arm.NO_RULE, "", self.at)
            return
        _note_rule(decision, match)
        attempt = FailedAttempt(
            job=verdict.job,
            name=_name_in_all_attempts(candidate),
            number=decision.attempt,
            requested=requested,
            earlier_arm=earlier.arm if earlier else None,
            request=_request_of(candidate),
            other_cluster=self._other_cluster(candidate, match),
        )
        choice = choose(match, attempt, self.budget)
        submission = candidate.submission
        holds = match.definition.action.kind == ActionKind.HOLD and choice.arm == Arm.QUESTION
        if holds and submission is not None:
            self.to_hold[submission.request_id, submission.position] = match.rule
        decision.changes = choice.changes.as_stored()
        _settle(decision, choice.arm, choice.why, self.at)
        wait = match.definition.action.wait_after(decision.attempt)
        # The control group gets what would happen without the rule, which does not wait.
        decision.act_at = self.at if choice.arm == Arm.CONTROL else self.at + wait

    def _other_cluster(self, candidate: Candidate, match: ReadRule) -> str | None:
        """Return the name of the cluster on which a rule retries a job instead of its own."""
        action = match.definition.action
        if candidate.submission is None or not action.goes_elsewhere:
            return None
        if self.other_clusters is None:
            return ""
        other = choose_cluster(action, candidate, self.other_clusters)
        return other.name if other else ""

    def _waits_for_company(self, failure: Failure, match: ReadRule | None) -> bool:
        age = self.at - failure.verdict.ended_at
        return waits_for_company(self.rules, failure, match, age=age)

    def _workflow_type_of(self, candidate: Candidate) -> str:
        if candidate.submission is None:
            return ""
        return self.workflow_type_of_request[candidate.submission.request_id]

    def _requested(self, candidate: Candidate, earlier: Decision | None) -> RequestedResources:
        job = candidate.verdict.job
        if candidate.submission is not None:
            return self.resources_of_array[candidate.submission.pk]
        if earlier is not None and earlier.first_asked:
            return RequestedResources(**earlier.first_asked)
        return _requested_by_owner(job)


def _may_retry(candidate: Candidate, match: ReadRule | None) -> bool:
    """Return whether a rule can retry a job although submission to its cluster may be off."""
    if candidate.submission is None or candidate.submission.cluster.submits:
        return True
    return match is not None and match.definition.action.goes_elsewhere


def _attempt(candidate: Candidate, earlier: Decision | None) -> int:
    """Return which attempt failed; at least the second if it retried a job without a decision."""
    if earlier is not None:
        return earlier.attempt + 1
    if candidate.submission is None:
        return candidate.attempt - 1
    return 1 if candidate.submission.retry_of_id is None else 2


def _request_of(candidate: Candidate) -> int | None:
    if candidate.submission is None:
        return None
    request: int = candidate.submission.request_id
    return request


def _note_rule(decision: Decision, match: ReadRule) -> None:
    decision.rule = match.rule
    decision.version = match.rule.version


def _requested_by_owner(job: Job) -> RequestedResources:
    return RequestedResources(
        memory_bytes=job.requested_memory_bytes or 0,
        time_limit_seconds=job.time_limit_seconds or 0,
    )


def _name_in_all_attempts(candidate: Candidate) -> str:
    """Return a name that all attempts of a job share, also retries with IDs of their own."""
    submission = candidate.submission
    if submission is not None:
        return f"{submission.request.key}/{submission.position}/{candidate.index}"
    job = candidate.verdict.job
    return f"{job.cluster_id}/{job.job_id}/{job.submitted_at.isoformat()}"


def _left_today(rules: Sequence[ReadRule], at: datetime) -> dict[int, float]:
    """Return the core-seconds that each rule may still use on this day, UTC."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    spent = Decision.objects.filter(
        decided_at__gte=midnight,
        arm__in=ACTED_ARMS,
        rule__in=[rule.rule.pk for rule in rules],
    )
    sums = spent.order_by().values_list("rule_id").annotate(Sum("failed_core_seconds"))
    used = dict(sums)
    left = {}
    for rule in rules:
        budget = rule.definition.limits.core_hours_a_day * 3600
        left[rule.rule.pk] = budget - used.get(rule.rule.pk, 0)
    return left


def _retries_left(
    rules: Sequence[ReadRule], submissions: Sequence[Submission]
) -> dict[tuple[int, int | None], int]:
    """Return how many jobs of a request each rule may still retry, by rule and request.

    Rules without this limit have no entry, nor has a request whose number of jobs is not known.
    """
    percent_of_rule = {}
    for rule in rules:
        percent = rule.definition.limits.request_percent
        if percent < 100:
            percent_of_rule[rule.rule.pk] = percent
    if not percent_of_rule or not submissions:
        return {}

    requests = {submission.request_id for submission in submissions}
    stages = Stage.objects.filter(request__in=requests).order_by()
    jobs_of_request = dict(stages.values_list("request").annotate(Sum("jobs")))
    retried = _retries_by_request(percent_of_rule, requests)
    left: dict[tuple[int, int | None], int] = {}
    for rule_pk, percent in percent_of_rule.items():
        for request in requests:
            jobs = jobs_of_request[request]
            if jobs is not None:
                left[rule_pk, request] = floor(jobs * percent / 100) - retried[rule_pk, request]
    return left


def _retries_by_request(
    rules: Collection[int], requests: Collection[int]
) -> Counter[tuple[int, int]]:
    """Count the retries that rules decided on, by rule and request.

    Jobs are found by the IDs of their arrays, as the proof of their request may come later.
    """
    arrays = Submission.objects.filter(request__in=requests, state=SubmissionState.SENT)
    request_of_array = {}
    for cluster, spool_id, request in arrays.values_list("cluster", "spool_id", "request"):
        request_of_array[cluster, spool_id] = request
    decisions = Decision.objects.filter(
        rule__in=rules,
        arm__in=RETRIED_ARMS,
        job__spool_id__in={spool_id for _, spool_id in request_of_array},
    )
    rows = decisions.order_by().values_list("rule", "job__cluster", "job__spool_id")
    retried: Counter[tuple[int, int]] = Counter()
    for rule, cluster, spool_id, jobs in rows.annotate(Count("pk")):
        if (cluster, spool_id) in request_of_array:
            retried[rule, request_of_array[cluster, spool_id]] += jobs
    return retried
