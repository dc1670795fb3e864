"""Lets the demo's data quality be judged: what was reported and posted, the checks, and waivers."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from apps.accounts.models import User
from apps.production.domain.outputs.counts import count_reports, report_output
from apps.production.enums import PORTAL
from apps.production.models import Request, Stage
from apps.quality.domain import posts, runs
from apps.quality.domain.standing import Rated, standing_of

_EDGES = [0.1 * n for n in range(11)]
#: Energy and angle of the electrons: the reference, and what was made.
_HISTOGRAMS = {
    "energy, GeV": (
        [180, 410, 640, 850, 1010, 1080, 990, 820, 560, 260],
        [91, 199, 328, 418, 511, 532, 500, 407, 284, 128],
    ),
    "cosine of the angle": (
        [220, 260, 310, 380, 470, 590, 740, 930, 1170, 1480],
        [109, 131, 152, 194, 240, 281, 362, 455, 555, 880],
    ),
}


def judge(*, request: Request, by: User, at: datetime, reason: str) -> None:
    """Report what was asked for as produced, run the checks, and waive what they do not know."""
    for stage in _stages(request):
        _report(stage, by, at - timedelta(minutes=30))
    for one in _run(request, at - timedelta(minutes=20)):
        runs.waive_result(request=request, result=one.result.pk, by=by, at=at, reason=reason)


def look(*, request: Request, users: Mapping[str, User], at: datetime) -> None:
    """Let some of it be good, some not: lost events, a file named twice, a histogram that is off."""
    first, second = _stages(request)
    by, soon = users["nova-second"], at + timedelta(minutes=5)
    _report(first, by, soon)
    _report(second, by, soon, events_out=398_000, files_out=199)
    files = [posts.NamedFile(f"fd_electron_{n:04d}.root", 148_000_000 + 7_919 * n) for n in range(199)]
    posts.name_files(stage=second, key="all jobs", files=files, by=by, at=soon)
    posts.name_files(stage=second, key="job 17, retried", files=files[17:18], by=by, at=soon)
    for name, (reference, observed) in _HISTOGRAMS.items():
        posts.post_histogram(
            stage=second, name=name, edges=_EDGES, reference=reference, observed=observed, by=by, at=soon
        )
    why = "Two of 896 readout boards are above 1.5 times the usual occupancy."
    posts.post_result(
        request=request, stage=second, name="event display/occupancy", outcome="warned", why=why, value=0.0022,
        threshold=0.002, by=by, at=soon,
    )  # fmt: skip
    for one in _run(request, at + timedelta(minutes=10)):
        if one.result.check_name in {"missing_jobs", "failure_fraction"}:
            reason = "Its jobs ran before the portal collected those of this farm; the log book lists them all."
            when = at + timedelta(minutes=50)
            runs.waive_result(request=request, result=one.result.pk, by=users["approver"], at=when, reason=reason)


def _stages(request: Request) -> list[Stage]:
    return list(request.stages.select_related("request__experiment").order_by("position"))


def _report(stage: Stage, by: User, at: datetime, **changes: int) -> None:
    counts = {"files_out": stage.jobs, "events_out": stage.events, "files_in": stage.jobs, "events_in": stage.events}
    report_output(stage=stage, key="all jobs", counts={**counts, **changes}, by=by, at=at)
    count_reports(at=at)


def _run(request: Request, at: datetime) -> list[Rated]:
    """Run the checks, and return what stands in the way."""
    runs.ask_for_run(request=request, by=PORTAL, at=at)
    runs.run_checks(request=request, at=at)
    return standing_of(request).open
