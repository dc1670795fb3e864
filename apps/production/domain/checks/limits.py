"""Approved requests whose jobs will not fit their limits, by the past jobs known now.

The checks of a submission know only the past jobs of that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Prefetch, prefetch_related_objects
from django.urls import reverse
from django.utils import timezone

from apps.production.domain.checks.base import Facts, RuleFinding
from apps.production.domain.checks.report import run
from apps.production.domain.checks.rules import jobs
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.estimates.past import estimates_of
from apps.production.enums import RequestState
from apps.production.models import Request, Stage

#: Approved states in which no job has started, so that a liaison can still change everything.
NOT_STARTED = frozenset({RequestState.APPROVED, RequestState.QUEUED})
#: The checks that compare a limit with past jobs.
_RULES = {
    "wall_time_possible": jobs.wall_time_possible,
    "wall_time_plausible": jobs.wall_time_plausible,
    "wall_time_sufficient": jobs.wall_time_sufficient,
    "memory_sufficient": jobs.memory_sufficient,
}


@dataclass(frozen=True)
class NeededChange:
    """A limit that most jobs of a stage will exceed.

    `fix` is the label of the change that the checks offer, or empty; `url` is the form with it.
    """

    message: str
    fix: str
    url: str


def needed_changes(
    request: Request, content: RequestContent, estimate: Estimate, *, at: datetime
) -> list[NeededChange]:
    """Return what must change before a request starts. Empty once it has started.

    No query is needed.
    """
    if request.state not in NOT_STARTED:
        return []
    facts = Facts(today=timezone.localdate(at), services=frozenset(), estimate=estimate)
    url = f"{reverse('production:request-edit', args=[request.key])}?check=1#checks"
    needed = []
    for finding in run(_RULES, content, facts):
        if _concerns_most_jobs(finding, content, estimate):
            fix = finding.fix.label if finding.fix else ""
            needed.append(NeededChange(finding.message, fix, url))
    return needed


def needed_changes_of(
    requests: Sequence[Request], *, at: datetime
) -> dict[int, list[NeededChange]]:
    """Return what must change before each request starts, by primary key.

    The number of queries is fixed. Requests that need no change are left out.
    """
    waiting = [request for request in requests if request.state in NOT_STARTED]
    if not waiting:
        return {}
    stages = Prefetch("stages", Stage.objects.order_by("position"))
    prefetch_related_objects(waiting, stages, "workflow__type")
    contents = {request.pk: content_of(request, services=False) for request in waiting}
    estimates = estimates_of(
        {request.pk: (contents[request.pk], request.experiment_id) for request in waiting},
        at,
        disk=False,
    )
    changes = {}
    for request in waiting:
        needed = needed_changes(request, contents[request.pk], estimates[request.pk], at=at)
        if needed:
            changes[request.pk] = needed
    return changes


def _concerns_most_jobs(finding: RuleFinding, content: RequestContent, estimate: Estimate) -> bool:
    """Whether more than half of the past jobs exceeded the limit of a finding."""
    _, position, field = finding.path.split(".")
    stage = content.stages[int(position)]
    past = estimate.stages[int(position)]
    if field == "memory_bytes":
        return jobs.most_exceed(past.memory_used, stage.memory_bytes)
    return jobs.most_exceed(past.wall_used, stage.wall_seconds)
