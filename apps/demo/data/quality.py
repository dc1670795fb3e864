"""The demo's data quality: output reports (see `quality.yaml`), runs of the checks, and waivers."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from apps.accounts.models import User
from apps.datasets.domain.output_files import NamedFile
from apps.production.domain.outputs.counts import count_reports, report_output
from apps.production.enums import PORTAL
from apps.production.models import Request, Stage
from apps.quality.checks.facts import Histogram, Posted
from apps.quality.domain import posts, runs
from apps.quality.domain.data_quality import data_quality_of
from apps.quality.models import QualityResult

_EDGES = [0.1 * n for n in range(11)]
_FAULTY = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def report_all_output(*, request: Request, by: User, at: datetime, reason: str) -> None:
    """Report all requested output as produced, run the checks, and waive unknown results."""
    for stage in _stages(request):
        _report(stage, by, at - timedelta(minutes=30))
    for result in _run(request, at - timedelta(minutes=20)):
        runs.waive_result(request=request, result=result.pk, by=by, at=at, reason=reason)


def report_faulty_output(*, request: Request, users: Mapping[str, User], at: datetime) -> None:
    """Report partly faulty output, and waive one of its results."""
    first, second = _stages(request)
    by = users["nova-second"]
    soon = at + timedelta(minutes=5)
    _report(first, by, soon)
    _report(second, by, soon, **_FAULTY["counts"])
    files = []
    for n in range(199):
        files.append(NamedFile(f"fd_electron_{n:04d}.root", 148_000_000 + 7_919 * n))
    posts.name_files(stage=second, key="all jobs", files=files, by=by, at=soon)
    posts.name_files(stage=second, key="job 17, retried", files=files[17:18], by=by, at=soon)
    for histogram in _FAULTY["histograms"]:
        posts.post_histogram(
            stage=second, posted=Histogram(edges=_EDGES, **histogram), by=by, at=soon
        )
    posts.post_result(
        request=request, stage=second, posted=Posted(**_FAULTY["result"]), by=by, at=soon
    )
    waiver = _FAULTY["waiver"]
    for result in _run(request, at + timedelta(minutes=10)):
        if result.check_name in waiver["checks"]:
            when = at + timedelta(minutes=50)
            runs.waive_result(
                request=request,
                result=result.pk,
                by=users["approver"],
                at=when,
                reason=waiver["reason"],
            )


def _stages(request: Request) -> list[Stage]:
    return list(request.stages.select_related("request__experiment").order_by("position"))


def _report(stage: Stage, by: User, at: datetime, **changes: int) -> None:
    counts = {
        "files_out": stage.jobs,
        "events_out": stage.events,
        "files_in": stage.jobs,
        "events_in": stage.events,
    }
    report_output(stage=stage, key="all jobs", counts={**counts, **changes}, by=by, at=at)
    count_reports(at=at)


def _run(request: Request, at: datetime) -> list[QualityResult]:
    """Run the checks and return the results that block the request."""
    runs.ask_for_run(request=request, by=PORTAL, at=at)
    runs.run_checks(request=request, at=at)
    return data_quality_of(request).open
