"""Decide about each failed job of a batch: what the rule does that decides about it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from apps.diagnosis.models import Verdict
from apps.production.enums import RequestState
from apps.recovery.domain.decisions.alike import AlikeJobs
from apps.recovery.domain.decisions.budgets import read_budget
from apps.recovery.domain.decisions.choice import Choice, FailedAttempt, choose
from apps.recovery.domain.decisions.earlier_attempts import (
    ArrayPlace,
    earlier_decisions,
    resources_of_stages,
    workflow_types,
)
from apps.recovery.domain.decisions.match import (
    Failure,
    ParsedRule,
    deciding_rule,
    rules_in_order,
    waits_for_company,
)
from apps.recovery.domain.decisions.remedies import RequestedResources, choose_cluster
from apps.recovery.enums import ActionKind, Arm
from apps.recovery.models import Decision, RecoveryRule
from apps.submission.domain.retries.eligibility import (
    DryRun,
    RetryCandidate,
    RetryLimits,
    array_of,
    arrays_with_ids_of,
    examine,
)
from apps.submission.domain.retries.other_clusters import OtherClusters
from apps.submission.enums import ALREADY_RETRIED, LeftOut

#: How long a decision waits for accounting to count the job, and for a request on hold.
UNSETTLED_WAIT = timedelta(seconds=60)
ON_HOLD_WAIT = timedelta(minutes=5)
#: How long a decision waits for other jobs to fail alike, if a rule acts only then.
COMPANY_WAIT = timedelta(minutes=5)
#: Failures outside production, and failures that a user has accepted.
_NOT_PRODUCTION = (LeftOut.TEST, LeftOut.DEBUG, LeftOut.NOT_RUNNING, LeftOut.ACCEPTED)


class Decider:
    """Decides about the failed jobs of a batch, with what it has read for all of them at once.

    It sets the fields of decisions, and saves none.
    """

    def __init__(self, verdict_by_job: Mapping[int, Verdict], at: datetime) -> None:
        """Read what decides, in a fixed number of queries.

        All mappings are by primary key of the job, array or request.
        """
        self.at = at
        self.rules = rules_in_order()
        self.alike_jobs = AlikeJobs(verdict_by_job.values())
        self.verdict_by_job = verdict_by_job
        # Whether a retry stays on the cluster of its job follows from the rule that decides.
        dry_run = examine(
            list(verdict_by_job.values()), limits=RetryLimits(), at=at, moving_jobs=verdict_by_job
        )
        self.candidate_by_job = {
            candidate.verdict.job_id: candidate for candidate in dry_run.eligible
        }
        self.reason_by_job = _reasons(dry_run)
        self.jobs_on_hold = _jobs_on_hold(dry_run.left_out.get(LeftOut.NOT_RUNNING, []))

        submissions = []
        places = {}
        others = []
        for candidate in dry_run.eligible:
            job = candidate.verdict.job
            if candidate.submission is None:
                others.append(job)
            else:
                submissions.append(candidate.submission)
                places[job.pk] = ArrayPlace(candidate.submission.pk, candidate.index)
        actions = [rule.definition.action for rule in self.rules]
        self.budget = read_budget(self.rules, submissions, at=at)
        self.resources_by_array = resources_of_stages(
            submissions,
            with_events=any(action.kind == ActionKind.HALF_EVENTS for action in actions),
        )
        self.workflow_type_by_request = workflow_types(submissions)
        self.earlier_decision_by_job = earlier_decisions(places, others)
        self.other_clusters: OtherClusters | None = None
        if any(action.goes_elsewhere for action in actions):
            self.other_clusters = OtherClusters(submissions, at)
        #: Rules that hold a stage, by request and position of the stage.
        self.rules_to_hold: dict[tuple[int, int], RecoveryRule] = {}

    def decide(self, decision: Decision) -> None:
        """Set the arm of a decision and its reason, or the time of the next try."""
        verdict = self.verdict_by_job.get(decision.job_id)
        candidate = self.candidate_by_job.get(decision.job_id)
        if verdict is None:
            self._settle(decision, Arm.PERSON, "It has no verdict any more.")
        elif candidate is not None:
            self._decide_about_candidate(decision, candidate)
        elif self.reason_by_job[decision.job_id] == LeftOut.UNSETTLED:
            self._postpone(decision, UNSETTLED_WAIT)
        elif decision.job_id in self.jobs_on_hold:
            self._postpone(decision, ON_HOLD_WAIT)
        else:
            self._decide_without_retry(decision, verdict, self.reason_by_job[decision.job_id])

    def _decide_without_retry(self, decision: Decision, verdict: Verdict, reason: LeftOut) -> None:
        """Decide about a job that cannot be retried now; note which rule matched it."""
        decision.failed_core_seconds = verdict.job.core_seconds
        if reason in ALREADY_RETRIED:
            self._settle(decision, Arm.HANDLED, reason.label)
            return
        if reason in _NOT_PRODUCTION:
            self._settle(decision, Arm.PERSON, reason.label)
            return
        failure = Failure(verdict, alike_jobs=self.alike_jobs.count(verdict))
        rule = deciding_rule(self.rules, failure)
        if self._waits_for_company(failure, rule):
            self._postpone(decision, COMPANY_WAIT)
            return
        if rule is None:
            self._settle(decision, Arm.NO_RULE, "")
            return
        _note_rule(decision, rule)
        self._settle(decision, Arm.OWNER, reason.label)

    def _decide_about_candidate(self, decision: Decision, candidate: RetryCandidate) -> None:
        """Decide about a job that can be retried, unless the rule keeps it on a closed cluster."""
        verdict = candidate.verdict
        failure = Failure(verdict, self._workflow_type(candidate), self.alike_jobs.count(verdict))
        rule = deciding_rule(self.rules, failure)
        if self._waits_for_company(failure, rule):
            self._postpone(decision, COMPANY_WAIT)
            return
        if not _may_retry(candidate, rule):
            self._decide_without_retry(decision, verdict, LeftOut.CLUSTER)
            return

        earlier = self.earlier_decision_by_job.get(verdict.job_id)
        requested = self._requested_resources(candidate, earlier)
        decision.failed_core_seconds = verdict.job.core_seconds
        decision.attempt = _number_of_attempt(candidate, earlier)
        decision.first_asked = {
            "memory_bytes": requested.memory_bytes,
            "time_limit_seconds": requested.time_limit_seconds,
        }
        if rule is None:
            self._settle(decision, Arm.NO_RULE, "")
            return
        attempt = FailedAttempt(
            job=verdict.job,
            name=_name_in_all_attempts(candidate),
            number=decision.attempt,
            requested=requested,
            earlier_arm=earlier.arm if earlier else None,
            request_id=candidate.submission.request_id if candidate.submission else None,
            other_cluster=self._other_cluster(candidate, rule),
        )
        choice = choose(rule, attempt, self.budget)
        self._apply(decision, rule, choice)
        self._note_hold(rule, candidate, choice)

    def _apply(self, decision: Decision, rule: ParsedRule, choice: Choice) -> None:
        """Set what a rule has chosen, and when its retry may start."""
        _note_rule(decision, rule)
        decision.changes = choice.changes.as_stored()
        self._settle(decision, choice.arm, choice.why)
        decision.act_at = self.at
        # The control group gets what would happen without the rule, which does not wait.
        if choice.arm != Arm.CONTROL:
            decision.act_at += rule.definition.action.wait_after(decision.attempt)

    def _note_hold(self, rule: ParsedRule, candidate: RetryCandidate, choice: Choice) -> None:
        """Note that a rule holds the stage of a job, if that is its action."""
        submission = candidate.submission
        holds = rule.definition.action.kind == ActionKind.HOLD and choice.arm == Arm.QUESTION
        if holds and submission is not None:
            self.rules_to_hold[submission.request_id, submission.position] = rule.record

    def _settle(self, decision: Decision, arm: Arm, why: str) -> None:
        decision.arm = arm
        decision.why = why[:500]
        decision.decided_at = self.at

    def _postpone(self, decision: Decision, wait: timedelta) -> None:
        decision.due_at = self.at + wait
        decision.attempts = 0

    def _other_cluster(self, candidate: RetryCandidate, rule: ParsedRule) -> str | None:
        """Return the name of the cluster on which a rule retries a job instead of its own."""
        action = rule.definition.action
        if candidate.submission is None or not action.goes_elsewhere:
            return None
        if self.other_clusters is None:
            return ""
        other = choose_cluster(action, candidate, self.other_clusters)
        return other.name if other else ""

    def _waits_for_company(self, failure: Failure, rule: ParsedRule | None) -> bool:
        """Return whether a failed job waits for others that fail alike, before `rule` decides."""
        age = self.at - failure.verdict.ended_at
        return waits_for_company(self.rules, failure, rule, age=age)

    def _workflow_type(self, candidate: RetryCandidate) -> str:
        """Return the key of the workflow type of a job that the portal submitted; else empty."""
        if candidate.submission is None:
            return ""
        return self.workflow_type_by_request[candidate.submission.request_id]

    def _requested_resources(
        self, candidate: RetryCandidate, earlier: Decision | None
    ) -> RequestedResources:
        """Return what a job is meant to have: from its stage, or from its first attempt."""
        if candidate.submission is not None:
            return self.resources_by_array[candidate.submission.pk]
        if earlier is not None and earlier.first_asked:
            return RequestedResources(**earlier.first_asked)
        job = candidate.verdict.job
        return RequestedResources(
            memory_bytes=job.requested_memory_bytes or 0,
            time_limit_seconds=job.time_limit_seconds or 0,
        )


def _reasons(dry_run: DryRun) -> dict[int, LeftOut]:
    """Return why each job that cannot be retried is left out."""
    reasons = {}
    for reason, verdicts in dry_run.left_out.items():
        for verdict in verdicts:
            reasons[verdict.job_id] = reason
    return reasons


def _jobs_on_hold(verdicts: Sequence[Verdict]) -> set[int]:
    """Return the primary keys of the jobs whose request is on hold."""
    arrays = arrays_with_ids_of(verdict.job for verdict in verdicts)
    on_hold = set()
    for verdict in verdicts:
        submission = array_of(verdict.job, arrays)
        if submission is not None and submission.request.state == RequestState.ON_HOLD:
            on_hold.add(verdict.job_id)
    return on_hold


def _may_retry(candidate: RetryCandidate, rule: ParsedRule | None) -> bool:
    """Return whether a rule can retry a job although submission to its cluster may be off."""
    if candidate.submission is None or candidate.submission.cluster.submits:
        return True
    return rule is not None and rule.definition.action.goes_elsewhere


def _number_of_attempt(candidate: RetryCandidate, earlier: Decision | None) -> int:
    """Return which attempt failed; at least the second if it retried a job without a decision."""
    if earlier is not None:
        return earlier.attempt + 1
    if candidate.submission is None:
        return candidate.attempt - 1
    return 1 if candidate.submission.retry_of_id is None else 2


def _note_rule(decision: Decision, rule: ParsedRule) -> None:
    decision.rule = rule.record
    decision.version = rule.record.version


def _name_in_all_attempts(candidate: RetryCandidate) -> str:
    """Return a name that all attempts of a job share, also retries with IDs of their own."""
    submission = candidate.submission
    if submission is not None:
        return f"{submission.request.key}/{submission.position}/{candidate.index}"
    job = candidate.verdict.job
    return f"{job.cluster_id}/{job.job_id}/{job.submitted_at.isoformat()}"
