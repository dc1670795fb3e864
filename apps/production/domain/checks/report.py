"""The check report of a request: findings and estimate, for saved or unsaved content."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import Experiment, User
from apps.core.models import Event
from apps.production.domain.checks import Finding, Severity, run_checks
from apps.production.domain.checks.fact_queries import facts_for
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.models import Request


@dataclass(frozen=True)
class CheckReport:
    """Findings, most severe first, and the estimate."""

    findings: tuple[Finding, ...]
    estimate: Estimate

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    def apply_fix(self, content: RequestContent, rule: str, path: str) -> RequestContent | None:
        """Return the content with the fix that a rule offers for a field, or None if it no longer offers one."""
        for finding in self.findings:
            if finding.fix is not None and (finding.rule, finding.path) == (rule, path):
                return finding.fix.applied_to(content)
        return None


def check_report(
    content: RequestContent,
    *,
    experiment: Experiment,
    at: datetime,
    request: Request | None = None,
    by: User | None = None,
) -> CheckReport:
    """Run all rules on content and estimate it. Changes nothing."""
    facts = facts_for(content, experiment=experiment, at=at, request=request, by=by)
    return CheckReport(tuple(run_checks(content, facts)), facts.estimate)


@dataclass(frozen=True)
class SubmissionWarnings:
    """The warnings that a request was submitted with: rule, path and message of each, and when."""

    at: datetime
    warnings: list[dict[str, str]]
    count: int

    @property
    def groups(self) -> list[tuple[str, list[str]]]:
        """Each message once, with the paths of all fields it applies to."""
        paths: dict[str, list[str]] = {}
        for one in self.warnings:
            paths.setdefault(one["message"], []).append(one["path"])
        return list(paths.items())


def warnings_at_submission(events: Iterable[Event]) -> SubmissionWarnings | None:
    """Return the warnings of the last check at submission, or None."""
    for event in reversed(list(events)):
        if event.kind in {"request.pass", "request.submit"} and "checks" in event.data:
            return SubmissionWarnings(event.at, event.data["checks"], event.data["checks_count"])
    return None
