"""Past jobs of the same stages, for estimates, in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.accounts.models import Experiment
from apps.production.domain.content.model import (
    STAGE_FIELDS,
    RequestContent,
    StageContent,
    values_of,
)
from apps.production.domain.content.stage_names import synonyms_of
from apps.production.domain.estimates.figures import (
    Estimate,
    PastStage,
    Range,
    StageEstimate,
    estimate,
    estimate_stages,
    jobs_at_once,
)
from apps.production.domain.experiment_shares import Shares, read_shares
from apps.production.domain.outputs.datasets import find_datasets
from apps.production.models import Request, Stage, StageHistory

#: How many of the newest past stages an estimate uses at most.
MOST_PAST = 200
_COPIED = [field.name for field in fields(PastStage) if field.name != "request_key"]
#: Columns to read of a past stage, and columns for the number of jobs at once. Reading model
#: instances would take longer.
_READ = ("name", *_COPIED, "key")
_PACE = ("completed", "completed_wall_seconds", "per_day")
#: A join would read the requests of all rows; the subquery only requests of kept rows.
_KEY = Subquery(Request.objects.filter(pk=OuterRef("request")).values("key"))


def estimate_for(
    content: RequestContent,
    experiment: Experiment,
    at: datetime,
    *,
    without: Request | None = None,
    shares: Shares | None = None,
    own: str = "",
) -> Estimate:
    """Return the estimate, counted from today, without expected start.

    Jobs of the request `without` do not count, so that the estimate can be compared with them.
    Those of the started request with the key `own` count first. The shares are read unless given.
    """
    past = past_stages(stage_names(content.stages), experiment, without)
    outputs = {past_stage.output_dataset for past_stage in chain.from_iterable(past.values())}
    datasets, _ = find_datasets(outputs - {""})
    today = timezone.localdate(at)
    at_once = past_at_once(experiment, shares)
    return estimate(
        content, past=past, datasets=datasets or {}, today=today, at_once=at_once, own=own
    )


def past_of_stages(stages: Sequence[Stage], experiment_id: int) -> dict[int, StageEstimate]:
    """Return estimates for stages of one experiment by primary key, in two queries.

    Disk use is left out.
    """
    contents = [StageContent(**values_of(stage, STAGE_FIELDS)) for stage in stages]
    past = past_stages(stage_names(contents), experiment_id)
    at_once = past_at_once(experiment_id)
    estimates = estimate_stages(contents, past=past, datasets={}, at_once=at_once)
    return {stage.pk: estimate for stage, estimate in zip(stages, estimates, strict=True)}


def estimates_of(
    contents: Mapping[int, tuple[RequestContent, int]], at: datetime
) -> dict[int, Estimate]:
    """Return an estimate by primary key of each request, in a fixed number of queries.

    `contents` has the content of each request and the primary key of its experiment.
    """
    experiments = {experiment for _, experiment in contents.values()}
    names = set[str]().union(*(stage_names(content.stages) for content, _ in contents.values()))
    newest = _newest_of_each(experiments, _PACE)
    shares = read_shares()
    at_once = {}
    for experiment in experiments:
        at_once[experiment] = jobs_at_once(newest[experiment]) or _cores_at_once(
            shares.cores(experiment)
        )

    past: dict[int, dict[str, list[PastStage]]] = {}
    for experiment in experiments:
        past[experiment] = defaultdict(list)
    written: set[str] = set()
    for experiment, rows in _newest_of_each(experiments, _READ, name__in=names).items():
        for history in rows:
            past_stage = _as_past_stage(history)
            past[experiment][history.name].append(past_stage)
            written.add(past_stage.output_dataset)
    datasets = find_datasets(written - {""})[0] or {}

    today = timezone.localdate(at)
    estimates = {}
    for pk, (content, experiment) in contents.items():
        estimates[pk] = estimate(
            content,
            past=past[experiment],
            datasets=datasets,
            today=today,
            at_once=at_once[experiment],
        )
    return estimates


def _newest_of_each(
    experiment_pks: Iterable[int], read: Sequence[str], **matching: Any
) -> dict[int, list[Any]]:
    """Read columns of the newest past stages by experiment, in one query.

    At most `MOST_PAST` stages are read for each experiment.
    """
    place = Window(RowNumber(), partition_by=F("experiment_id"), order_by=F("last_ended_at").desc())
    histories = StageHistory.objects.filter(experiment__in=experiment_pks, **matching).annotate(
        key=_KEY, place=place
    )
    newest: dict[int, list[Any]] = defaultdict(list)
    for history in (
        histories.filter(place__lte=MOST_PAST)
        .order_by("place")
        .values_list("experiment_id", *read, named=True)
    ):
        newest[history.experiment_id].append(history)
    return newest


def stage_names(stages: Iterable[StageContent]) -> set[str]:
    """Return the names of the stages and their synonyms, in lower case."""
    names: set[str] = set()
    for stage in stages:
        if stage.name and "\0" not in stage.name:
            names.update(synonyms_of(stage.name))
    return names


def past_stages(
    names: set[str], experiment: Experiment | int, without: Request | None = None
) -> Mapping[str, list[PastStage]]:
    stages: dict[str, list[PastStage]] = defaultdict(list)
    rows = _newest(experiment).filter(name__in=names).annotate(key=_KEY)
    if without is not None:
        rows = rows.exclude(request=without)
    if names:
        for history in rows.values_list(*_READ, named=True)[:MOST_PAST]:
            stages[history.name].append(_as_past_stage(history))
    return stages


def past_at_once(experiment: Experiment | int, shares: Shares | None = None) -> Range | None:
    """Return how many jobs of an experiment ran at once in its newest stages.

    Without past stages, return its share of the cores, from `shares` if given.
    """
    if isinstance(experiment, Experiment):
        pk = experiment.pk
    else:
        pk = experiment
    newest: list[Any] = list(_newest(experiment).values_list(*_PACE, named=True)[:MOST_PAST])
    at_once = jobs_at_once(newest)
    if at_once is None:
        at_once = _cores_at_once((shares or read_shares()).cores(pk))
    return at_once


def _cores_at_once(cores: float | None) -> Range | None:
    """Return how many jobs of one core run at once on a share of the cores, at least one."""
    if not cores:
        return None
    share = max(1.0, cores)
    return Range(share, share, share)


def _newest(experiment: Experiment | int) -> QuerySet[StageHistory]:
    return StageHistory.objects.filter(experiment=experiment).order_by("-last_ended_at")


def _as_past_stage(history: Any) -> PastStage:
    return PastStage(
        request_key=history.key,
        release=history.release,
        configuration=history.configuration,
        output_dataset=history.output_dataset,
        events_per_job=history.events_per_job,
        completed=history.completed,
        core_seconds=history.core_seconds,
        completed_wall_seconds=history.completed_wall_seconds,
        wall_seconds=tuple(history.wall_seconds),
        memory_bytes=tuple(history.memory_bytes),
        per_day=tuple(history.per_day),
    )
