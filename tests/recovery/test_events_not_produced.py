"""Requests whose jobs completed with a part of their events: their end, and what reports say."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core import tasks as core_tasks
from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, make_move
from apps.production.enums import PORTAL, Verb
from apps.production.models import Request, Stage, StageAcceptance
from apps.progress.domain.production_report import read_frozen, report_of
from apps.progress.domain.transitions import complete_ended
from apps.progress.domain.weekly_report import freeze_weekly_reports
from apps.progress.models import ProductionReport, WeeklyReport
from apps.quality.domain.data_quality import data_quality_of
from apps.quality.domain.runs import close_if_passed
from apps.submission.domain.arrays.scripts import events_of_part
from apps.submission.domain.arrays.shortfalls import accept_stage
from apps.submission.domain.arrays.stage_events import count_events
from apps.submission.domain.arrays.submissions import events_in_part
from apps.submission.models import Submission
from tests.factories.requests import pass_quality
from tests.pages import text_of
from tests.recovery.conftest import LATER
from tests.recovery.test_half_events import (
    HOUR,
    MINUTE,
    decide_and_act,
    halving,
    printing,
)

__all__ = ["halving", "printing"]


@pytest.fixture
def run_stage(assignment, halving, send, fail, release):
    """Return a function that runs a stage of 6 jobs with 10 events each to its end.

    The jobs of `in_part` fail first and complete with half their events. Those of `failed` fail for
    good.
    """

    def running(*, in_part=(), failed=(), at=LATER):
        first = send(at=at)
        fail(first, set(in_part), "resource", at=at)
        if in_part:
            decide_and_act(release, at)
            fail(send(at=at + MINUTE), set(), at=at + HOUR)
        fail(send(at=at + MINUTE), set(failed), "code", at=at + HOUR)
        _attach_jobs(assignment.request)
        recompute_dirty_hours(at=at + HOUR)

    return running


def _attach_jobs(request):
    origins = {}
    for job in Job.objects.all():
        array = Submission.objects.get(cluster=job.cluster, spool_id=job.spool_id)
        origins[job.pk] = (request.key, array.stage_name)
    attach_origin(origins=origins, at=LATER)


def review(request, approver, at=LATER + 3 * HOUR):
    """Complete a request and let its data quality pass."""
    assert [row.pk for row in complete_ended(at=at)] == [request.pk]
    make_move(verb=Verb.REVIEW, request=Request.objects.get(pk=request.pk), by=PORTAL, at=at)
    pass_quality(Request.objects.get(pk=request.pk), approver, at=at)
    return Request.objects.get(pk=request.pk)


@pytest.fixture
def close(monkeypatch):
    """Return a function that closes a request, so that its report is frozen."""

    def closing(request, verb, by):
        MOVE_FUNCTIONS[verb](request=request, by=by, at=LATER + 4 * HOUR, reason="Test.")
        with monkeypatch.context() as patch:
            patch.setattr("django.utils.timezone.now", lambda: LATER + 5 * HOUR)
            for _ in range(3):
                core_tasks.deliver_waiting()

    return closing


def test_request_with_jobs_in_part_is_partially_done_and_reports_name_the_events(
    client, assignment, run_stage, close, approver, liaison
):
    run_stage(in_part={1, 2})
    run_stage(at=LATER + HOUR)
    request = review(assignment.request, approver)
    assert data_quality_of(request).in_part
    summary = "one: about 10 of 60 events were not produced"
    with pytest.raises(InvalidTransition, match=summary):
        close(request, Verb.DONE, approver)
    client.force_login(liaison)
    assert summary in text_of(client.get(f"/quality/{request.key}/"))

    close(request, Verb.DONE_PARTIAL, approver)
    assert Request.objects.get(pk=request.pk).state == "done_partial"
    report = read_frozen(ProductionReport.objects.get())
    assert report["events_not_produced"] == [
        {
            "stage": "one",
            "requested": 60,
            "produced": 50,
            "not_produced": 10,
            "jobs_in_part": 2,
        }
    ]
    page = text_of(client.get(f"/reports/requests/{request.key}/", follow=True))
    assert "one: about 10 of 60 events were not produced; 2 jobs completed with a part" in page
    answer = client.get(f"/api/v1/request-reports/{request.key}/").json()
    assert answer["report"]["events_not_produced"] == report["events_not_produced"]
    _check_weekly_report(client, Request.objects.get(pk=request.pk))


def _check_weekly_report(client, request):
    monday = request.closed_at.date() - timedelta(days=request.closed_at.weekday())
    freeze_weekly_reports(at=request.closed_at + timedelta(days=7))
    report = WeeklyReport.objects.get(monday=monday)
    (row,) = report.content["requests"]["closed"]
    assert row["state"] == "done_partial"
    assert row["events_not_produced"] == [{"stage": "one", "requested": 60, "not_produced": 10}]
    page = text_of(client.get(report.get_absolute_url()))
    assert "one: about 10 of 60 events were not produced" in page


def test_portal_closes_such_a_request_as_partially_done(assignment, run_stage, approver):
    run_stage(in_part={1})
    run_stage(in_part={0}, at=LATER + 2 * HOUR)
    request = review(assignment.request, approver, at=LATER + 5 * HOUR)
    closed = close_if_passed(request=request, at=LATER + 5 * HOUR)
    assert closed.state == "done_partial"
    reason = events_of(request).filter(kind="request.done_partial").get().reason
    assert "one: about 5 of 60 events were not produced." in reason
    assert "two: about 5 of 60 events were not produced." in reason


def test_request_whose_jobs_kept_their_events_is_done(assignment, run_stage, close, approver):
    run_stage()
    run_stage(at=LATER + HOUR)
    request = review(assignment.request, approver)
    quality = data_quality_of(request)
    assert (quality.in_part, quality.not_produced) == (False, ())
    close(request, Verb.DONE, approver)
    assert Request.objects.get(pk=request.pk).state == "done"
    assert read_frozen(ProductionReport.objects.get())["events_not_produced"] == []


def test_report_of_an_accepted_stage_counts_missing_jobs_and_jobs_in_part(
    assignment, run_stage, approver
):
    run_stage(in_part={1}, failed={0})
    (row,) = report_of(assignment.request, at=LATER)["events_not_produced"]
    assert (row["not_produced"], row["produced"]) == (5, None), "the failed job may be retried"

    accept_stage(
        request=assignment.request, position=0, by=approver, at=LATER + 2 * HOUR, reason="Enough."
    )
    (row,) = report_of(assignment.request, at=LATER)["events_not_produced"]
    assert (row["not_produced"], row["produced"], row["jobs_in_part"]) == (15, 45, 1)


@given(
    st.integers(1, 1000),
    st.lists(st.sampled_from([0, 1, 2, 4, 8, 16]), min_size=1, max_size=30),
    st.booleans(),
)
def test_produced_and_not_produced_are_what_was_requested(events_per_job, parts, accepts):
    """`parts` has a number for each job: 0 did not complete, 4 completed with a quarter."""
    completed = [part for part in parts if part and part <= events_per_job]
    if not accepts:
        parts = completed or [1]
        completed = parts
    stage = Stage(name="one", events=events_per_job * len(parts), jobs=len(parts))
    arrays = []
    produced = 0
    for part in completed:
        changes = {"events_part": part} if part > 1 else {}
        arrays.append(Submission(changes=changes, first=0, tasks=1, completed=1))
        produced += events_of_part(events_per_job, part)
    acceptance = StageAcceptance(jobs_asked=len(parts), jobs_completed=len(completed))

    events = count_events(stage, events_in_part(stage, arrays), acceptance if accepts else None)
    assert events.produced == produced
    assert events.produced + events.not_produced == stage.events
    assert events.jobs_in_part == sum(part > 1 for part in completed)
