"""How many jobs have delivered equals a recount: each job once, by its last attempt,
and no test.
"""

from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import events_of
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import DirtyHour, HourlyTotals, Job
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.progress.domain.stage_counts import progress_of
from tests.factories import clusters
from tests.factories.jobs import record, store
from tests.factories.quality import LATER, QUEUED_AT
from tests.factories.requests import AT


def run(request, *jobs, stage="generation"):
    """Let jobs end; each is (number, attempt, state,
    minutes after the request came into the queue).
    """
    cluster = clusters.cluster("jura")
    records = [
        record(
            number,
            attempt=attempt,
            state=JobState(state),
            submitted_at=QUEUED_AT + timedelta(minutes=minutes),
            ended_at=QUEUED_AT + timedelta(minutes=minutes + attempt),
        )
        for number, attempt, state, minutes in jobs
    ]
    rows = store(cluster, *records)
    attach_origin(origins={row.pk: (request.key, stage) for row in rows}, at=AT)
    recompute_dirty_hours(at=LATER)


def recounted(request):
    """Count jobs of production, and of before it, that completed by their last attempt:
    by the stage's name.
    """
    last = {}
    for job in Job.objects.filter(request=request).order_by("attempt"):
        last[job.cluster_id, job.job_id, job.submitted_at] = job
    begin = max(
        event.at - timedelta(minutes=5)
        for event in events_of(request)
        if event.new == "queued" or event.old == "testing"
    )
    found = {}
    for job in last.values():
        if job.state == "completed":
            (jobs, tests), ours = found.get(job.stage.casefold(), (0, 0)), job.submitted_at >= begin
            found[job.stage.casefold()] = (jobs + ours, tests + (not ours))
    return found


def told(request):
    """Return what progress tells of the same."""
    rows = {
        row.stage: (row.completed, row.outside_production.tests) for row in progress_of(request)
    }
    return {stage: counts for stage, counts in rows.items() if any(counts)}


def test_attempts_count_once_by_the_last(produced):
    run(
        produced.request,
        (1, 1, "completed", 1),
        (1, 2, "completed", 1),
        (2, 1, "completed", 1),
        (2, 2, "failed", 1),
    )
    run(produced.request, (3, 1, "node_fail", 1), (3, 2, "completed", 1), stage="Generation")
    assert told(produced.request) == recounted(produced.request) == {"generation": (2, 0)}


jobs = st.tuples(
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["completed", "failed", "node_fail"]),
    st.sampled_from([-60, -5, -4, 3, 30]),
)


@settings(
    max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    done=st.lists(jobs, max_size=8, unique_by=lambda job: (job[0], job[1], job[3])),
    spelt=st.booleans(),
)
def test_progress_counts_as_they_deliver(produced, done, spelt):
    for model in (DirtyHour, HourlyTotals, Job):
        model.objects.all().delete()
    run(produced.request, *done, stage="Generation" if spelt else "generation")
    assert told(produced.request) == recounted(produced.request)
    assert progress_of(produced.request)[0].ended == sum(
        attempt == 1 and minutes >= -5 for _, attempt, _, minutes in done
    )


def test_jobs_of_a_test_do_not_count(make, approver):
    produced = make("testing")
    run(produced.request, (1, 1, "completed", 5))
    make_move(
        verb=Verb.START, request=produced.fresh(), by=approver, at=QUEUED_AT + timedelta(minutes=20)
    )
    run(produced.request, (2, 1, "completed", 21), (3, 1, "failed", 22))
    assert told(produced.request) == recounted(produced.request) == {"generation": (1, 1)}
    for verb in (Verb.COMPLETE, Verb.REVIEW):
        make_move(verb=verb, request=produced.fresh(), by=approver, at=LATER)
    quality = produced.judge()
    said = {(result.position, result.check_name): result.why for result in quality.results}
    why = said[0, "missing_jobs"]
    assert why == "1 of 2 jobs did not complete. 1 submitted as tests are not counted."


def test_jobs_of_before_the_queue_do_not_count(produced):
    run(produced.request, (1, 1, "completed", -60), (2, 1, "completed", -1))
    assert told(produced.request) == recounted(produced.request) == {"generation": (1, 1)}, (
        "clocks may differ by some minutes"
    )
