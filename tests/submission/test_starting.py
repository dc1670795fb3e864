"""Queued requests begin by themselves, in the order of the queue, where a cluster has room."""

from datetime import timedelta

import pytest

from apps.clusters.models import Cluster
from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.holds import place_hold
from apps.production.domain.lifecycle.moves import make_move, set_priority
from apps.production.domain.outlook import find_hindrances, read_outlook
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.enums import Verb
from apps.production.models import Request, Stage
from apps.progress.domain.stored_forecasts import note_starts
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import (
    post_announcement,
    withdraw_announcement,
)
from apps.statusboard.enums import State
from apps.submission import tasks
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.ignored_advice import follow_advice, ignore_advice
from apps.submission.domain.arrays.rows import options_of
from apps.submission.domain.dispatch import dispatch, start
from apps.submission.domain.dispatch.start import find_obstacle, free_clusters, start_next
from apps.submission.models import Assignment, Submission
from tests.factories import clusters, people, requests, statusboard
from tests.factories.requests import AT

LATER = AT + timedelta(minutes=10)


def started(cluster, at=LATER) -> list[str]:
    """Begin all that may begin; return the numbers in the order of their begins."""
    cluster.refresh_from_db()
    found = []
    while request := start_next(cluster=cluster, at=at):
        found.append(request.key)
    return found


def set_options(cluster, **changes):
    cluster.submission = {**cluster.submission, **changes}
    cluster.save()


def test_the_queue_begins_in_its_order_with_a_test(make, cluster, approver, fake):
    make("queued")
    second = make("queued")
    set_priority(request=second, priority_class="urgent", by=approver, at=AT, reason="The freeze.")
    assert started(cluster) == ["NOVA-0002", "NOVA-0001"]
    second.refresh_from_db()
    assert (second.state, second.assignment.cluster, second.assignment.assigned_by) == (
        "testing",
        cluster,
        "opsportal",
    )
    assert started(cluster) == []


def test_the_task_begins_tests_and_sends_by_itself(make, cluster, fake):
    make("queued")
    tasks.send_to(cluster_id=cluster.pk)
    tasks.send_to(cluster_id=cluster.pk)
    assert [(s.stage_name, s.is_test, s.tasks, s.state) for s in Submission.objects.all()] == [
        ("one", True, 1, "sent")
    ]
    assert fake.environment("100")["OPSPORTAL_STAGE"] == "one.test"
    assert "export OPSPORTAL_TEST=1" in fake.script("100")


def test_without_a_test_it_begins_with_production(make, cluster, fake):
    set_options(cluster, test_events=0)
    request = make("queued")
    assert started(cluster) == [request.key]
    request.refresh_from_db()
    assert request.state == "running"


@pytest.mark.parametrize("changes", [{"submits": False}, {"submission": {"automatic": False}}])
def test_nothing_begins_where_it_is_not_switched_on(make, cluster, changes):
    make("queued")
    Cluster.objects.filter(pk=cluster.pk).update(**changes)
    assert started(cluster) == []
    assert not Assignment.objects.exists()


def test_a_cluster_may_be_for_some_experiments(make, cluster):
    set_options(cluster, experiments=["DUNE"])
    make("queued")
    assert started(cluster) == []


def test_one_whose_cluster_was_chosen_begins_there(make, cluster, approver):
    other = clusters.cluster("other", "slurm", submits=True)
    request = make("queued")
    assign_request(request=request, cluster=other, by=approver, at=AT)
    assert started(cluster) == []
    assert started(other) == [request.key]


def test_holds_keep_requests_back_and_let_others_pass(
    make, cluster, approver, dune, other_liaison, printing
):
    held, stage_held = make("queued"), make("queued")
    stages = (requests.stage("one", jobs=2, events=20),)
    passing = requests.request_in(
        "queued",
        by=other_liaison,
        experiment=dune,
        approver=approver,
        workflow=printing,
        stages=stages,
    )
    place_hold(by=approver, at=AT, reason="Disks are full.", stage=stage_held.stages.first())
    make_move(verb=Verb.HOLD, request=held, by=approver, at=AT, reason="Wait.")
    assert started(cluster) == [passing.key]
    place_hold(by=approver, at=AT, reason="All stop.")
    make("queued")
    assert started(cluster) == []


def test_advice_against_submitting_keeps_requests_back(make, cluster, approver, fake):
    request = make("queued")
    announcement = post_announcement(title="Power cut", by=approver, at=AT, do_not_submit=True)
    assert started(cluster) == []
    assert "Power cut" in find_obstacle(request, cluster, read_outlook(AT))
    withdraw_announcement(announcement=announcement, by=approver, at=AT, reason="Over.")
    assert started(cluster) == [request.key]


def test_a_needed_service_that_is_down_keeps_jobs_back(make, cluster, approver, fake):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    stages = (requests.stage("one", jobs=2, events=20, services=("samweb",)),)
    request = make("queued", stages=stages)
    incident = open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=AT)
    assert started(cluster) == []
    close_incident(incident=incident, by=approver, at=AT + timedelta(minutes=1), reason="Back.")
    assert started(cluster) == [request.key]
    open_incident(service=samweb, state=State.DOWN, title="503 again", by=approver, at=LATER)
    tasks._plan_arrays(cluster)
    assert dispatch.claim_next(cluster=cluster, at=LATER) is None, "what is planned waits too"


def test_jobs_go_against_the_advice_for_as_long_as_somebody_says(
    make, cluster, approver, liaison, fake, client
):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    stages = (requests.stage("one", jobs=2, events=20, services=("samweb",)),)
    request, other = make("queued", stages=stages), make("queued", stages=stages)
    open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=AT)
    assert find_hindrances([request, other], AT).reasons == dict.fromkeys(
        (request.pk, other.pk), "samweb is down."
    )
    with pytest.raises(NotAllowed):
        ignore_advice(request=request, by=liaison, at=AT, reason="Now.", hours=2)
    for wrong in (
        {"reason": " ", "hours": 2},
        {"reason": "Now.", "hours": 0},
        {"reason": "Now.", "hours": 169},
    ):
        with pytest.raises(InvalidFields):
            ignore_advice(request=request, by=approver, at=AT, **wrong)
    ignore_advice(request=request, by=approver, at=AT, reason="It reads no files.", hours=2)
    assert started(cluster, AT + timedelta(hours=2)) == []
    assert started(cluster) == [request.key]
    event = events_of(request).get(kind="submission.advice_ignored")
    assert (event.reason, event.data["until"]) == (
        "It reads no files.",
        f"{AT + timedelta(hours=2):%Y-%m-%d %H:%M} UTC",
    )
    follow_advice(request=request, by=approver, at=LATER)
    with pytest.raises(InvalidTransition):
        follow_advice(request=request, by=approver, at=LATER)
    request.refresh_from_db()
    assert find_hindrances([request], LATER).reasons == {request.pk: "samweb is down."}


def test_page_shows_what_jobs_wait_for_and_lets_operators_ignore_it(
    make, cluster, approver, liaison, client
):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    request = make(
        "queued", stages=(requests.stage("one", jobs=2, events=20, services=("samweb",)),)
    )
    open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=AT)
    address = f"/submissions/{request.key}/"
    client.force_login(liaison)
    assert "Submit anyway" not in client.get(address).text
    assert "samweb is down." in client.get("/requests/queue/").text
    client.force_login(approver)
    page = client.get(address).text
    assert page.index("<summary>Submit anyway…") > page.index("<h2>Submit to a cluster")
    bad = client.post(f"{address}ignore-advice/", {"hours": "500", "reason": "It reads no files."})
    assert (bad.status_code, "Enter 168 or less" in bad.text) == (400, True)
    answer = client.post(
        f"{address}ignore-advice/", {"hours": "3", "reason": "It reads no files."}, follow=True
    )
    assert "are submitted for 3 h, whatever the advice is" in answer.text
    assert "Follow the advice again" in answer.text
    assert "samweb is down." not in client.get("/requests/queue/").text
    assert "follows the advice again" in client.post(f"{address}follow-advice/", follow=True).text


def test_no_more_begin_than_there_is_room_for(make, cluster, fake, end_jobs):
    set_options(cluster, most_in_flight=2)
    for _ in range(3):
        make("queued")
    tasks.send_to(cluster_id=cluster.pk)
    assert list(Submission.objects.values_list("request__key", flat=True)) == [
        "NOVA-0001",
        "NOVA-0002",
    ]
    end_jobs(Submission.objects.first())
    tasks.send_to(cluster_id=cluster.pk)
    assert {s.request.key: s.stage_name for s in Submission.objects.filter(settled_at=None)} == {
        "NOVA-0002": "one",
        "NOVA-0001": "two",
    }, "those that have begun come first"


def test_an_experiment_has_no_more_in_flight_than_its_limit(
    make, cluster, fake, approver, dune, other_liaison, printing
):
    set_options(cluster, in_flight={"NOVA": 1}, experiment_in_flight=50)
    make("queued")
    make("queued")
    stages = (requests.stage("one", jobs=2, events=20),)
    passing = requests.request_in(
        "queued",
        by=other_liaison,
        experiment=dune,
        approver=approver,
        workflow=printing,
        stages=stages,
    )
    tasks.send_to(cluster_id=cluster.pk)
    assert sorted(Submission.objects.values_list("request__key", flat=True)) == [
        passing.key,
        "NOVA-0001",
    ]


def test_an_experiment_whose_next_array_does_not_fit_starts_no_other_request(make, cluster, fake):
    for _ in range(4):
        make("queued")
    [jobs] = {stage.jobs for stage in Stage.objects.filter(name="one")}
    set_options(cluster, test_events=0, in_flight={"NOVA": jobs + 1})
    for _ in range(4):
        tasks.send_to(cluster_id=cluster.pk)
    assert sorted(Request.objects.values_list("state", flat=True)) == [
        "queued",
        "queued",
        "running",
        "running",
    ]


@pytest.mark.parametrize(
    ("options", "starting", "taken"),
    [
        ({"most_in_flight": 2}, ["NOVA-0001", "NOVA-0002"], 2),
        ({"in_flight": {"NOVA": 1}}, ["DUNE-0001", "NOVA-0001"], 2),
        ({"most_in_flight": 4, "test_events": 0}, ["NOVA-0001"], 6),
        ({}, ["DUNE-0001", "NOVA-0001", "NOVA-0002", "NOVA-0003"], 4),
    ],
)
def test_those_that_are_expected_to_start_today_start(
    options, starting, taken, make, cluster, fake, approver, dune, other_liaison, printing
):
    set_options(cluster, **options)
    for _ in range(3):
        make("queued")
    requests.request_in(
        "queued",
        by=other_liaison,
        experiment=dune,
        approver=approver,
        workflow=printing,
        stages=(requests.stage("one", jobs=2, events=20),),
    )
    rescore_all(at=AT)
    [free] = note_starts(at=AT)
    today = Request.objects.filter(expected_start=AT.date())
    assert sorted(today.values_list("key", flat=True)) == starting
    assert all(request.queue_entry.starts_on == "farm" for request in today)
    assert free.room.jobs == free_clusters(at=AT)[0].room.jobs - taken

    tasks.send_to(cluster_id=cluster.pk)
    begun = Request.objects.exclude(state="queued")
    assert sorted(begun.values_list("key", flat=True)) == starting


def test_one_whose_test_was_said_to_have_failed_waits_for_a_change(make, cluster, approver):
    request = make("queued")
    assert started(cluster) == [request.key]
    request.refresh_from_db()
    make_move(verb=Verb.FAIL_TEST, request=request, by=approver, at=LATER, reason="Too slow.")
    assert started(cluster) == []
    assert "test failed" in find_obstacle(request, cluster, read_outlook(AT))


def test_what_does_not_fit_stays_in_the_queue(make, cluster):
    make("queued")
    Cluster.objects.filter(pk=cluster.pk).update(max_memory_bytes=1_000_000_000)
    assert started(cluster) == []


def test_one_that_somebody_moves_at_the_same_time_begins_once(make, cluster, approver):
    request = make("queued")
    make_move(
        verb=Verb.HOLD,
        request=type(request).objects.get(pk=request.pk),
        by=approver,
        at=AT,
        reason="Wait.",
    )
    assert not start._begin(request, cluster, options_of(cluster), AT)
    assert not Assignment.objects.exists()
