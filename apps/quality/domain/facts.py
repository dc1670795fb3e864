"""Gathering what is known of a request's output: from roll-ups, counts and posts, in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count, F, Max, Min, QuerySet, Sum, Window
from django.db.models.functions import RowNumber
from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.jobs.enums import ANY_FAILURE
from apps.production.domain.checks.fact_queries import UNCLAIMED
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import QUANTITIES, OutputCounts, counts_of
from apps.production.domain.outputs.datasets import CatalogueError, catalogue_of
from apps.production.models import Request, Stage
from apps.progress.domain.stage_counts import StageProgress, progress_of
from apps.quality.checks.facts import Catalogued, Facts, Files, Histogram, JobSums, LogSample, Posted, StageFacts
from apps.quality.domain.log_samples import samples_of
from apps.quality.enums import Outcome
from apps.quality.models import ExternalResult, HistogramPair, OutputFile, QualityInput

#: So many of the smallest and of the largest files are known by name, and so many doubles.
EXTREMES = 20


def ask_catalogue(request: Request) -> tuple[dict[str, Catalogued], str]:
    """Return what the catalogue of datasets knows of the outputs, or why it cannot be asked. Not in a transaction."""
    names = {stage.output_dataset for stage in request.stages.all()} - {""}
    try:
        catalogue = catalogue_of(settings.DATASET_CATALOGUE)
        found = catalogue.find(names) if catalogue else {}
    except CatalogueError as error:
        return {}, f"The catalogue cannot be asked: {error}"
    except Exception as error:  # a third party's catalogue may raise anything
        return {}, f"The catalogue cannot be asked ({type(error).__name__})."
    return {name: Catalogued(name=name, files=one.files, events=one.events) for name, one in found.items()}, ""


def gather(request: Request, *, catalogued: Mapping[str, Catalogued], catalogue_error: str = "") -> Facts:
    """Return all that the checks may know."""
    rows = [row for row in progress_of(request) if row.asked]
    counts, files, logs = counts_of(request), _files(request), samples_of(request)
    accepted = acceptances_of([request])
    histograms, posted, others = _histograms(request), _posted(request), _also_written(request)
    stages = []
    for row in rows:
        stage: Stage = row.asked  # type: ignore[assignment]
        known = _of_stage(stage, row, counts.get(stage.pk, OutputCounts()), files.get(stage.pk))
        stages.append(
            StageFacts(
                **known,
                histograms=histograms.get(stage.pk, ()),
                posted=posted.get(stage.pk, ()),
                logs=logs.get(stage.name.casefold(), LogSample()),
                catalogued=catalogued.get(stage.output_dataset),
                also_written_by=others.get(stage.output_dataset, ()),
                accepted=accepted[stage.pk].told if stage.pk in accepted else "",
            )
        )
    return Facts(
        request=request.key,
        experiment=request.experiment.key,
        workflow=request.workflow.type.key,
        stages=tuple(stages),
        posted=posted.get(None, ()),
        catalogue_error=catalogue_error,
        links=_links(request, rows),
    )


def inputs_of(request: Request) -> dict[str, Any]:
    """Return what a run rests on, to be compared with what there is later: counts, posts and jobs."""
    jobs = {row.stage.casefold(): [row.sums.jobs, row.sums.completed, row.sums.failed] for row in progress_of(request)}
    return {**posted_inputs(request), "jobs": jobs}


def posted_inputs(request: Request) -> dict[str, Any]:
    """Return the part of `inputs_of` that is reported and posted."""
    counts = {
        str(pk): [known.reports, *(getattr(known, name) for name in QUANTITIES)]
        for pk, known in counts_of(request).items()
    }
    revision = QualityInput.objects.filter(request=request).values_list("revision", flat=True).first()
    return {"counts": counts, "posted": revision or 0}


def _of_stage(stage: Stage, row: StageProgress, counted: OutputCounts, files: Files | None) -> dict[str, Any]:
    return {
        "position": stage.position,
        "name": stage.name,
        "kind": stage.kind,
        "jobs_asked": stage.jobs,
        "events_asked": stage.events,
        "input_dataset": stage.input_dataset,
        "output_dataset": stage.output_dataset,
        "arguments": dict(stage.arguments),
        "files_in": counted.files_in,
        "events_in": counted.events_in,
        "files_out": counted.files_out,
        "events_out": counted.events_out,
        "reports": counted.reports,
        "jobs": JobSums(
            ended=row.sums.jobs,
            completed=row.sums.completed,
            failed=row.sums.failed,
            retried=row.sums.retried,
            delivered=row.completed,
            tests=row.left_out.tests,
        ),
        "files": files,
    }


def _links(request: Request, rows: list[StageProgress]) -> dict[str, str]:
    jobs, links = reverse("jobs:list"), {}
    for row in rows:
        of_stage = {"request": request.key, "stage": row.stage}
        position = row.asked.position if row.asked else 0
        links[f"jobs:{position}"] = f"{jobs}?{urlencode(of_stage)}"
        links[f"failed:{position}"] = f"{jobs}?{urlencode({'state': ANY_FAILURE, **of_stage})}"
        links[f"completed:{position}"] = f"{jobs}?{urlencode({'state': JobState.COMPLETED.value, **of_stage})}"
    return links


def _files(request: Request) -> dict[int, Files]:
    mine = OutputFile.objects.filter(stage__request=request).order_by()
    sums = mine.values("stage").annotate(
        count=Count("name", distinct=True), size=Sum("size_bytes"), rows=Count("pk"),
        least=Min("size_bytes"), most=Max("size_bytes"),
    )  # fmt: skip
    extremes, twice, elsewhere = _extremes(mine), _twice(mine), _elsewhere(request, mine)
    return {
        row["stage"]: Files(
            count=row["count"],
            size_bytes=row["size"] * row["count"] // row["rows"],
            smallest_bytes=row["least"],
            largest_bytes=row["most"],
            sizes=tuple(extremes[row["stage"]]),
            twice=tuple(twice[row["stage"]][:EXTREMES]),
            twice_count=len(twice[row["stage"]]),
            elsewhere=tuple(elsewhere[row["stage"]][:EXTREMES]),
            elsewhere_count=len(elsewhere[row["stage"]]),
        )
        for row in sums
    }


def _extremes(mine: QuerySet[OutputFile]) -> dict[int, list[tuple[str, int]]]:
    """Return the smallest and the largest files of each stage."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for order in (F("size_bytes").asc(), F("size_bytes").desc()):
        rank = Window(RowNumber(), partition_by="stage", order_by=[order, F("name").asc()])
        rows = mine.annotate(rank=rank).filter(rank__lte=EXTREMES).order_by("stage", "rank")
        for stage, name, size in rows.values_list("stage", "name", "size_bytes"):
            if (name, size) not in found[stage]:
                found[stage].append((name, size))
    return found


def _twice(mine: QuerySet[OutputFile]) -> dict[int, list[str]]:
    """Return the names that several reporters, or several stages, have named."""
    doubles = mine.values("name").annotate(times=Count("pk")).filter(times__gt=1).values("name")
    found: dict[int, list[str]] = defaultdict(list)
    for stage, name in mine.filter(name__in=doubles).order_by("stage", "name").values_list("stage", "name").distinct():
        found[stage].append(name)
    return found


def _elsewhere(request: Request, mine: QuerySet[OutputFile]) -> dict[int, list[tuple[str, str]]]:
    """Return the names that other requests of the experiment have named too, with one of these."""
    others = OutputFile.objects.filter(stage__request__experiment=request.experiment_id).exclude(stage__request=request)
    shared = others.filter(name__in=mine.values("name")).exclude(stage__request__state__in=UNCLAIMED)
    by_name: dict[str, str] = dict(shared.order_by("-pk").values_list("name", "stage__request__key"))
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    if by_name:
        for stage, name in mine.filter(name__in=by_name).values_list("stage", "name").distinct():
            found[stage].append((name, by_name[name]))
    for rows in found.values():
        rows.sort()
    return found


def _histograms(request: Request) -> dict[int, tuple[Histogram, ...]]:
    found: dict[int, list[Histogram]] = defaultdict(list)
    for row in HistogramPair.objects.filter(stage__request=request).order_by("stage", "name"):
        found[row.stage_id].append(
            Histogram(
                name=row.name,
                edges=tuple(row.edges),
                reference=tuple(row.reference),
                observed=tuple(row.observed),
                link=row.link,
                by=row.by,
            )
        )
    return {stage: tuple(rows) for stage, rows in found.items()}


def _posted(request: Request) -> dict[int | None, tuple[Posted, ...]]:
    found: dict[int | None, list[Posted]] = defaultdict(list)
    for row in ExternalResult.objects.filter(request=request).order_by("name"):
        found[row.stage_id].append(
            Posted(
                name=row.name,
                outcome=Outcome(row.outcome),
                why=row.why,
                value=row.value,
                threshold=row.threshold,
                link=row.link,
                by=row.by,
            )
        )
    return {stage: tuple(rows) for stage, rows in found.items()}


def _also_written(request: Request) -> dict[str, tuple[str, ...]]:
    """Return which other requests of the experiment write to the same datasets."""
    mine = request.stages.exclude(output_dataset="").values("output_dataset")
    others = Stage.objects.filter(request__experiment=request.experiment_id, output_dataset__in=mine)
    others = others.exclude(request=request).exclude(request__state__in=UNCLAIMED)
    found: dict[str, list[str]] = defaultdict(list)
    for name, key in others.order_by("request__key").values_list("output_dataset", "request__key").distinct():
        found[name].append(key)
    return {name: tuple(keys) for name, keys in found.items()}
