"""Reading data quality for pages."""

from django.db.models import (
    Count,
    DateTimeField,
    Exists,
    F,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Coalesce

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.quality.enums import Outcome, RunState
from apps.quality.models import QualityResult, QualityRun, Waiver

#: Maximum number of runs of a request that are shown.
MOST_RUNS = 20


def runs_of(request: Request) -> list[QualityRun]:
    """Return the newest runs, each with its number of results by outcome."""
    sums = {outcome.value: Count("results", filter=Q(results__outcome=outcome.value)) for outcome in Outcome}
    return list(QualityRun.objects.filter(request=request).annotate(**sums).order_by("-number")[:MOST_RUNS])


def waiting_for_quality(user: User) -> QuerySet[Request]:
    """Return the requests in data quality that a user can see, longest waiting first.

    Each has the time `since`, the ID of its newest evaluated `run`, and the numbers of `open` results and `warned`.
    """
    arrivals = Event.objects.filter(
        target_type=Request._meta.label_lower,
        target_id=Cast(OuterRef("pk"), TextField()),
        new=RequestState.DATA_QUALITY,
    )
    since = arrivals.order_by().values("target_id").annotate(at=Max("at")).values("at")
    runs = QualityRun.objects.filter(request=OuterRef("pk"), state=RunState.JUDGED).order_by("-number")
    waivers = Waiver.objects.filter(request=OuterRef("run__request"), digest=OuterRef("digest"), withdrawn_at=None)
    return (
        Request.objects.visible_to(user)
        .filter(state=RequestState.DATA_QUALITY)
        .select_related("experiment")
        .annotate(since=Subquery(since, output_field=DateTimeField()), run=Subquery(runs.values("pk")[:1]))
        .annotate(open=_count(~Exists(waivers), blocks=True), warned=_count(blocks=False, outcome=Outcome.WARNED))
        .order_by(F("since").asc(nulls_last=True), "pk")
    )


def _count(*conditions: Combinable, **fields: object) -> Coalesce:
    """Return an expression for the number of results of a request's `run` that meet the conditions."""
    results = QualityResult.objects.filter(*conditions, run=OuterRef("run"), **fields).order_by()
    counts = results.values("run").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counts, output_field=IntegerField()), 0)
