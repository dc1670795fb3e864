"""Run rules on a request, and report their findings to pages and API."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from apps.accounts.models import Experiment, User
from apps.core.models import Event
from apps.production.domain.checks.base import Facts, Fix, Rule, RuleFinding, Severity
from apps.production.domain.checks.facts import facts_for
from apps.production.domain.checks.registry import DRAFT, rules
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.priority.prospects import QueueNow
from apps.production.domain.types.faults import Problems
from apps.production.models import Request

#: Rules about services as they are now, whatever the request says. The desk shows their findings
#: apart, and those at submission mean nothing later.
PASSING = frozenset({"no_downtime", "services_up"})
#: Kinds of the events that keep the findings.
_CHECKED = frozenset({"request.pass", "request.submit"})
#: How many findings a page shows at most.
MOST_SHOWN = 100
#: How many problems of a rule are reported. A body of 2 MB can hold 150,000, which take seconds.
MOST_OF_A_RULE = 1_000

log = logging.getLogger(__name__)


def check_shape(content: RequestContent, facts: Facts) -> Problems:
    """Return the problems that prevent saving a draft, by field path."""
    return messages_of(run(DRAFT, content, facts))


def run_checks(content: RequestContent, facts: Facts) -> list[RuleFinding]:
    """Return the findings of all rules, warnings included."""
    return run(rules(), content, facts)


def messages_of(findings: Iterable[RuleFinding]) -> Problems:
    """Return the messages of findings by field path, without duplicates."""
    problems: Problems = {}
    for finding in findings:
        messages = problems.setdefault(finding.path, [])
        if finding.message not in messages:
            messages.append(finding.message)
    return problems


def run(rules: Mapping[str, Rule], content: RequestContent, facts: Facts) -> list[RuleFinding]:
    """Return findings, most severe first, of each rule up to `MOST_OF_A_RULE`.

    A rule that raises is reported as a warning.
    """
    findings: list[RuleFinding] = []
    for name, rule in rules.items():
        try:
            problems = list(islice(rule(content, facts), MOST_OF_A_RULE + 1))
        # A third-party rule may raise anything. The other rules still run.
        except Exception as error:
            log.exception("check %s failed", name)
            message = f"The check “{name}” failed to run ({type(error).__name__})."
            findings.append(RuleFinding(name, Severity.WARNING, "", message))
            continue
        for problem in problems[:MOST_OF_A_RULE]:
            finding = RuleFinding(
                name,
                rule.severity,
                problem.path,
                problem.message,
                problem.fix,
                problem.can_stage,
            )
            findings.append(finding)
        if len(problems) > MOST_OF_A_RULE:
            last = problems[MOST_OF_A_RULE]
            message = f"There are more than {MOST_OF_A_RULE:,} such problems. Fix these first."
            findings.append(RuleFinding(name, rule.severity, last.path, message))
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


@dataclass(frozen=True)
class CheckReport:
    """Findings, most severe first, and the estimate."""

    findings: tuple[RuleFinding, ...]
    estimate: Estimate

    def of(self, severity: Severity) -> list[RuleFinding]:
        return [finding for finding in self.findings if finding.severity == severity]

    @property
    def fixes(self) -> list[Fix]:
        """The offered fixes, starting with the most severe finding. Some may exclude others."""
        return [finding.fix for finding in self.findings if finding.fix is not None]

    def fix_of(self, rule: str, path: str) -> Fix | None:
        """Return the fix that a rule offers for a field, or None if it no longer offers one."""
        for finding in self.findings:
            if finding.fix is not None and finding.rule == rule and finding.path == path:
                return finding.fix
        return None


def check_report(
    content: RequestContent,
    *,
    experiment: Experiment,
    at: datetime,
    request: Request | None = None,
    by: User | None = None,
    queue: QueueNow | None = None,
) -> CheckReport:
    """Return the findings of all rules about this content. The parameters are as in `facts_for`."""
    facts = facts_for(content, experiment=experiment, at=at, request=request, by=by, queue=queue)
    return CheckReport(tuple(run_checks(content, facts)), facts.estimate)


def count_submitted_messages(data: Mapping[str, Any]) -> int:
    """Return how many warnings a request was submitted with, by the data of the event.

    As everywhere, a message about several fields is one warning. Events of earlier releases do not
    store their number; of more warnings than they store, each other one counts.
    """
    messages: int | None = data.get("checks_messages")
    if messages is not None:
        return messages
    stored = data["checks"]
    total: int = data["checks_count"]
    return len({warning["message"] for warning in stored}) + total - len(stored)


class MessageGroup(NamedTuple):
    """A message with its severity, and the paths or names of all fields that it applies to."""

    severity: str
    message: str
    fields: list[str]


@dataclass(frozen=True)
class Warnings:
    """The warnings of a request at its submission, or all findings of now.

    Each has rule, severity, path and message. `count` and `errors` are how many there are, where a
    message about several fields is one; only the first are in `warnings`. `outdated` counts
    warnings at submission about services and downtimes of that time.
    """

    at: datetime
    warnings: list[dict[str, str]]
    count: int
    errors: int = 0
    is_current: bool = False
    outdated: int = 0

    @cached_property
    def groups(self) -> list[MessageGroup]:
        """Each message once."""
        paths: dict[tuple[str, str], list[str]] = {}
        for warning in self.warnings:
            paths.setdefault((warning["severity"], warning["message"]), []).append(warning["path"])
        return [MessageGroup(*key, paths_of_key) for key, paths_of_key in paths.items()]

    @property
    def unlisted(self) -> int:
        """The number of findings that are not among `groups`."""
        return self.count + self.errors - len(self.groups)


def warnings_in(report: CheckReport, *, at: datetime) -> Warnings:
    """Return the warnings of a current check report."""
    rows = []
    for finding in report.findings:
        rows.append(
            {
                "rule": finding.rule,
                "severity": finding.severity.value,
                "path": finding.path,
                "message": finding.message,
            }
        )
    messages = {(finding.blocks, finding.message) for finding in report.findings}
    errors = len([message for is_error, message in messages if is_error])
    return Warnings(at, rows[:MOST_SHOWN], len(messages) - errors, errors, is_current=True)


def warnings_at_submissions(requests: Iterable[Request]) -> dict[int, Warnings]:
    """Return the warnings that requests were submitted with by primary key, in one query."""
    events = Event.objects.filter(
        target_type=Request._meta.label_lower,
        target_id__in=[str(request.pk) for request in requests],
        kind__in=_CHECKED,
    )
    by_request: dict[int, list[Event]] = {}
    for event in events.order_by("id"):
        by_request.setdefault(int(event.target_id), []).append(event)

    submitted_with = {}
    for pk, events_of_request in by_request.items():
        if warnings := warnings_at_submission(events_of_request):
            submitted_with[pk] = warnings
    return submitted_with


def warnings_at_submission(events: Iterable[Event]) -> Warnings | None:
    """Return the warnings that a request was submitted with, without outdated ones."""
    for event in reversed(list(events)):
        if event.kind in _CHECKED and "checks" in event.data:
            lasting = []
            outdated = set()
            for warning in event.data["checks"]:
                if warning["rule"] in PASSING:
                    outdated.add(warning["message"])
                else:
                    lasting.append(warning)
            count = count_submitted_messages(event.data) - len(outdated)
            return Warnings(event.at, lasting, count, outdated=len(outdated))
    return None
