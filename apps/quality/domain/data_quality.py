"""The data quality of a request: the current run, its results, active waivers, open results."""

from collections.abc import Iterable
from dataclasses import dataclass, field

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
from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.production.domain.lifecycle.transitions import Transition
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.enums import RequestState
from apps.production.models import OutputReport, Request, StageAcceptance
from apps.quality.domain.facts import posted_inputs
from apps.quality.domain.thresholds import settings_for
from apps.quality.enums import Outcome, RunState
from apps.quality.models import QualityResult, QualityRun, Waiver
from apps.submission.domain.arrays.stage_events import StageEvents, events_not_produced

#: The name of this app's closing check, as in the setting `CLOSING_CHECKS`.
CLOSING_CHECK = "quality"
#: How many checks a refusal names, and how many runs a page shows.
_NAMED = 3
_MOST_RUNS = 20


@dataclass(frozen=True)
class DataQuality:
    """The data quality of a request.

    `run` is the newest run since the request entered data quality. `shown` is the newest evaluated
    run, with its `results`; it is older than `run` while that is queued. `not_produced` are the
    stages that lack events.
    """

    request: Request
    run: QualityRun | None
    shown: QualityRun | None
    results: tuple[QualityResult, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    is_stale: bool = False
    is_waiting: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    accepted: tuple[StageAcceptance, ...] = ()
    not_produced: tuple[StageEvents, ...] = ()

    @property
    def open(self) -> list[QualityResult]:
        return [result for result in self.results if result.is_open]

    @property
    def waived(self) -> list[QualityResult]:
        return [result for result in self.results if result.waiver]

    @property
    def is_evaluated(self) -> bool:
        return self.run is not None and self.run.state == RunState.EVALUATED

    @property
    def passes(self) -> bool:
        """Whether the request can be closed now."""
        return self.is_evaluated and not self.is_stale and not self.open

    @property
    def in_part(self) -> bool:
        """Whether the request can only be partially done.

        A waiver states it, a stage was accepted as is, or not all events were produced: jobs are
        missing, or completed with a part of their events.
        """
        if self.accepted or self.not_produced:
            return True
        return any(result.waiver and result.waiver.in_part for result in self.waived)

    def refusal_to_close(self, step: Transition) -> str:
        """Return why a move cannot close the request now, or an empty text."""
        if not self.is_evaluated:
            return "its data quality is not evaluated yet. The checks run automatically."
        if self.is_stale:
            return "reports or thresholds have changed. The checks must run again first."
        if self.open:
            titles = list(dict.fromkeys(f"“{result.title}”" for result in self.open))
            more = ""
            if len(titles) > _NAMED:
                more = f" and {len(titles) - _NAMED} more"
            return (
                f"{', '.join(titles[:_NAMED])}{more} did not pass. An approver can waive each "
                "result with a reason."
            )
        if step.new == RequestState.DONE:
            return _why_only_in_part(self)
        return ""


def data_quality_of(request: Request) -> DataQuality:
    """Return the data quality of a request, in a few queries."""
    run = current_run(request)
    evaluated = (
        QualityRun.objects.filter(request=request, state=RunState.EVALUATED)
        .order_by("-number")
        .first()
    )
    waivers = waivers_of(request)
    results = results_of(evaluated, waivers) if evaluated else []

    in_review = request.state == RequestState.DATA_QUALITY
    stale = in_review and run is not None and run == evaluated and is_stale(run, request)
    waiting = in_review and (run is None or run != evaluated)
    outcomes = [result.outcome for result in results]
    counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
    acceptances = acceptances_of([request])
    not_produced = events_not_produced([request], acceptances)
    return DataQuality(
        request,
        run,
        evaluated,
        tuple(results),
        tuple(waivers),
        stale,
        waiting,
        counts,
        tuple(acceptances.values()),
        tuple(not_produced.get(request.pk, ())),
    )


def current_run(request: Request) -> QualityRun | None:
    """Return the newest run since the request last entered data quality.

    Earlier runs evaluated other output.
    """
    runs = QualityRun.objects.filter(request=request).order_by("-number")
    if request.state == RequestState.DATA_QUALITY:
        runs = runs.filter(arrival=arrival_of(request))
    return runs.first()


def arrival_of(request: Request) -> int:
    """Return the ID of the event by which the request last entered data quality, or 0."""
    return (
        events_of(request).filter(new=RequestState.DATA_QUALITY).values_list("pk", flat=True).last()
        or 0
    )


def results_of(run: QualityRun, waivers: Iterable[Waiver]) -> list[QualityResult]:
    """Return the results of a run, each with its waiver."""
    results = list(run.results.order_by("place"))
    in_force = {}
    for waiver in waivers:
        if not waiver.withdrawn_at:
            in_force[waiver.digest] = waiver
    for result in results:
        result.waiver = in_force.get(result.digest) if result.blocks else None
    return results


def waivers_of(request: Request) -> list[Waiver]:
    """Return all waivers, including withdrawn ones and those whose result has changed."""
    return list(Waiver.objects.filter(request=request).select_related("by"))


def runs_of(request: Request) -> list[QualityRun]:
    """Return the newest runs, each with its number of results by outcome."""
    sums = {}
    for outcome in Outcome:
        sums[outcome.value] = Count("results", filter=Q(results__outcome=outcome.value))
    return list(
        QualityRun.objects.filter(request=request).annotate(**sums).order_by("-number")[:_MOST_RUNS]
    )


def waiting_for_quality(user: User) -> QuerySet[Request]:
    """Return the requests in data quality that a user can see, longest waiting first.

    Each has the time `since`, the ID of its newest evaluated `run`, and the numbers of `open` and
    `warned` results.
    """
    arrivals = Event.objects.filter(
        target_type=Request._meta.label_lower,
        target_id=Cast(OuterRef("pk"), TextField()),
        new=RequestState.DATA_QUALITY,
    )
    since = arrivals.order_by().values("target_id").annotate(at=Max("at")).values("at")
    runs = QualityRun.objects.filter(request=OuterRef("pk"), state=RunState.EVALUATED).order_by(
        "-number"
    )
    waivers = Waiver.objects.filter(
        request=OuterRef("run__request"), digest=OuterRef("digest"), withdrawn_at=None
    )
    return (
        Request.objects.visible_to(user)
        .filter(state=RequestState.DATA_QUALITY)
        .select_related("experiment")
        .annotate(
            since=Subquery(since, output_field=DateTimeField()), run=Subquery(runs.values("pk")[:1])
        )
        .annotate(
            open=_count_results(~Exists(waivers), blocks=True),
            warned=_count_results(blocks=False, outcome=Outcome.WARNED),
        )
        .order_by(F("since").asc(nulls_last=True), "pk")
    )


def _count_results(*conditions: Combinable, **fields: object) -> Coalesce:
    """Return an expression for the number of results of a request's `run` under conditions."""
    results = QualityResult.objects.filter(*conditions, run=OuterRef("run"), **fields).order_by()
    counts = results.values("run").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counts, output_field=IntegerField()), 0)


def is_stale(run: QualityRun, request: Request) -> bool:
    """Whether reports, posts or thresholds have changed since the run.

    This includes reports that are not counted yet.
    """
    return (
        has_news(run, request)
        or OutputReport.objects.filter(stage__request=request, counted=False).exists()
    )


def thresholds_changed(run: QualityRun, request: Request) -> bool:
    """Whether the checks or their thresholds have changed since a run."""
    return bool(run.thresholds != [setting.plain() for setting in settings_for(request).values()])


def has_news(run: QualityRun, request: Request) -> bool:
    """Whether counts, posts or thresholds have changed since a run."""
    seen = {name: run.inputs.get(name) for name in ("counts", "posted")}
    seen["files"] = run.inputs.get("files", {})  # Runs of earlier versions have none.
    return seen != posted_inputs(request) or thresholds_changed(run, request)


def refusal_to_close(step: Transition, request: Request) -> str:
    """Return why the request cannot be closed now, or an empty text."""
    return data_quality_of(request).refusal_to_close(step)


def _why_only_in_part(quality: DataQuality) -> str:
    """Return why a request cannot be done but partially done, or an empty text."""
    if quality.accepted:
        names = ", ".join(acceptance.stage.name for acceptance in quality.accepted)
        return (
            f"{names} was accepted as is, without jobs that did not complete. Close the request "
            "as partially done."
        )
    if quality.not_produced:
        summaries = "; ".join(events.summary for events in quality.not_produced)
        return f"{summaries}. Close the request as partially done."
    if quality.in_part:
        return "a waiver says that the request is partially done."
    return ""
