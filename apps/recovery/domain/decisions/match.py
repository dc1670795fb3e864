"""Which rule decides about a failed job, and why the others do not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.recovery.domain.decisions.alike import COMPANY_WITHIN
from apps.recovery.domain.rules.definition import MOST_ALIKE_JOBS, Definition, read_definition
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule


@dataclass(frozen=True, slots=True)
class Failure:
    """The input of rules: the verdict with its job, and the workflow type of its request.

    `alike_jobs` is how many jobs fail alike, this one counted; see
    `apps.recovery.domain.decisions.alike`.
    """

    verdict: Verdict
    workflow_type: str = ""
    alike_jobs: int = 1


@dataclass(frozen=True)
class ParsedRule:
    """A rule with its parsed definition, read once for many jobs."""

    record: RecoveryRule
    definition: Definition


@dataclass(frozen=True)
class RuleMatch:
    """Whether a rule matches a failed job; `why_not` is empty if it does."""

    rule: ParsedRule
    why_not: str
    decides: bool


def rules_in_order(modes: Iterable[Mode] = (Mode.PASSIVE, Mode.ACTIVE)) -> list[ParsedRule]:
    """Return the rules in these modes, in the order in which they are tried."""
    rules = RecoveryRule.objects.filter(mode__in=list(modes)).select_related("experiment")
    return [ParsedRule(rule, read_definition(rule.definition)) for rule in rules]


def deciding_rule(rules: Sequence[ParsedRule], failure: Failure) -> ParsedRule | None:
    """Return the rule that decides about a failed job; None if no rule matches.

    It is the first active rule that matches, or else the first passive one: a rule that is tried
    out never keeps another from acting.
    """
    passive = None
    for rule in rules:
        if rule.record.mode == Mode.OFF or mismatch(rule, failure):
            continue
        if rule.record.mode == Mode.ACTIVE:
            return rule
        if passive is None:
            passive = rule
    return passive


def explain(rules: Sequence[ParsedRule], failure: Failure) -> list[RuleMatch]:
    """Return for each rule whether it matches and decides, or why not."""
    decides = deciding_rule(rules, failure)
    explanations = []
    for rule in rules:
        explanations.append(RuleMatch(rule, mismatch(rule, failure), decides=rule is decides))
    return explanations


def waits_for_company(
    rules: Sequence[ParsedRule], failure: Failure, match: ParsedRule | None, *, age: timedelta
) -> bool:
    """Return whether a failed job waits for others that fail alike.

    It does for an hour if another rule than `match`, which decides now, would then decide. `age` is
    the time since the end of the job.
    """
    if age >= COMPANY_WITHIN:
        return False
    if all(failure.alike_jobs >= rule.definition.condition.alike_jobs for rule in rules):
        return False
    in_company = replace(failure, alike_jobs=MOST_ALIKE_JOBS)
    return deciding_rule(rules, in_company) is not match


def mismatch(rule: ParsedRule, failure: Failure) -> str:
    """Return the first reason why a rule does not match a failed job; empty if it matches."""
    return (
        _outside_scope(rule, failure)
        or _unmet_condition(rule.definition, failure.verdict)
        or _too_few_alike(rule.definition, failure)
    )


def _outside_scope(rule: ParsedRule, failure: Failure) -> str:
    job = failure.verdict.job
    scope = rule.definition.scope
    experiment = rule.record.experiment
    if experiment is not None and experiment.pk != failure.verdict.experiment_id:
        return f"it is for {experiment.key} only"
    if scope.workflow_type and scope.workflow_type != failure.workflow_type:
        return f"it is for {scope.workflow_type} requests only"
    if scope.stage and scope.stage != job.stage:
        return f"it is for stage {scope.stage} only"
    if scope.cluster and scope.cluster != job.cluster.name:
        return f"it is for cluster {scope.cluster} only"
    site = job.site.name if job.site else ""
    if scope.site and scope.site != site:
        return f"it is for site {scope.site} only"
    return ""


def _unmet_condition(definition: Definition, verdict: Verdict) -> str:
    condition = definition.condition
    job = verdict.job
    compared = (
        ("verdict", verdict.verdict, condition.verdicts),
        ("category", verdict.category, condition.categories),
        ("known error", verdict.cause, condition.known_errors),
        ("service", verdict.service, condition.services),
        ("exit code", job.exit_code, condition.exit_codes),
        ("signal", job.signal, condition.signals),
    )
    for name, actual, allowed in compared:
        if allowed and actual not in allowed:
            expected = " or ".join(str(value) for value in allowed)
            # The job may have known errors that did not decide, so none is not said of it.
            if actual == "":
                return f"it is for {name} {expected} only"
            return f"the {name} is {actual}, not {expected}"
    if condition.end_states and job.state not in condition.end_states:
        expected = " or ".join(state.text for state in condition.end_states)
        return f"the end state is {JobState(job.state).text}, not {expected}"
    if condition.hold_reasons:
        return _other_hold_reason(condition.hold_reasons, hold_reason(job))
    return ""


def hold_reason(job: Job) -> str:
    """Return why a failed job was on hold when it ended; empty if it was not, or is not known.

    HTCondor: a failed job with neither exit code nor signal was removed while it was on hold.
    Slurm may keep the last reason for which a job waited after it ran, so the reason counts only if
    the job never started. Other schedulers report none.
    """
    was_held = False
    if job.cluster.scheduler == "htcondor":
        was_held = not job.exit_code and not job.signal
    elif job.cluster.scheduler == "slurm":
        was_held = job.started_at is None and "held" in job.reason.casefold()
    return job.reason if was_held else ""


def _other_hold_reason(expected: Sequence[str], actual: str) -> str:
    for part in expected:
        if part.casefold() in actual.casefold():
            return ""
    parts = " or ".join(f"“{part}”" for part in expected)
    if not actual:
        return f"it was not on hold when it ended, or its hold reason is not known; not {parts}"
    return f"the hold reason is “{actual}”, not {parts}"


def _too_few_alike(definition: Definition, failure: Failure) -> str:
    needed = definition.condition.alike_jobs
    if failure.alike_jobs >= needed:
        return ""
    return f"of {needed} jobs that must fail alike within an hour, {failure.alike_jobs} did"
