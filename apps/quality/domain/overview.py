"""Reading data quality for pages and the API."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Q, QuerySet

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.quality.domain.standing import Rated
from apps.quality.enums import Outcome, RunState
from apps.quality.models import QualityResult, QualityRun, Waiver

#: A page lists no more runs, and no more waiting requests.
MOST_RUNS, PAGE = 20, 50


@dataclass(frozen=True)
class StageRated:
    """The results of one stage, or of the request as a whole."""

    title: str
    rated: list[Rated]


def by_stage(rated: Iterable[Rated]) -> list[StageRated]:
    """Return results in their order under the stages that they are of."""
    groups: dict[int | None, StageRated] = {}
    for one in rated:
        position = one.result.position
        title = "The request as a whole" if position is None else f"{position + 1} {one.result.stage_name}"
        groups.setdefault(position, StageRated(title, [])).rated.append(one)
    return list(groups.values())


def runs_of(request: Request) -> list[QualityRun]:
    """Return the newest runs, each with how many results it has of which outcome."""
    sums = {outcome.value: Count("results", filter=Q(results__outcome=outcome.value)) for outcome in Outcome}
    return list(QualityRun.objects.filter(request=request).annotate(**sums).order_by("-number")[:MOST_RUNS])


def waivers_of(request: Request) -> list[Waiver]:
    """Return all waivers, also those withdrawn and those that hold for nothing any more."""
    return list(Waiver.objects.filter(request=request).select_related("by"))


@dataclass(frozen=True)
class Waiting:
    """A request that waits for its data quality: since when, whether it is judged yet, and what keeps it."""

    request: Request
    is_judged: bool
    since: datetime | None
    open: int
    warned: int


@dataclass(frozen=True)
class WaitingPage:
    """A part of the requests that wait; `next_after` is how many come before the next part, None at the end."""

    rows: list[Waiting]
    total: int
    next_after: int | None


def waiting_for_quality(user: User, *, after: int = 0, size: int = PAGE) -> WaitingPage:
    """Return requests in data quality that a person may see, the longest waiting first; some queries for all."""
    visible: QuerySet[Request] = Request.objects.visible_to(user).filter(state=RequestState.DATA_QUALITY)
    since = _since(visible.order_by("pk").values_list("pk", flat=True))
    order = sorted(since, key=lambda pk: (since[pk] is None, since[pk]))
    requests = visible.select_related("experiment").in_bulk(order[after : after + size])
    newest = QualityRun.objects.filter(request__in=requests, state=RunState.JUDGED).order_by("request", "-number")
    judged = dict(newest.distinct("request").values_list("pk", "request"))
    opened, warned = _open(judged)
    rows = [
        Waiting(requests[pk], pk in judged.values(), since[pk], opened[pk], warned[pk])
        for pk in order[after : after + size]
        if pk in requests
    ]
    return WaitingPage(rows, len(order), after + size if len(order) > after + size else None)


def _since(keys: Iterable[int]) -> dict[int, datetime | None]:
    """Return when each of these requests last came to data quality."""
    since: dict[int, datetime | None] = dict.fromkeys(keys)
    events = Event.objects.filter(
        target_type=Request._meta.label_lower, target_id__in=map(str, since), new=RequestState.DATA_QUALITY
    )
    came = events.order_by().values_list("target_id").annotate(at=Max("at"))
    return since | {int(pk): at for pk, at in came}


def _open(judged: Mapping[int, int]) -> tuple[Counter[int], Counter[int]]:
    """Return how many results of these runs are open, and how many are warnings, by request."""
    opened: Counter[int] = Counter()
    warned: Counter[int] = Counter()
    waivers = Waiver.objects.filter(request__in=judged.values(), withdrawn_at=None)
    held = set(waivers.values_list("request", "digest"))
    rows = QualityResult.objects.filter(run__in=judged).filter(Q(blocks=True) | Q(outcome=Outcome.WARNED))
    for run, digest, blocks in rows.values_list("run", "digest", "blocks"):
        if not blocks:
            warned[judged[run]] += 1
        elif (judged[run], digest) not in held:
            opened[judged[run]] += 1
    return opened, warned
