"""The first job starts a request, the last one ends it; people who were there first are right."""

from dataclasses import replace
from datetime import timedelta

import pytest

from apps.core.domain.events import events_of
from apps.core.domain.health import beat_heart
from apps.core.web.templatetags.formatting import percent
from apps.jobs.domain.records.jobs import TOTALS_HEART
from apps.jobs.models import Collection, Job, QueueCount, QueueReading
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.outputs.counts import mark_located
from apps.production.enums import PORTAL, Verb
from apps.production.models import Request, Stage
from apps.progress.domain.progress import progress_now
from apps.progress.domain.transitions import SETTLED, follow_requests
from tests.factories import clusters, jobs
from tests.factories.jobs import AT, failed, record
from tests.factories.requests import request_in
from tests.factories.requests import stage as written_stage

SENT = AT + timedelta(hours=2)  # after request_in's moves
END = SENT + timedelta(hours=1)


@pytest.fixture
def made(nova, liaison, approver):
    def make(state: str) -> Request:
        stages = (written_stage("generation", jobs=2), written_stage("simulation", jobs=1))
        return request_in(state, by=liaison, experiment=nova, approver=approver, stages=stages)

    return make


def ran(alps, request, stage, *records):
    moved = [r if r.submitted_at != AT - timedelta(hours=2) else shifted(r) for r in records]
    jobs.ran(alps, request.key, stage, *moved, at=END)


def shifted(one):
    return replace(one, submitted_at=SENT, started_at=SENT, ended_at=END)


def state(request):
    return Request.objects.get(pk=request.pk).state


def test_first_job_starts_a_queued_request_as_the_portal(alps, made):
    request = made("queued")
    assert follow_requests(at=END) == []
    ran(alps, request, "generation", record(1))
    assert follow_requests(at=END) == [request]
    event = events_of(request).last()
    assert (state(request), event.kind, event.actor) == ("running", "request.start", PORTAL)
    assert follow_requests(at=END) == []


def test_waiting_job_starts_it_too(alps, made):
    request = made("queued")
    QueueCount.objects.create(
        cluster=alps, request=request, stage="generation", queued=1, newest_submitted_at=SENT
    )
    follow_requests(at=END)
    assert state(request) == "running"


def test_job_of_before_the_queue_starts_nothing(alps, made):
    request = made("queued")
    ran(alps, request, "generation", record(1, submitted_at=AT - timedelta(hours=1)))
    assert Job.objects.get().request == request
    follow_requests(at=END)
    assert state(request) == "queued"


@pytest.mark.parametrize("before", ["testing", "on_hold", "awaiting_approval", "cancelled"])
def test_jobs_move_nothing_from_elsewhere(alps, made, before):
    request = made(before)
    ran(alps, request, "generation", record(1), record(2))
    ran(alps, request, "simulation", record(3))
    follow_requests(at=END)
    assert state(request) == before


def test_last_job_ends_it_and_passes_it_on(alps, made):
    request = made("running")
    ran(alps, request, "generation", record(1))
    ran(alps, request, "simulation", record(3))
    follow_requests(at=END)
    assert state(request) == "running"
    ran(alps, request, "generation", record(2))
    follow_requests(at=END)
    kinds = [(event.kind, event.actor) for event in events_of(request)][-2:]
    assert kinds == [("request.complete", PORTAL), ("request.review", PORTAL)]
    assert state(request) == "data_quality"


def test_outputs_that_must_be_located_are_waited_for(alps, made, liaison):
    request = made("running")
    Stage.objects.filter(request=request, position=0).update(arguments={"catalogued": True})
    ran(alps, request, "generation", record(1), record(2))
    ran(alps, request, "simulation", record(3))
    follow_requests(at=END)
    assert state(request) == "completing"
    mark_located(
        stage=Stage.objects.select_related("request").get(request=request, position=0),
        by=liaison,
        at=END,
    )
    follow_requests(at=END)
    assert state(request) == "data_quality"


def all_quiet(alps, at):
    """All clusters have said that nothing waits or runs."""
    Collection.objects.update(last_success_at=at)
    beat_heart(name=TOTALS_HEART, at=at)
    QueueReading.objects.update_or_create(cluster=alps, defaults={"at": at})


def test_failures_are_final_only_when_nothing_waits_and_all_is_quiet(alps, made):
    request = made("running")
    ran(alps, request, "generation", record(1), failed(2))
    ran(alps, request, "simulation", failed(3, attempt=1), failed(3, attempt=2, ended_at=END))
    later = END + SETTLED
    follow_requests(at=later)
    assert state(request) == "running"  # nobody has said what waits
    all_quiet(alps, later)
    waits = QueueCount.objects.create(
        cluster=alps, request=request, stage="x", queued=1, newest_submitted_at=SENT
    )
    follow_requests(at=later)
    assert state(request) == "running"
    waits.delete()
    follow_requests(at=later - timedelta(minutes=1))
    assert state(request) == "running"
    follow_requests(at=later)
    assert state(request) == "data_quality"


def test_retried_attempt_is_no_further_job(alps, made):
    request = made("running")
    ran(alps, request, "generation", failed(1, attempt=1), failed(1, attempt=2))
    ran(alps, request, "simulation", record(3))
    later = END + SETTLED
    all_quiet(alps, later)
    follow_requests(at=later)
    assert state(request) == "running"
    assert [stage.progress.sums.retried for stage in progress_now(request, at=later).stages] == [
        1,
        0,
    ]


def test_jobs_of_a_test_by_hand_complete_nothing(alps, made, approver, browse):
    request = made("testing")
    ran(alps, request, "generation", record(1), failed(2))
    ran(alps, request, "simulation", record(3))
    first = progress_now(request, at=END).stages[0].progress
    assert (first.completed, first.outside_production.tests, first.sums.failed) == (0, 1, 1), (
        "all is of the test while it lasts"
    )
    begins = END + timedelta(minutes=10)
    MOVE_FUNCTIONS[Verb.START](request=request, by=approver, at=begins)

    def end(number, stage, **changes):
        moments = {"submitted_at": begins, "ended_at": begins + timedelta(minutes=30)}
        ran(alps, request, stage, record(number, **moments, **changes))

    end(4, "generation")
    end(5, "simulation")
    later = begins + 2 * SETTLED
    all_quiet(alps, later)
    follow_requests(at=later)
    assert state(request) == "running", (
        "one of two has completed, and no more have ended, but for those of the test"
    )
    first, second = progress_now(request, at=later).stages
    assert [
        (
            stage.progress.completed,
            percent(stage.progress.completed, stage.progress.requested_jobs),
        )
        for stage in (first, second)
    ] == [
        (1, "50 %"),
        (1, "100 %"),
    ]
    page = browse(approver).get(f"/jobs/progress/{request.key}/").content.decode()
    assert page.count("without 1 submitted before production") == 2
    one = browse(approver).get(f"/api/v1/progress/{request.key}/").json()["stages"][0]
    assert (one["done"], one["tests"]) == (1, 1)
    end(6, "generation")
    follow_requests(at=later)
    assert state(request) == "data_quality"


def test_attempt_that_was_followed_by_another_completes_nothing(alps, made):
    request = made("running")
    ran(alps, request, "generation", record(1, attempt=1), record(1, attempt=2))
    ran(alps, request, "simulation", record(3))
    follow_requests(at=END)
    assert state(request) == "running"
    assert [stage.progress.completed for stage in progress_now(request, at=END).stages] == [1, 1]


def test_the_page_says_what_happens_to_jobs_sent_by_hand_that_failed(alps, made, browse, liaison):
    request = made("running")
    ran(alps, request, "generation", record(1))
    address, told = f"/jobs/progress/{request.key}/", "nothing has happened for six hours"
    assert timedelta(hours=6) == SETTLED
    assert told not in browse(liaison).get(address).content.decode()
    ran(alps, request, "generation", failed(2))
    assert told in browse(liaison).get(address).content.decode()


def test_request_that_somebody_resumed_waits_for_another_job(alps, made, approver):
    request = made("running")
    ran(alps, request, "generation", record(1), record(2))
    ran(alps, request, "simulation", record(3))
    follow_requests(at=END)
    fresh = Request.objects.get(pk=request.pk)
    MOVE_FUNCTIONS[Verb.RESUME](
        request=fresh, by=approver, at=END + timedelta(minutes=5), reason="Two files lack."
    )
    follow_requests(at=END + timedelta(minutes=6))
    assert state(request) == "running"
    ran(
        alps,
        request,
        "generation",
        record(4, submitted_at=END, ended_at=END + timedelta(minutes=10)),
    )
    follow_requests(at=END + timedelta(minutes=11))
    assert state(request) == "data_quality"


def test_progress_says_what_it_knows_and_what_not(alps, made):
    request = made("running")
    unknown = progress_now(request, at=END).stages[0]
    assert (unknown.waiting, unknown.counts.files_in, unknown.expected.at) == (None, None, None)
    ran(alps, request, "generation", record(1, cpus=4))
    read = END + timedelta(minutes=6)  # well after the end of the job
    QueueReading.objects.create(cluster=alps, at=read)
    QueueCount.objects.create(
        cluster=alps,
        request=request,
        stage="GENERATION",
        queued=5,
        running=2,
        held=1,
        newest_submitted_at=SENT,
    )
    now = progress_now(request, at=END)
    first, second = now.stages
    assert (first.waiting.queued, first.waiting.running, first.waiting.held) == (5, 2, 1)
    assert (now.as_of, now.queue_as_of, now.queue_unknown) == (END, read, [])
    assert (first.core_hours_used, first.core_hours_requested) == (4.0, 16.0)
    assert first.expected.at is None  # its only job ended in the hour that has just begun
    assert (second.expected.at, now.expected.at) == (None, None)


def test_expected_end_follows_the_pace(alps, made):
    request = made("running")
    ran(
        alps, request, "generation", record(1, submitted_at=SENT, ended_at=END - timedelta(hours=3))
    )
    first, _ = progress_now(request, at=END, computed=True).stages
    assert first.expected.at == END + timedelta(hours=3)
    assert first.expected.basis == "1 job in 3 h, 1 to go"


def test_progress_keeps_its_query_count(alps, made, django_assert_max_num_queries):
    request = made("running")
    with django_assert_max_num_queries(17) as few:
        progress_now(request, at=END)
    for number in range(20):
        ran(
            alps,
            request,
            "generation",
            record(number + 1, submitted_at=SENT, ended_at=END - timedelta(hours=number)),
        )
    jura = clusters.cluster("jura2", "planned")
    QueueReading.objects.create(cluster=jura, at=END)
    with django_assert_max_num_queries(len(few)):
        progress_now(request, at=END)
