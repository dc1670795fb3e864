"""The production report of a request: efficiency, failures, waste, sites, slowest jobs.

It is frozen when the request is closed.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Aggregate, Count, F, FloatField, Max, Q, QuerySet, Sum

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.datasets.models import FileTotals, OutputTotals
from apps.diagnosis.models import Verdict
from apps.jobs.domain.collection.outside_production import (
    JobsOutsideProduction,
    count_outside_production,
)
from apps.jobs.enums import FAILED_STATES
from apps.jobs.models import Job
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.models import Request, StageAcceptance
from apps.progress.models import ProductionReport
from apps.submission.domain.arrays.stage_events import events_not_produced
from apps.submission.domain.arrays.submissions import count_completed_twice, count_retried_jobs

#: Maximum number of rows in the tables of causes, sites and slowest jobs.
MOST = 20
_DONE = Q(state=JobState.COMPLETED)
_FAILED = Q(state__in=sorted(state.value for state in FAILED_STATES))
_CORES = F("wall_seconds") * F("cpus")


class _Percentile(Aggregate):
    function = "PERCENTILE_CONT"
    template = "%(function)s(%(fraction)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


def report_of(request: Request, *, at: datetime) -> dict[str, Any]:
    """Return the current report as plain JSON values, in a fixed number of queries."""
    jobs = Job.objects.filter(request=request).order_by()
    names = request.stages.order_by("position").values_list("name", flat=True)
    chain = {name: place for place, name in enumerate(names)}
    stages: list[dict[str, Any]] = [
        dict(stage) for stage in jobs.values("stage").annotate(**_sums())
    ]
    stages.sort(key=lambda stage: (chain.get(stage["stage"], len(chain)), stage["stage"]))
    retried_by_stage = count_retried_jobs([request.pk])
    for stage in stages:
        stage["retried"] += retried_by_stage.get((request.pk, chain.get(stage["stage"], -1)), 0)
    total = jobs.aggregate(**_sums())
    total["retried"] += sum(retried_by_stage.values())
    _count_completed_once(request, stages, chain, retried_by_stage)
    total["completed_jobs"] = sum(stage["completed_jobs"] for stage in stages)
    sites: list[dict[str, Any]] = [
        dict(site) for site in jobs.values("site__name").annotate(**_sums())
    ]
    sites.sort(key=lambda site: (-site["jobs"], site["site__name"] or ""))
    accepted_stages = []
    accepted = acceptances_of([request])
    for acceptance in accepted.values():
        accepted_stages.append(
            {
                "stage": acceptance.stage.name,
                "by": acceptance.by,
                "reason": acceptance.reason,
                "jobs_missing": acceptance.jobs_missing,
            }
        )
    return {
        "request": request.key,
        "title": request.title,
        "experiment": request.experiment.key,
        "state": request.state,
        "as_of": at.isoformat(),
        "total": _figures(total),
        "stages": [{"stage": stage["stage"], **_figures(stage)} for stage in stages],
        "sites": [{"site": site["site__name"] or "", **_figures(site)} for site in sites[:MOST]],
        "causes": _causes(request),
        "taken_as_they_are": accepted_stages,
        "events_not_produced": _events_not_produced(request, accepted),
        "files": _files(request),
        "slowest": _slowest(jobs),
    }


@transaction.atomic
def freeze_report(*, request: Request, at: datetime) -> ProductionReport:
    """Store the current report under the hash of its content. An existing report is kept."""
    Request.objects.select_for_update().get(pk=request.pk)
    kept = ProductionReport.objects.filter(request=request).first()
    if kept is not None:
        return kept
    content = json.dumps(
        report_of(request, at=at), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    digest = digest_of(content)
    report = ProductionReport.objects.create(
        request=request, sha256=digest, content=content, frozen_at=at
    )
    publish(kind="report.frozen", target=report, by="opsportal", at=at, new=digest)
    return report


def read_frozen(report: ProductionReport) -> dict[str, Any]:
    """Return the content of a frozen report. Raises `ValueError` if it does not match its hash."""
    if digest_of(report.content) != report.sha256:
        raise ValueError(f"{report} was changed: its content does not match its hash")
    content: dict[str, Any] = json.loads(report.content)
    return content


def digest_of(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _sums() -> dict[str, Any]:
    return {
        "jobs": Count("pk"),
        "completed": Count("pk", filter=_DONE),
        "failed": Count("pk", filter=_FAILED),
        "retried": Count("pk", filter=Q(attempt__gt=1)),
        "core": Sum(_CORES),
        "lost": Sum(_CORES, filter=~_DONE),
        "cpu": Sum("cpu_seconds"),
        "p50": _Percentile("wall_seconds", fraction="0.5", filter=_DONE),
        "p95": _Percentile("wall_seconds", fraction="0.95", filter=_DONE),
        "longest": Max("wall_seconds", filter=_DONE),
    }


def _count_completed_once(
    request: Request,
    stages: Sequence[dict[str, Any]],
    chain: Mapping[str, int],
    retried_by_stage: Mapping[tuple[int, int], int],
) -> None:
    """Set `completed_jobs` of the stages as the progress does: each production job counts once."""
    outside = count_outside_production([request])
    retried = {}
    for stage in stages:
        others = outside.pop((request.key, stage["stage"].casefold()), JobsOutsideProduction())
        stage["completed_jobs"] = max(0, stage["completed"] - others.completed)
        key = request.pk, chain.get(stage["stage"], -1)
        if stage["completed_jobs"] and key in retried_by_stage:
            retried[key] = stage
    if not retried:
        return
    twice = count_completed_twice({key: stage["completed_jobs"] for key, stage in retried.items()})
    for key, stage in retried.items():
        stage["completed_jobs"] -= twice[key]


def _figures(sums: Mapping[str, Any]) -> dict[str, Any]:
    """Return rounded figures. Wall times are of completed jobs, in seconds.

    `jobs`, `completed`, `failed` and `interrupted` count attempts. `completed_jobs` counts each
    production job once; sites do not have it.
    """
    core = sums["core"] or 0
    cpu = sums["cpu"] or 0
    once = {}
    if "completed_jobs" in sums:
        once["completed_jobs"] = sums["completed_jobs"]
    return {
        **once,
        "jobs": sums["jobs"],
        "completed": sums["completed"],
        "failed": sums["failed"],
        "interrupted": sums["jobs"] - sums["completed"] - sums["failed"],
        "retried": sums["retried"],
        "core_hours": round(core / 3600, 2),
        "wasted_core_hours": round((sums["lost"] or 0) / 3600, 2),
        "efficiency": round(cpu / core, 4) if core else None,
        "wall_p50": None if sums["p50"] is None else round(sums["p50"]),
        "wall_p95": None if sums["p95"] is None else round(sums["p95"]),
        "wall_max": sums["longest"],
    }


def _causes(request: Request) -> list[dict[str, Any]]:
    cores = F("job__wall_seconds") * F("job__cpus")
    rows = (
        Verdict.objects.filter(job__request=request)
        .order_by()
        .values("verdict", "cause", "service")
        .annotate(jobs=Count("pk"), core=Sum(cores))
        .order_by("-jobs", "verdict", "cause", "service")
    )
    causes = []
    for row in rows[:MOST]:
        causes.append(
            {
                "verdict": row["verdict"],
                "cause": row["cause"],
                "service": row["service"],
                "jobs": row["jobs"],
                "core_hours": round((row["core"] or 0) / 3600, 2),
            }
        )
    return causes


def _events_not_produced(
    request: Request, accepted: Mapping[int, StageAcceptance]
) -> list[dict[str, Any]]:
    """Return the stages that lack events. `produced` is None while jobs may still produce some."""
    rows = []
    for events in events_not_produced([request], accepted).get(request.pk, ()):
        rows.append(
            {
                "stage": events.stage.name,
                "requested": events.requested,
                "produced": events.produced,
                "not_produced": events.not_produced,
                "jobs_in_part": events.jobs_in_part,
            }
        )
    return rows


def _files(request: Request) -> list[dict[str, Any]]:
    """Return the input and output files of each stage whose files the portal follows."""
    ledgers = FileTotals.objects.filter(stage__request=request)
    rows = []
    for totals in ledgers.select_related("stage__output_totals").order_by("stage__position"):
        written = getattr(totals.stage, "output_totals", OutputTotals())
        rows.append(
            {
                "stage": totals.stage.name,
                "number": totals.stage.position + 1,
                "files_in": totals.files,
                "done": totals.done,
                "given_up": totals.given_up,
                "missing": totals.unfinished,
                "files_out": written.counting_files,
                "events_out": written.counting_events,
                "bytes_out": written.counting_bytes,
            }
        )
    return rows


def _slowest(jobs: QuerySet[Job]) -> list[dict[str, Any]]:
    done = jobs.filter(_DONE).select_related("cluster").order_by("-wall_seconds", "pk")
    slowest = []
    for job in done[:MOST]:
        slowest.append(
            {
                "id": job.pk,
                "job": job.job_id,
                "cluster": job.cluster.name,
                "stage": job.stage,
                "host": job.host,
                "wall": job.wall_seconds,
            }
        )
    return slowest
