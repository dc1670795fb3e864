"""The facts about a request's output, from totals, counts and posts.

The number of queries is fixed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count, F, Max, Min, QuerySet, Sum, Window
from django.db.models.functions import RowNumber
from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.datasets.domain.output_files import revisions_of
from apps.datasets.models import OutputFile
from apps.jobs.enums import ANY_FAILURE
from apps.production.domain.content.model import values_of
from apps.production.domain.content.scan import read_scan
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import QUANTITIES, counts_of
from apps.production.domain.outputs.datasets import CatalogueError, Dataset, catalogue_of
from apps.production.enums import UNCLAIMED
from apps.production.models import Request, Stage, StageCounts
from apps.progress.domain.stage_counts import StageProgress, progress_of
from apps.quality.checks.facts import (
    Catalogued,
    Facts,
    Files,
    Histogram,
    JobSums,
    LogSample,
    Posted,
    StageFacts,
)
from apps.quality.domain.log_samples import samples_of
from apps.quality.enums import Outcome
from apps.quality.models import ExternalResult, HistogramPair, QualityInput

#: How many of the smallest files, the largest files and the duplicates are named.
EXTREMES = 20


def ask_catalogue(request: Request) -> tuple[dict[str, Catalogued], str]:
    """Return the outputs in the dataset catalogue, or why it cannot be queried.

    Call it outside a transaction.
    """
    written = {stage.output_dataset for stage in request.stages.all()} - {""}
    points = read_scan(request.scan).points
    datasets = {}
    for name in written:
        datasets[name] = {point.text(name) for point in points} or {name}
    try:
        catalogue = catalogue_of(settings.DATASET_CATALOGUE)
        if catalogue:
            catalogued = catalogue.find(set().union(*datasets.values()))
        else:
            catalogued = {}
    except CatalogueError as error:
        return {}, f"The catalogue cannot be queried: {error}"
    except Exception as error:  # A third-party catalogue may raise anything.
        return {}, f"The catalogue cannot be queried ({type(error).__name__})."

    totals = {}
    for output, names in datasets.items():
        rows = []
        for name in sorted(names):
            if name in catalogued:
                rows.append(catalogued[name])
        if len(rows) == len(names):
            totals[output] = _sum_datasets(output, rows)
    return totals, ""


def _sum_datasets(name: str, datasets: Sequence[Dataset]) -> Catalogued:
    """Return the totals of datasets, such as the datasets of the points of a scan.

    A total is None if a part is unknown.
    """

    def total(counts: list[int | None]) -> int | None:
        return None if None in counts else sum(filter(None, counts))

    files = total([dataset.files for dataset in datasets])
    events = total([dataset.events for dataset in datasets])
    return Catalogued(name=name, files=files, events=events)


def gather_facts(
    request: Request, *, catalogued: Mapping[str, Catalogued], catalogue_error: str = ""
) -> Facts:
    """Return the facts for the checks."""
    rows = [
        stage_progress for stage_progress in progress_of(request) if stage_progress.requested_stage
    ]
    counts = counts_of(request)
    files = _files(request)
    logs = samples_of(request)
    accepted = acceptances_of([request])
    histograms = _histograms(request)
    posted = _posted(request)
    others = _other_writers(request)
    stages = []
    for stage_progress in rows:
        stage: Stage = stage_progress.requested_stage  # type: ignore[assignment]
        counted = counts.get(stage.pk, StageCounts())
        stages.append(
            StageFacts(
                position=stage.position,
                name=stage.name,
                kind=stage.kind,
                input_dataset=stage.input_dataset,
                jobs_requested=stage.jobs,
                events_requested=stage.events,
                output_dataset=stage.output_dataset,
                arguments=dict(stage.arguments),
                **values_of(counted, (*QUANTITIES, "reports")),
                jobs=JobSums(
                    ended=stage_progress.sums.jobs,
                    completed=stage_progress.sums.completed,
                    failed=stage_progress.sums.failed,
                    retried=stage_progress.sums.retried,
                    delivered=stage_progress.completed,
                    tests=stage_progress.outside_production.tests,
                ),
                files=files.get(stage.pk),
                histograms=tuple(histograms[stage.pk]),
                posted=tuple(posted[stage.pk]),
                logs=logs.get(stage.name.casefold(), LogSample()),
                catalogued=catalogued.get(stage.output_dataset),
                also_written_by=tuple(others[stage.output_dataset]),
                accepted=accepted[stage.pk].summary if stage.pk in accepted else "",
            )
        )
    return Facts(
        request=request.key,
        experiment=request.experiment.key,
        workflow=request.workflow.type.key,
        stages=tuple(stages),
        posted=tuple(posted[None]),
        catalogue_error=catalogue_error,
        links=_links(request, rows),
    )


def inputs_of(request: Request) -> dict[str, Any]:
    """Return the basis of a run, to detect later changes: counts, posts and jobs."""
    jobs = {}
    for stage_progress in progress_of(request):
        jobs[stage_progress.stage.casefold()] = [
            stage_progress.sums.jobs,
            stage_progress.sums.completed,
            stage_progress.sums.failed,
        ]
    return {**posted_inputs(request), "jobs": jobs}


def posted_inputs(request: Request) -> dict[str, Any]:
    """Return the reported and posted part of `inputs_of`."""
    counts = {}
    for pk, known in counts_of(request).items():
        counts[str(pk)] = [known.reports, *(getattr(known, name) for name in QUANTITIES)]
    revision = (
        QualityInput.objects.filter(request=request).values_list("revision", flat=True).first()
    )
    return {"counts": counts, "posted": revision or 0, "files": revisions_of(request.pk)}


def _links(request: Request, stages: list[StageProgress]) -> dict[str, str]:
    jobs = reverse("jobs:list")
    links = {}
    for stage_progress in stages:
        of_stage = {"request": request.key, "stage": stage_progress.stage}
        position = stage_progress.requested_stage.position if stage_progress.requested_stage else 0
        links[f"jobs:{position}"] = f"{jobs}?{urlencode(of_stage)}"
        links[f"failed:{position}"] = f"{jobs}?{urlencode({'state': ANY_FAILURE, **of_stage})}"
        links[f"completed:{position}"] = (
            f"{jobs}?{urlencode({'state': JobState.COMPLETED.value, **of_stage})}"
        )
    return links


def _files(request: Request) -> dict[int, Files]:
    """Return the output files of each stage, by its primary key."""
    own_files = OutputFile.objects.filter(stage__request=request, counts=True).order_by()
    sums = own_files.values("stage").annotate(
        count=Count("name", distinct=True), size=Sum("size_bytes"), rows=Count("pk"),
        least=Min("size_bytes"), most=Max("size_bytes"),
    )  # fmt: skip
    twice = _names_of_duplicates(own_files)
    extremes = _extremes(own_files)
    elsewhere = _files_of_other_requests(request, own_files)
    files = {}
    for stage_sums in sums:
        stage_pk = stage_sums["stage"]
        files[stage_pk] = Files(
            count=stage_sums["count"],
            size_bytes=stage_sums["size"] * stage_sums["count"] // stage_sums["rows"],
            smallest_bytes=stage_sums["least"],
            largest_bytes=stage_sums["most"],
            sizes=tuple(extremes[stage_pk]),
            twice=tuple(twice[stage_pk][:EXTREMES]),
            twice_count=len(twice[stage_pk]),
            elsewhere=tuple(elsewhere[stage_pk][:EXTREMES]),
            elsewhere_count=len(elsewhere[stage_pk]),
        )
    return files


def _names_of_duplicates(files: QuerySet[OutputFile]) -> dict[int, list[str]]:
    """Return the names that several files have, by primary key of the stage."""
    doubles = files.values("name").annotate(times=Count("pk")).filter(times__gt=1).values("name")
    rows = files.filter(name__in=doubles).order_by("stage", "name").values_list("stage", "name")
    names: dict[int, list[str]] = defaultdict(list)
    for stage_pk, name in rows.distinct():
        names[stage_pk].append(name)
    return names


def _extremes(files: QuerySet[OutputFile]) -> dict[int, list[tuple[str, int]]]:
    """Return the smallest and the largest files, by primary key of the stage."""
    extremes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for order in (F("size_bytes").asc(), F("size_bytes").desc()):
        rank = Window(RowNumber(), partition_by="stage", order_by=[order, F("name").asc()])
        rows = files.annotate(rank=rank).filter(rank__lte=EXTREMES).order_by("stage", "rank")
        for stage_pk, name, size in rows.values_list("stage", "name", "size_bytes"):
            if (name, size) not in extremes[stage_pk]:
                extremes[stage_pk].append((name, size))
    return extremes


def _files_of_other_requests(
    request: Request, files: QuerySet[OutputFile]
) -> dict[int, list[tuple[str, str]]]:
    """Return the names of files that another request of the experiment also has, with its key.

    They are by primary key of the stage of this request.
    """
    others = OutputFile.objects.filter(
        stage__request__experiment=request.experiment_id, counts=True
    ).exclude(stage__request=request)
    shared = others.filter(name__in=files.values("name")).exclude(
        stage__request__state__in=UNCLAIMED
    )
    by_name: dict[str, str] = dict(
        shared.order_by("-pk").values_list("name", "stage__request__key")
    )
    elsewhere: dict[int, list[tuple[str, str]]] = defaultdict(list)
    if by_name:
        rows = files.filter(name__in=by_name).values_list("stage", "name").distinct()
        for stage_pk, name in rows:
            elsewhere[stage_pk].append((name, by_name[name]))
    for names_and_keys in elsewhere.values():
        names_and_keys.sort()
    return elsewhere


def _histograms(request: Request) -> Mapping[int, list[Histogram]]:
    histograms: dict[int, list[Histogram]] = defaultdict(list)
    pairs = HistogramPair.objects.filter(stage__request=request).order_by("stage", "name")
    for pair in pairs:
        fields = ("name", "edges", "reference", "observed", "link", "by")
        histograms[pair.stage_id].append(Histogram(**values_of(pair, fields)))
    return histograms


def _posted(request: Request) -> Mapping[int | None, list[Posted]]:
    posted: dict[int | None, list[Posted]] = defaultdict(list)
    results = ExternalResult.objects.filter(request=request).order_by("name")
    for result in results:
        values = values_of(result, ("name", "why", "value", "threshold", "link", "by"))
        posted[result.stage_id].append(Posted(outcome=Outcome(result.outcome), **values))
    return posted


def _other_writers(request: Request) -> Mapping[str, list[str]]:
    """Return the keys of other requests of the experiment that write to the same datasets."""
    own_outputs = request.stages.exclude(output_dataset="").values("output_dataset")
    others = Stage.objects.filter(
        request__experiment=request.experiment_id, output_dataset__in=own_outputs
    )
    others = others.exclude(request=request).exclude(request__state__in=UNCLAIMED)
    rows = others.order_by("request__key").values_list("output_dataset", "request__key")
    request_keys: dict[str, list[str]] = defaultdict(list)
    for name, key in rows.distinct():
        request_keys[name].append(key)
    return request_keys
