"""All that checks and estimate say of some content, whether it is saved or not."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import Experiment, User
from apps.core.models import Event
from apps.production.domain.checks import Finding, Severity, examine
from apps.production.domain.checks.known_facts import facts_for
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates import Estimate
from apps.production.models import Request


@dataclass(frozen=True)
class Checked:
    """What the rules found, gravest first, and the estimate."""

    findings: tuple[Finding, ...]
    estimate: Estimate

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    def mended(self, content: RequestContent, rule: str, path: str) -> RequestContent | None:
        """Return the content with the mend that this rule offers at this field; None where it offers none any more."""
        for finding in self.findings:
            if finding.mend is not None and (finding.rule, finding.path) == (rule, path):
                return finding.mend.applied_to(content)
        return None


def checked(
    content: RequestContent,
    *,
    experiment: Experiment,
    at: datetime,
    request: Request | None = None,
    by: User | None = None,
) -> Checked:
    """Ask every rule about content, and estimate it. Changes nothing."""
    facts = facts_for(content, experiment=experiment, at=at, request=request, by=by)
    return Checked(tuple(examine(content, facts)), facts.estimate)


@dataclass(frozen=True)
class Said:
    """What the checks said when a request was let through: rule, path and message of each warning, and when."""

    at: datetime
    warnings: list[dict[str, str]]
    count: int

    @property
    def groups(self) -> list[tuple[str, list[str]]]:
        """Return each message once, with the paths of all fields of which it was said."""
        paths: dict[str, list[str]] = {}
        for one in self.warnings:
            paths.setdefault(one["message"], []).append(one["path"])
        return list(paths.items())


def said_at_submission(events: Iterable[Event]) -> Said | None:
    """Return what the checks last said when the request was submitted or passed on."""
    for event in reversed(list(events)):
        if event.kind in {"request.pass", "request.submit"} and "checks" in event.data:
            return Said(event.at, event.data["checks"], event.data["checks_count"])
    return None
