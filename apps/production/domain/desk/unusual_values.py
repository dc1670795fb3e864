"""The findings of the checks on the approver's desk: the value, and past jobs to compare with.

No query is needed: the check report contains all the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.production.domain.checks.base import Severity
from apps.production.domain.checks.report import PASSING, CheckReport
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.requests.returns import name_in_notes


@dataclass(frozen=True)
class UnusualValue:
    """A field with a finding.

    `text` is the value of the field, `more` the number of further fields with this finding. `most`
    is the 90th percentile of past jobs, in the unit of `value`. `note` is the line that asks for a
    change, as `notes_on_fields` reads it.
    """

    is_error: bool
    path: str
    label: str
    text: str
    message: str
    note: str
    more: int = 0
    value: float | None = None
    most: float | None = None

    @property
    def is_memory(self) -> bool:
        return self.path.endswith(".memory_bytes")

    @property
    def shows_text(self) -> bool:
        """Whether the value helps to understand the message. A list of services does not."""
        return 0 < len(self.text) <= 40 and not self.path.endswith(".services")

    @property
    def times(self) -> float | None:
        """How many times as much as past jobs used the value is; None if it is not more."""
        if not self.value or not self.most or self.value < 1.5 * self.most:
            return None
        return self.value / self.most


def unusual_values(
    report: CheckReport,
    content: RequestContent,
    *,
    labels: Mapping[str, str],
    texts: Mapping[str, str],
) -> list[UnusualValue]:
    """Return each finding once, most severe first, but those of `list_outages`.

    `labels` and `texts` have the label and the text of every field by path.
    """
    paths: dict[tuple[Severity, str], list[str]] = {}
    for finding in report.findings:
        if finding.rule not in PASSING:
            paths.setdefault((finding.severity, finding.message), []).append(finding.path)

    values = []
    for (severity, message), [path, *others] in paths.items():
        label = labels.get(path, "") if path else ""
        value, most = _compared(path, content, report.estimate)
        text = texts.get(path, "")
        if path == "deadline" and content.deadline:
            text = f"{content.deadline:%-d %b %Y}"
        unusual = UnusualValue(
            is_error=severity != Severity.WARNING,
            path=path,
            label=desk_label(path, label, content),
            text=text,
            message=message,
            note=f"{name_in_notes(label)}: {message}" if label else message,
            more=len(set(others) - {path}),
            value=value,
            most=most,
        )
        values.append(unusual)
    return values


def list_outages(report: CheckReport) -> list[str]:
    """Return each finding about services that are down now, or will be, once."""
    messages = [finding.message for finding in report.findings if finding.rule in PASSING]
    return list(dict.fromkeys(messages))


def desk_label(path: str, label: str, content: RequestContent) -> str:
    """Return `simulation › Memory` for `Stage 2 simulation › Memory`."""
    stage, _, title = label.rpartition(" › ")
    if not stage:
        return label or "request"
    name = content.stages[int(path.split(".")[1])].name
    return f"{name or stage} › {title}"


def _compared(
    path: str, content: RequestContent, estimate: Estimate
) -> tuple[float | None, float | None]:
    """Return the value of a field and the 90th percentile of past jobs, where both are known."""
    stage, _, name = path.removeprefix("stages.").partition(".")
    if not stage.isdecimal() or int(stage) >= len(estimate.stages):
        return None, None
    past = estimate.stages[int(stage)]
    written = content.stages[int(stage)]
    if name == "memory_bytes" and written.memory_bytes and past.memory_most:
        return written.memory_bytes, past.memory_most
    if name == "wall_seconds" and written.wall_seconds and past.wall_most:
        return written.wall_seconds, past.wall_most
    return None, None
