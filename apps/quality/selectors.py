"""Reading data quality for pages and the API."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Q, QuerySet

from apps.core.models import Event
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.quality.enums import Outcome, RunState
from apps.quality.models import QualityResult, QualityRun, Thresholds, Waiver
from apps.quality.standing import Rated

#: A page lists no more runs, and no more waiting requests.
MOST_RUNS, MOST_WAITING = 20, 200


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


def changed_since(run: QualityRun, request: Request) -> bool:
    """Tell whether an admin has set thresholds for such a request after it was judged."""
    used = [pk for setting in run.thresholds for pk in setting["rows"]]
    applies = (Q(workflow=None) | Q(workflow=request.workflow.type_id)) & (
        Q(experiment=None) | Q(experiment=request.experiment_id)
    )
    return Thresholds.objects.filter(applies, pk__gt=max(used, default=0), at__gte=run.judged_at).exists()


@dataclass(frozen=True)
class Waiting:
    """A request that waits for its data quality: since when, and what keeps it."""

    request: Request
    run: QualityRun | None
    since: Any
    open: int
    warned: int


def waiting_for_quality(user: Any) -> list[Waiting]:
    """Return the requests in data quality that a person may see, the longest waiting first; some queries for all."""
    visible: QuerySet[Request] = Request.objects.visible_to(user).filter(state=RequestState.DATA_QUALITY)
    requests = list(visible.select_related("experiment").order_by("pk")[:MOST_WAITING])
    since = _since(requests)
    newest = QualityRun.objects.filter(request__in=requests, state=RunState.JUDGED)
    runs = {run.request_id: run for run in newest.order_by("request", "number")}
    opened, warned = _open(runs.values())
    rows = [
        Waiting(
            request,
            runs.get(request.pk),
            since.get(str(request.pk)),
            opened.get(request.pk, 0),
            warned.get(request.pk, 0),
        )
        for request in requests
    ]
    return sorted(rows, key=lambda row: (row.since is None, row.since))


def _since(requests: list[Request]) -> dict[str, Any]:
    events = Event.objects.filter(
        target_type=Request._meta.label_lower,
        target_id__in=[str(request.pk) for request in requests],
        new=RequestState.DATA_QUALITY,
    )
    return dict(events.order_by().values_list("target_id").annotate(at=Max("at")))


def _open(runs: Iterable[QualityRun]) -> tuple[dict[int, int], dict[int, int]]:
    """Return how many results of these runs are open, and how many are warnings, by request."""
    opened: dict[int, int] = {}
    warned: dict[int, int] = {}
    keys = [run.pk for run in runs]
    held = set(
        Waiver.objects.filter(request__quality_runs__in=keys, withdrawn_at=None).values_list("digest", flat=True)
    )
    rows = QualityResult.objects.filter(run__in=keys).filter(Q(blocks=True) | Q(outcome=Outcome.WARNED))
    for request, digest, blocks in rows.values_list("run__request", "digest", "blocks"):
        if not blocks:
            warned[request] = warned.get(request, 0) + 1
        elif digest not in held:
            opened[request] = opened.get(request, 0) + 1
    return opened, warned
