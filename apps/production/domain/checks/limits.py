"""Approved requests whose jobs will not fit their limits, by the past jobs known now.

The checks of a submission know only the past jobs of that time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from apps.production.domain.checks.base import Facts, Problem
from apps.production.domain.checks.rules import jobs
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.enums import NOT_STARTED
from apps.production.models import Request

#: The checks that compare a limit with past jobs.
_RULES = (
    jobs.wall_time_possible,
    jobs.wall_time_plausible,
    jobs.wall_time_sufficient,
    jobs.memory_sufficient,
)


@dataclass(frozen=True)
class NeededChange:
    """A limit that most jobs of a stage will exceed: the field at `path`.

    `fix` is the label of the change that the checks offer, or empty; `url` is the form with it.
    Users who cannot edit the request may propose it: `proposal` is the label of the button, and
    `proposal_url` a comment on the field, written in advance.
    """

    message: str
    fix: str
    url: str
    proposal: str
    proposal_url: str
    path: str


def needed_changes(
    request: Request, content: RequestContent, estimate: Estimate, *, at: datetime
) -> list[NeededChange]:
    """Return what must change before a request starts. Empty once it has started."""
    if request.state not in NOT_STARTED:
        return []
    url = f"{reverse('production:request-edit', args=[request.key])}?check=1#checks"
    needed = []
    for problem in limit_problems(content, estimate, at=at):
        fix = problem.fix.label if problem.fix else ""
        value = fix.removeprefix("Use ") or "a change"
        comment = {
            "about": problem.path,
            "text": f"{problem.message} I propose {value}.",
        }
        comment_url = reverse("production:comment", args=[request.key])
        needed.append(
            NeededChange(
                problem.message,
                fix,
                url,
                f"Propose {value}…",
                f"{comment_url}?{urlencode(comment)}",
                problem.path,
            )
        )
    return needed


def limit_problems(
    content: RequestContent, estimate: Estimate, *, at: datetime
) -> Iterator[Problem]:
    """Yield the limits that more than half of the past jobs of a stage exceeded."""
    facts = Facts(today=timezone.localdate(at), services=frozenset(), estimate=estimate)
    for check in _RULES:
        for problem in check(content, facts):
            _, position, field = problem.path.split(".")
            past = estimate.stages[int(position)]
            is_reached = {"memory_bytes": past.reaches_memory, "wall_seconds": past.reaches_limit}
            if is_reached[field]:
                yield problem
