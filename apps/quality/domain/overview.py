"""Reading data quality for pages and the API."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, DateTimeField, F, Max, OuterRef, Q, Subquery, TextField
from django.db.models.functions import Cast

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.quality.enums import Outcome, RunState
from apps.quality.models import QualityResult, QualityRun, Waiver

#: Limits of a page: runs of a request, and requests that wait.
MOST_RUNS, PAGE = 20, 50


def runs_of(request: Request) -> list[QualityRun]:
    """Return the newest runs, each with its number of results by outcome."""
    sums = {outcome.value: Count("results", filter=Q(results__outcome=outcome.value)) for outcome in Outcome}
    return list(QualityRun.objects.filter(request=request).annotate(**sums).order_by("-number")[:MOST_RUNS])


def waivers_of(request: Request) -> list[Waiver]:
    """Return all waivers, including withdrawn ones and those whose result has changed."""
    return list(Waiver.objects.filter(request=request).select_related("by"))


@dataclass(frozen=True)
class Waiting:
    """A request in data quality: since when, whether it was evaluated, and its open results and warnings."""

    request: Request
    is_judged: bool
    since: datetime | None
    open: int
    warned: int


@dataclass(frozen=True)
class WaitingPage:
    """One page of the waiting requests; `next_after` is the offset of the next page, None on the last."""

    rows: list[Waiting]
    total: int
    next_after: int | None


def waiting_for_quality(user: User, *, after: int = 0, size: int = PAGE) -> WaitingPage:
    """Return the requests in data quality that a user can see, longest waiting first, in a fixed number of queries."""
    arrivals = Event.objects.filter(
        target_type=Request._meta.label_lower,
        target_id=Cast(OuterRef("pk"), TextField()),
        new=RequestState.DATA_QUALITY,
    )
    since = arrivals.order_by().values("target_id").annotate(at=Max("at")).values("at")
    visible = Request.objects.visible_to(user).filter(state=RequestState.DATA_QUALITY)
    total = visible.count()
    ordered = visible.annotate(since=Subquery(since, output_field=DateTimeField())).select_related("experiment")
    requests = list(ordered.order_by(F("since").asc(nulls_last=True), "pk")[after : after + size])
    newest = QualityRun.objects.filter(request__in=requests, state=RunState.JUDGED).order_by("request", "-number")
    judged = dict(newest.distinct("request").values_list("pk", "request"))
    opened, warned = _open(judged)
    rows = [Waiting(one, one.pk in judged.values(), one.since, opened[one.pk], warned[one.pk]) for one in requests]
    return WaitingPage(rows, total, after + size if total > after + size else None)


def _open(judged: Mapping[int, int]) -> tuple[Counter[int], Counter[int]]:
    """Return the numbers of open results and of warnings of these runs, by request."""
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
