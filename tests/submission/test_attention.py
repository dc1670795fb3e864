"""What stalls says so: in the state line, the inbox, the list, the API,
by events and notifications; and recovers.
"""

from datetime import date, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.clusters.models import Cluster
from apps.core.domain.events import events_of
from apps.core.tasks import deliver_waiting
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, Job, QueueCount, QueueReading
from apps.notifications.models import Notification
from apps.production.domain.approvals.inbox import inbox_items, step_for, waiting_for
from apps.production.domain.desk.desk import bulk_approval, read_desk
from apps.production.domain.desk.sheet import read_sheet
from apps.production.domain.forecast import Days, Expected
from apps.production.domain.holds import lift_hold, place_hold
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.priority.free_clusters import store_free_clusters
from apps.production.domain.priority.rescoring import forget_sizes, rescore_all
from apps.production.enums import AttentionKind, Verb
from apps.production.models import Attention, Request
from apps.progress.domain.needs import note_attention
from apps.progress.domain.stored_forecasts import keep_forecasts, note_starts
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.trials import evaluate_tests
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.models import Submission
from tests.factories.history import history
from tests.factories.queue import set_pace
from tests.factories.requests import AT, stage
from tests.factories.verdicts import judge
from tests.pages import text_of

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def attention(request):
    return {row.kind: row.words for row in Attention.objects.filter(request=request)}


def kinds(request):
    return [event.kind for event in events_of(request).filter(actor="opsportal")][-1:]


@pytest.fixture
def running(make, cluster, approver):
    return choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)


@pytest.fixture
def send(running, end_jobs):
    def sent(failed=()):
        plan_next(assignment=running, at=AT)
        array = dispatch.send(submission=dispatch.claim_next(cluster=running.cluster, at=AT), at=AT)
        end_jobs(array, failed=failed, at=AT)
        dispatch.refresh_progress(cluster=running.cluster, at=AT)
        return array

    return sent


@pytest.fixture
def answering(cluster):
    """Return a function that has the cluster answer at some time that nothing waits or runs."""

    def answer(at):
        Collection.objects.update_or_create(cluster=cluster, defaults={"last_success_at": at})
        QueueReading.objects.update_or_create(
            cluster=cluster, defaults={"at": at, "last_error": ""}
        )
        recompute_dirty_hours(at=at)

    Cluster.objects.filter(pk=cluster.pk).update(collects=True)
    return answer


def test_a_code_failure_is_stuck_at_once_everywhere_and_recovers(
    running, send, browse, shifter, liaison
):
    request = running.request
    send()
    last = send(failed={0})
    assert note_attention(at=AT) == 0, "there is no verdict yet, so it may be retried automatically"
    Job.objects.update(
        request_key=request.key, stage=last.stage_name, experiment=request.experiment
    )
    judge(last, {0: "code"}, at=AT)
    assert [note_attention(at=AT), note_attention(at=AT)] == [1, 0]
    again = "1 failed job with a code problem would fail again"
    assert attention(request) == {
        "stuck": "1 failed job of one needs a decision",
        "needs_change": again,
    }
    [turn] = inbox_items(waiting_for(liaison, AT), liaison, AT)
    step = "Fix the cause, or tell the OPG whether to continue without these jobs"
    assert (turn.request, turn.todo, turn.why) == (request, step, f"Needs change: {again}")
    page = browse(liaison).get(f"/requests/{request.key}/").content.decode()
    assert f'<div class="main-line">Needs change: {again}.</div>' in page
    assert f"<p>{step}." in page
    assert "approvers, shifters and liaisons of NOvA" in page
    assert again in events_of(request).get(kind="request.needs_change").reason
    page = browse(shifter).get(f"/requests/{request.key}/").content.decode()
    assert '<div class="main-line">Stuck: 1 failed job of one needs a decision.</div>' in page
    assert "<p>Retry its failed jobs or continue without them." in page
    assert step_for(liaison, request, AttentionKind.STUCK, "Retry them").startswith("Approvers and")
    assert "In production." not in page
    assert f'href="/requests/{request.key}/#submissions">Retry or continue</a>' in page
    for url in ("/", "/requests/inbox/", "/requests/?attention=stuck", "/requests/?attention=yes"):
        found = browse(shifter).get(url).content.decode()
        assert request.key in found, url
        assert '<span class="state down">stuck</span>' in found, url
    assert request.key not in browse(shifter).get("/requests/?attention=late").content.decode()
    (row,) = browse(liaison).get("/api/v1/requests/?attention=stuck").json()["results"]
    assert [(need["kind"], need["words"]) for need in row["attention"]] == [
        ("stuck", "1 failed job of one needs a decision"),
        ("needs_change", again),
    ]
    deliver_waiting()
    event = events_of(request).get(kind="request.stuck")
    told = dict(Notification.objects.filter(event=event).values_list("user__username", "group"))
    assert (told[shifter.username], told[liaison.username]) == ("turn", "trouble")
    retry_failed(request=request, position=0, by=shifter, at=AT)
    deliver_waiting()
    assert attention(request) == {}
    recovered = events_of(request).filter(kind="request.recovered")
    assert {event.reason for event in recovered} == {
        "No longer stuck.",
        "No longer needs a change.",
    }
    assert list(waiting_for(shifter, AT)) == []


def test_a_service_failure_is_not_stuck_while_it_may_be_retried(running, send):
    send()
    judge(send(failed={0}), {0: "service"}, at=AT)
    assert note_attention(at=AT + 29 * timedelta(minutes=1)) == 0
    assert note_attention(at=AT + 31 * timedelta(minutes=1)) == 1


def test_failures_of_another_stage_that_may_be_retried_are_named_beside(running, send):
    judge(send(failed={0}), {0: "user"}, at=AT)
    later_stage = send(failed={0, 1})
    Submission.objects.filter(pk=later_stage.pk).update(position=1)
    note_attention(at=AT)
    assert attention(running.request) == {
        "stuck": "1 failed job of one needs a decision; "
        "other failed jobs of one may be retried automatically"
    }


def test_refused_tests_are_stuck(make, cluster, approver):
    request = assign_request(
        request=make("queued"), cluster=cluster, by=approver, at=AT, verb=Verb.TEST
    ).request
    plan_next(assignment=request.assignment, at=AT)
    Submission.objects.filter(request=request).update(state="failed")
    note_attention(at=AT)
    assert attention(request) == {"stuck": "1 refused job of one needs a decision"}


def test_late_by_forecast_or_by_the_calendar_until_the_deadline_is_postponed(
    running, browse, liaison, approver
):
    request = running.request

    def expect(day: date | None) -> None:
        stored = {"expected_end": day, "forecast_at": AT}
        Request.objects.filter(pk=request.pk).update(deadline=date(2026, 12, 13), **stored)

    expect(date(2027, 1, 17))
    note_attention(at=AT)
    assert attention(request) == {
        "late": "expected to end on 17 Jan 2027, 35 days after its deadline"
    }
    page = browse(liaison).get(f"/requests/{request.key}/").content.decode()
    assert "35 days after its deadline" in page
    assert '<span class="state down">late</span>' in page
    assert "17 Jan 2027" in browse(liaison).get("/requests/?attention=late").content.decode()
    assert [item.todo for item in inbox_items([request], liaison, AT)] == [
        "See what it waits for; its liaisons can postpone the deadline"
    ]
    ends = {"one": Expected(AT, "early").as_data(), "two": Expected(AT + DAY, "later").as_data()}
    Request.objects.filter(pk=request.pk).update(forecast_stages=ends)
    [item] = inbox_items([Request.objects.get(pk=request.pk)], liaison, AT)
    assert (
        item.todo == "See what holds two, which ends last; its liaisons can postpone the deadline"
    )
    assert request in waiting_for(liaison, AT)
    assert request in waiting_for(approver, AT)
    expect(date(2026, 12, 13))
    note_attention(at=AT)
    assert attention(request) == {}, "on the day of its deadline it is in time"
    assert kinds(request) == ["request.recovered"]
    expect(None)
    note_attention(at=AT + 30 * DAY)
    assert attention(request)["late"] == "its deadline 13 Dec 2026 has passed"


def test_a_running_request_is_idle_when_nothing_runs_and_jobs_are_missing(
    running, send, answering, cluster, shifter
):
    request = running.request
    send()
    for hours, words in (
        (5, {}),
        (7, {"idle": "no job is queued or running, and jobs are missing"}),
    ):
        answering(AT + hours * HOUR)
        Submission.objects.filter(state="planned").delete()
        note_attention(at=AT + hours * HOUR)
        assert attention(request) == words
    assert request in waiting_for(shifter, AT)
    note_attention(at=AT + 8 * HOUR)
    assert "idle" in attention(request), (
        "the cluster no longer answers, so nothing says that it recovered"
    )
    hold = place_hold(by=shifter, at=AT, reason="Power cut.")
    note_attention(at=AT + 8 * HOUR)
    assert attention(request) == {}
    lift_hold(hold=hold, by=shifter, at=AT)
    count = {
        "cluster": cluster,
        "request": request,
        "stage": "one",
        "running": 1,
        "newest_submitted_at": AT,
    }
    QueueCount.objects.create(**count)
    answering(AT + 8 * HOUR)
    note_attention(at=AT + 8 * HOUR)
    assert attention(request) == {}


def test_an_approved_request_that_no_cluster_starts_is_idle_after_a_day(
    make, cluster, browse, liaison
):
    request = make("queued")
    options = {**cluster.submission}
    Cluster.objects.filter(pk=cluster.pk).update(submission={**options, "automatic": False})
    note_attention(at=AT + DAY / 2)
    assert attention(request) == {}
    note_attention(at=AT + 2 * DAY)
    assert attention(request) == {
        "idle": "approved, nothing submitted. No cluster starts it automatically."
    }
    page = browse(liaison).get(f"/requests/{request.key}/").content.decode()
    assert "Idle: approved, nothing submitted." in page
    [item] = inbox_items([request], liaison, AT + 2 * DAY)
    assert item.why == "Idle: approved, nothing submitted. No cluster starts it automatically"
    Cluster.objects.filter(pk=cluster.pk).update(submission=options)
    note_attention(at=AT + 2 * DAY)
    assert attention(request) == {}, "it waits for its turn"


def test_request_that_is_moved_is_no_longer_idle_at_once(make, cluster, approver):
    request = make("queued")
    Cluster.objects.filter(pk=cluster.pk).update(submission={"automatic": False})
    note_attention(at=AT + 2 * DAY)
    assert "idle" in attention(request)
    MOVE_FUNCTIONS[Verb.START](request=request, by=approver, at=AT + 2 * DAY)
    assert attention(request) == {}


def test_outputs_that_are_not_located_are_idle_after_a_day(make):
    request = make("completing")
    note_attention(at=AT + 2 * DAY)
    assert attention(request) == {"idle": "its jobs have finished, but not all outputs are located"}


def test_a_failed_test_says_so_until_it_is_started_again(
    make, cluster, approver, end_jobs, browse, shifter
):
    request = assign_request(
        request=make("queued"), cluster=cluster, by=approver, at=AT, verb=Verb.TEST
    ).request
    plan_next(assignment=request.assignment, at=AT)
    test = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    end_jobs(test, failed={0}, at=AT)
    dispatch.refresh_progress(cluster=cluster, at=AT)
    judge(test, {0: "code"}, at=AT)
    assert evaluate_tests(cluster=cluster, at=AT)
    note_attention(at=AT)
    assert attention(request)["test_failed"].startswith("The test of one failed, code problem")
    page = browse(shifter).get(f"/requests/{request.key}/").content.decode()
    assert '<div class="main-line">Test failed: The test of one failed, code problem' in page
    request = Request.objects.get(pk=request.pk)
    MOVE_FUNCTIONS[Verb.RELEASE](request=request, by=approver, at=AT)
    deliver_waiting()
    assert attention(request) == {}
    MOVE_FUNCTIONS[Verb.FAIL_TEST](
        request=Request.objects.get(pk=request.pk), by=approver, at=AT, reason="Wrong geometry."
    )
    deliver_waiting()
    assert attention(request) == {"test_failed": "Wrong geometry."}


def test_closing_ends_it_without_a_word(running, approver):
    request = running.request
    Request.objects.filter(pk=request.pk).update(
        deadline=date(2026, 12, 13), expected_end=date(2027, 1, 17)
    )
    note_attention(at=AT)
    MOVE_FUNCTIONS[Verb.CANCEL](
        request=Request.objects.get(pk=request.pk), by=approver, at=AT, reason="No longer needed."
    )
    deliver_waiting()
    assert attention(request) == {}
    assert not events_of(request).filter(kind="request.recovered").exists()
    assert Request.objects.get(pk=request.pk).expected_end is None


def test_forecast_is_the_same_in_list_api_priority_and_estimate(make, browse, liaison):
    """A request without known start ends as if it started today;
    one that a cluster can take starts today.
    """
    made = make("queued")
    for name in ("one", "two"):
        history(
            made,
            name=name,
            configuration=f"{name}.fcl",
            per_day=[1.0] * 5,
            completed_wall_seconds=100 * 9000.0,
        )
    forget_sizes(experiment_id=made.experiment_id)  # as counting the jobs of an experiment does
    rescore_all(at=AT)
    keep_forecasts(at=AT)
    row = browse(liaison).get(f"/api/v1/requests/{made.key}/").json()
    days = Request.objects.get(pk=made.pk).queue_entry.days
    assert days == 12.0, "two stages of six jobs, one job a day"
    assert (row["expected_start"], row["expected_end"]) == (None, "2026-12-02")
    assert row["forecast_basis"].endswith("As if it started today.")
    page = browse(liaison).get(f"/requests/{made.key}/").content.decode()
    assert "2 Dec 2026" in page
    assert "All its work is estimated at 12 days" in page
    assert "2 Dec 2026" in browse(liaison).get("/requests/").content.decode()
    # What is stored is shown everywhere, whatever has changed since.
    day = date(2026, 12, 24)
    start = {"expected_start_early": day, "expected_start": day, "expected_start_late": day}
    Request.objects.filter(pk=made.pk).update(
        expected_end=day, expected_end_late=date(2027, 1, 8), **start
    )
    api = browse(liaison).get
    assert api(f"/api/v1/queue/{made.key}/").json()["expected_start"]["likely"] == "2026-12-24"
    assert api(f"/api/v1/progress/{made.key}/").json()["expected_end"] == "2026-12-24"
    page = api(f"/requests/{made.key}/?checks=now").content.decode()
    assert page.count("24 Dec") >= 3
    assert page.count("8 Jan") >= 2, "schedule and estimate"
    assert "Thu 24 Dec" in api("/requests/queue/").content.decode()


def test_a_change_of_the_queue_makes_new_forecasts(make, approver):
    made, behind = make("queued"), make("queued")
    rescore_all(at=AT)
    keep_forecasts(at=AT)
    set_pace(1)
    hold = place_hold(by=approver, at=AT, reason="Power cut")
    deliver_waiting()
    made.refresh_from_db()
    assert (made.forecast_basis, made.forecast_at is None) == (
        "Unknown while all production is on hold.",
        False,
    )
    lift_hold(hold=hold, by=approver, at=AT, reason="Over")
    deliver_waiting()
    starts = [Request.objects.get(pk=each.pk) for each in (made, behind)]
    assert starts[0].expected_start < starts[1].expected_start
    assert (
        starts[0].expected_start_early <= starts[0].expected_start <= starts[0].expected_start_late
    )


def test_a_request_that_a_cluster_starts_now_starts_today(make, cluster, browse, liaison):
    made = make("queued")
    rescore_all(at=AT)
    note_starts(at=AT)
    page = browse(liaison).get(f"/requests/{made.key}/").content.decode()
    assert "farm has room for it and starts it within minutes." in page
    Cluster.objects.filter(pk=cluster.pk).update(submits=False)
    note_starts(at=AT)
    assert "starts it within" not in browse(liaison).get(f"/requests/{made.key}/").content.decode()


def test_the_desk_expects_the_start_that_a_cluster_gives_once_approved(
    make, cluster, approver, browse
):
    """As the queue does, with the same reason. This cluster takes one job at a time."""
    Cluster.objects.filter(pk=cluster.pk).update(
        submission={**cluster.submission, "most_in_flight": 1}
    )
    waiting = make("awaiting_approval")

    def expected_start():
        [row] = read_desk(approver, at=AT).rows
        return row.estimate.begins

    assert expected_start() is None, "the pace of the queue is unknown"
    store_free_clusters(note_starts(at=AT))
    assert expected_start() == Days.exactly(AT.date())
    sheet = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT)
    assert {choice.starts_on for choice in sheet.choices} == {cluster.name}
    urgent = make("awaiting_approval", deadline=AT.date() + DAY)
    desk = read_desk(approver, at=AT)
    starts = bulk_approval(desk.rows, desk.queue, user=approver, at=AT).starts
    assert starts == {urgent.pk: cluster.name}, "not both, as there is room for one"
    ticked = [f"{row.request.key}:{row.request.version}" for row in desk.rows]
    page = text_of(browse(approver).post(reverse("production:desk-approve"), {"ticked": ticked}))
    assert page.count("starts at once on farm") == 1
    Request.objects.filter(pk=urgent.pk).delete()

    large = make("awaiting_approval", stages=(stage("one", memory_bytes=10**12),))
    Cluster.objects.filter(pk=cluster.pk).update(max_memory_bytes=10**11)
    store_free_clusters(note_starts(at=AT))
    rows = {row.request.pk: row for row in read_desk(approver, at=AT).rows}
    assert rows[large.pk].estimate.begins is None
    assert rows[waiting.pk].estimate.begins

    Request.objects.filter(pk=large.pk).delete()
    queued = make("queued", deadline=AT.date() + DAY)
    store_free_clusters(note_starts(at=AT))
    assert expected_start() is None, "the cluster starts the urgent one first"

    Request.objects.filter(pk=waiting.pk).update(requested_priority="urgent")
    assert expected_start() == Days.exactly(AT.date()), "it takes the room of the other"
    sheet = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT)
    assert {choice.name: choice.moved_back.pks for choice in sheet.choices}["urgent"] == [queued.pk]
    [delayed] = sheet.choices[-1].moved_back.named
    assert (delayed.start_now, delayed.start_then) == (AT.date(), None)


def test_queries_do_not_grow_with_what_needs_attention(make, browse, shifter):
    def counted():
        found = []
        for url in ("/requests/", "/requests/inbox/", "/api/v1/requests/", "/api/v1/inbox/", "/"):
            with CaptureQueriesContext(connection) as queries:
                assert client.get(url).status_code == 200
            found.append(len(queries))
        with CaptureQueriesContext(connection) as queries:
            note_attention(at=AT + 3 * DAY)
        return [*found, len(queries)]

    client = browse(shifter)
    make("completing")
    make("running")
    note_attention(at=AT + 3 * DAY)
    counted()
    few = counted()
    for _ in range(3):
        make("completing")
        make("running")
    note_attention(at=AT + 3 * DAY)
    for with_many, with_few in zip(counted(), few, strict=True):
        assert with_many <= with_few
