"""Requests whose jobs were submitted by hand: events that missing jobs did not produce."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.enums import Verb
from apps.production.models import Stage
from apps.progress.domain.production_report import report_of
from apps.quality.domain.runs import close_if_passed
from apps.submission.domain.arrays.stage_events import count_events, events_not_produced
from apps.submission.domain.arrays.submissions import EventsInPart
from tests.factories import clusters
from tests.factories.jobs import failed, record, store
from tests.factories.quality import LATER, QUEUED_AT
from tests.factories.requests import pass_quality

SUMMARY = "simulation: about 5 of 10 events were not produced"


def close(produced, approver):
    """Waive what does not pass, never as “in part”, and let the portal close the request."""
    pass_quality(produced.fresh(), approver, at=LATER)
    assert close_if_passed(request=produced.fresh(), at=LATER) is not None
    return produced.fresh().state


def test_request_with_a_failed_job_is_partially_done(produced, approver):
    produced.run_jobs(missing=1, bad=1)
    assert close(produced, approver) == "done_partial"
    reason = events_of(produced.request).filter(kind="request.done_partial").get().reason
    assert SUMMARY in reason
    (row,) = report_of(produced.fresh(), at=LATER)["events_not_produced"]
    assert (row["produced"], row["not_produced"], row["jobs_in_part"]) == (5, 5, 0)


def test_it_cannot_be_marked_as_done(produced, approver):
    produced.run_jobs(missing=1, bad=1)
    pass_quality(produced.fresh(), approver, at=LATER)
    with pytest.raises(InvalidTransition, match=SUMMARY):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER, reason="Enough.")
    assert produced.fresh().state == "data_quality"


def test_request_whose_failed_job_completed_later_is_done(produced, approver):
    produced.run_jobs(bad=1)
    assert close(produced, approver) == "done"


def test_request_whose_other_jobs_wrote_all_events_is_done(produced, approver):
    produced.run_jobs(missing=1, bad=1)
    produced.report(1, events_out=10)
    assert close(produced, approver) == "done"


def test_fewer_written_events_than_all_do_not_count_as_produced(produced, approver):
    produced.run_jobs(missing=1, bad=1)
    produced.report(1, events_out=7)
    (stage,) = produced.quality().not_produced
    assert (stage.produced, stage.not_produced) == (7, 3)


def test_a_stage_without_any_known_job_is_left_to_the_checks(produced, approver):
    assert not produced.quality().not_produced
    assert close(produced, approver) == "done"


def test_running_request_does_not_lack_events_yet(make):
    running = make("running")
    running.run_jobs(missing=1, bad=1)
    assert not running.quality().not_produced


def test_queries_do_not_grow_with_requests(make, django_assert_max_num_queries):
    cluster = clusters.cluster("jura")
    ended = {"submitted_at": QUEUED_AT, "started_at": QUEUED_AT, "ended_at": LATER}
    made = []
    for number in range(4):
        produced = make()
        jobs = store(cluster, record(10 * number, **ended), failed(10 * number + 1, **ended))
        attach_origin(
            origins={job.pk: (produced.request.key, "generation") for job in jobs}, at=LATER
        )
        made.append(produced.fresh())
    recompute_dirty_hours(at=LATER)
    with django_assert_max_num_queries(8):
        assert len(events_not_produced(made, {})) == 4


@given(st.integers(1, 1000), st.lists(st.booleans(), min_size=1, max_size=30))
def test_produced_and_not_produced_are_what_was_requested(events_per_job, completed):
    requested = events_per_job * len(completed)
    stage = Stage(name="one", events=requested, jobs=len(completed))
    events = count_events(stage, EventsInPart(), None, jobs_missing=completed.count(False))
    assert events.produced == events_per_job * completed.count(True)
    assert events.produced + events.not_produced == requested
