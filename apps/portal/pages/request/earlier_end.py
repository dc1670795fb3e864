"""Changes that would end a request earlier.

They follow from the stored forecast, the queue and the obstacles of its jobs. No cluster is
queried.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import chain

from django.urls import reverse
from django.utils import timezone
from django.utils.text import capfirst

from apps.core.domain.quantities import count_noun
from apps.production.domain.approvals.requirements import Approval
from apps.production.domain.content.stages import content_of
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.forecast import Days, expected_class, forecast_of
from apps.production.domain.holds import ActiveHold
from apps.production.domain.priority.prospects import (
    ApprovalCandidate,
    Prospect,
    QueueNow,
    prospects_if_approved,
    prospects_in_queue,
)
from apps.production.domain.priority.queue_forecast import end_of_entry
from apps.production.domain.priority.ranks import entries_ahead
from apps.production.domain.requests.status import RequiredService
from apps.production.domain.slack import days_after
from apps.production.enums import IN_PRODUCTION, AttentionKind, RequestedPriority, RequestState
from apps.production.models import QueueEntry, Request
from apps.progress.domain.progress import RequestNow
from apps.statusboard.enums import State
from apps.submission.domain.arrays.submissions import assignment_of
from apps.submission.domain.dispatch.bounds import find_reached_limit


@dataclass(frozen=True)
class EndingChange:
    """A change that would end a request earlier: of something it waits for, or of its class.

    `end` is the new end and `days` the gained days, if known; `days_late` are those by which it is
    still after the deadline. `obstacle` is a sentence about what the request waits for, and
    `advice` what follows for its jobs.
    """

    what: str
    why: str = ""
    url: str = ""
    end: date | None = None
    days: int | None = None
    days_late: int = 0
    obstacle: str = ""
    advice: str = ""

    @property
    def is_obstacle(self) -> bool:
        return bool(self.obstacle)


def earlier_end(
    request: Request,
    approval: Approval,
    estimate: Estimate | None,
    progress: RequestNow | None,
    *,
    holds: Sequence[ActiveHold],
    needs: Sequence[RequiredService],
    class_url: str,
    start_url: str,
    queue: QueueNow | None,
    at: datetime,
) -> list[EndingChange]:
    """Return the changes that would end an open request earlier, obstacles to its work first.

    `class_url` is where this user sets or requests a class, `start_url` where they start the
    request; empty if they may not. `queue` is the queue now, if it has been read.
    """
    state = RequestState(request.state)
    if state == RequestState.AWAITING_APPROVAL:
        return [*_signatures(request, approval, estimate, class_url, queue=queue, at=at)]
    if state not in IN_PRODUCTION | {RequestState.QUEUED}:
        return []
    changes = [*_holds(holds)]
    is_produced = progress is not None and progress.part_done == 1
    if not is_produced:
        changes += _services_down(request, needs)
    if progress and state in IN_PRODUCTION:
        changes += _jobs_and_stages(request, progress)
    is_late = any(need.kind == AttentionKind.LATE for need in request.attention.all())
    if is_late and state == RequestState.RUNNING:
        changes += _reached_limit(request, class_url)
    changes += _in_queue(request, class_url, start_url, is_held=bool(holds), at=at)
    return changes


def _holds(holds: Sequence[ActiveHold]) -> Iterator[EndingChange]:
    """Yield the release of each hold."""
    for hold in holds:
        yield EndingChange(
            f"Release {hold.what}",
            f"on hold: {hold.reason}" if hold.reason else "on hold",
            obstacle=f"{capfirst(hold.what)} is on hold.",
        )


def _services_down(request: Request, needs: Sequence[RequiredService]) -> Iterator[EndingChange]:
    """Yield the return of each service that a request needs and that is down."""
    for need in needs:
        if need.current.state != State.DOWN:
            continue
        service = need.current.service
        stages = ", ".join(need.stages)
        yield EndingChange(
            f"{service.name} up again",
            f"down, needed by {stages}",
            service.get_absolute_url(),
            obstacle=f"{service.name} is down, needed by {stages}.",
            advice=_advice_while_down(request),
        )


def _in_queue(
    request: Request, class_url: str, start_url: str, *, is_held: bool, at: datetime
) -> Iterator[EndingChange]:
    """Yield the higher classes of a queued request, and its start if no hold prevents that."""
    if request.state not in {RequestState.QUEUED, RequestState.ON_HOLD}:
        return
    yield from _higher_classes(request, prospects_in_queue(request, at=at), class_url)
    if request.state == RequestState.QUEUED and not is_held:
        yield from _start(request, start_url, at=at)


def _advice_while_down(request: Request) -> str:
    """Return what follows for the jobs of a request while a service that they need is down."""
    if assignment_of(request) is None:
        return "Jobs that run now may fail. New ones should wait until it is up."
    return "Jobs that run now may fail. The portal submits new ones once it is up."


def _signatures(
    request: Request,
    approval: Approval,
    estimate: Estimate | None,
    class_url: str,
    *,
    queue: QueueNow | None,
    at: datetime,
) -> Iterator[EndingChange]:
    """Yield the missing signatures, then a needed wall time or the higher classes that help.

    The signatures have the end if all signed now.
    """
    if not approval.missing:
        return
    own_class = expected_class(request)
    prospects: dict[str, Prospect] = {}
    if estimate:
        candidate = ApprovalCandidate(request, content_of(request), estimate)
        by_class = prospects_if_approved(candidate, at=at, queue=queue)
        own_and_higher = RequestedPriority.values[RequestedPriority.values.index(own_class) :]
        prospects = {name: by_class[name] for name in own_and_higher}

    people = dict.fromkeys(chain.from_iterable(slot.people for slot in approval.missing))
    names = ", ".join(slot.name for slot in approval.missing)
    end = prospects[own_class].forecast.end if prospects else None
    yield EndingChange(
        f"Signature of {names}",
        " or ".join([*people][:3]),
        end=end.likely if end else None,
        obstacle=f"The signature of {names} is missing.",
    )

    if estimate and estimate.unfinished:
        # No class gives such a request an end.
        stages = ", ".join(estimate.unfinished)
        yield EndingChange(
            f"A longer wall time for {stages}",
            "nearly no job would end within its time limit",
            "#checks",
            obstacle=f"The wall time of {stages} is too short.",
        )
    else:
        yield from _higher_classes(request, prospects, class_url)


def _higher_classes(
    request: Request, prospects: Mapping[str, Prospect], class_url: str
) -> Iterator[EndingChange]:
    """Yield the higher classes in which a request would end earlier.

    `prospects` has the prospect by class: first that of the request now, then the higher ones.
    """
    if not prospects:
        return
    current_class, *higher_classes = prospects
    current = prospects[current_class]
    current_end = current.forecast.end
    best_rank = current.rank
    for name in higher_classes:
        prospect = prospects[name]
        if prospect.rank >= best_rank:
            continue
        best_rank = prospect.rank
        end = prospect.forecast.end
        days = None
        if current_end and end and prospect.forecast.start:
            days = (current_end.likely - end.likely).days
        yield EndingChange(
            f"Class {name} instead of {current_class}",
            f"{prospect.rank} instead of {current.rank} in the queue",
            class_url,
            end.likely if end and days else None,
            days,
            days_after(request.deadline, end.likely) if end and days else 0,
        )


def _start(request: Request, start_url: str, *, at: datetime) -> Iterator[EndingChange]:
    """Yield the start of a queued request now, if it would end earlier.

    Its end is known if its running time and its expected end are.
    """
    forecast = forecast_of(request)
    entry: QueueEntry | None = getattr(request, "queue_entry", None)
    if entry is None or forecast is None or forecast.start is None or forecast.end is None:
        return
    end = end_of_entry(entry, Days.exactly(timezone.localdate(at)))
    if end is None or end.likely >= forecast.end.likely:
        return
    ahead = entries_ahead(entry).count()
    place = f"before the {ahead:,} ahead of it in the queue, " if ahead else ""
    yield EndingChange(
        "Start it now",
        f"{place}if a cluster has room",
        start_url,
        end.likely,
        (forecast.end.likely - end.likely).days,
        days_after(request.deadline, end.likely),
    )


def _jobs_and_stages(request: Request, progress: RequestNow) -> Iterator[EndingChange]:
    """Yield the changes that jobs and stages wait for."""
    submissions = reverse("submission:request", args=[request.key])
    for attention in request.attention.all():
        if attention.kind in {AttentionKind.STUCK, AttentionKind.TEST_FAILED, AttentionKind.IDLE}:
            reason = attention.text.rstrip(".")
            yield EndingChange(
                reason, attention.get_kind_display(), submissions, obstacle=f"{capfirst(reason)}."
            )
    for stage in progress.stages:
        if stage.waiting and stage.waiting.held:
            jobs = count_noun(stage.waiting.held, "job")
            address = reverse("jobs:list") + "?tab=held"
            yield EndingChange(
                f"Release {jobs} of {stage.progress.stage}",
                "held in the batch system",
                address,
                obstacle=f"The batch system holds {jobs} of {stage.progress.stage}.",
            )
        if (
            stage.is_located is False
            and stage.progress.requested_jobs
            and stage.progress.completed >= stage.progress.requested_jobs
        ):
            yield EndingChange(
                f"Locate the output of {stage.progress.stage}",
                "the request waits for its catalogue entry",
                submissions,
                obstacle=f"The output of {stage.progress.stage} is not in the catalogue yet.",
            )
    if request.state == RequestState.DATA_QUALITY:
        return
    for cluster in _silent_clusters(request, progress):
        yield EndingChange(
            f"{cluster} answers again",
            "its queue is unknown",
            reverse("jobs:list"),
            obstacle=f"The queue of {cluster} is unknown.",
        )


def _silent_clusters(request: Request, progress: RequestNow) -> list[str]:
    """Return the clusters that may have jobs of the request, and whose queue is unknown."""
    silent = progress.queue_unknown
    chosen = assignment_of(request) if silent else None
    if chosen is None:
        return silent
    return [name for name in silent if name == chosen.cluster.name]


def _reached_limit(request: Request, class_url: str) -> Iterator[EndingChange]:
    """Yield what helps planned jobs that a limit of concurrent jobs keeps from their cluster."""
    reached = find_reached_limit(request)
    if reached is None:
        return
    jobs = count_noun(reached.jobs, "job")
    limited = {
        "request": "this request",
        "experiment": f"{request.experiment} on {reached.cluster_name}",
        "cluster": reached.cluster_name,
    }
    limit = f"limit of {reached.limit:,} concurrent jobs of {limited[reached.scope]}"
    if reached.scope == "request":
        who = "approvers and shifters"
        url = reverse("submission:request", args=[request.key])
    else:
        who = "admins"
        url = ""
    yield EndingChange(
        f"Raise the {limit}",
        f"{who} can",
        url,
        obstacle=f"{jobs} wait for the {limit}, which {who} can raise.",
    )
    if reached.scope != "request":
        yield EndingChange(
            "A higher priority",
            f"its jobs go to {reached.cluster_name} before those of others",
            class_url,
        )
