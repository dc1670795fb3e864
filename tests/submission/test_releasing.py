"""Held arrays, a row each: who releases them, what prevents it, and what the scheduler answers."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.schedulers.base import CurrentJobs, CurrentState
from apps.core.errors import InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.jobs.domain.live.queue import store_queue
from apps.jobs.models import LiveArray
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.submission.domain.arrays.assignment import cancel_sent, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.held import request_release
from apps.submission.domain.dispatch.recall import recall_sent
from tests.factories.requests import AT

LATER = AT + timedelta(minutes=10)
HELD = CurrentState.HELD


@pytest.fixture
def sent(make, cluster, approver):
    request = make("running")
    assignment = choose_cluster(request=request, cluster=cluster, by=approver, at=AT)
    plan_next(assignment=assignment, at=AT)
    submission = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    submission.request.refresh_from_db()
    return submission


@pytest.fixture
def held(sent, cluster):
    """The jobs of the array are held, and those of somebody else."""
    jobs = [
        CurrentJobs(sent.spool_id, AT, HELD, 3, "nova", "JobHeldUser"),
        CurrentJobs("77", AT, HELD, 2, "nova", "JobHeldAdmin"),
    ]
    store_queue(cluster=cluster, jobs=jobs, origins={}, at=AT)
    return sent


def kinds() -> list[str]:
    events = Event.objects.filter(kind__startswith="submission.release").order_by("pk")
    return list(events.values_list("kind", flat=True))


def rows(client, query="state=held") -> dict[str, object]:
    page = client.get(f"/jobs/live/?{query}")
    return {row.array.spool_id: row for row in page.context["rows"]}


def test_operator_releases_held_jobs_by_the_api(held, api, shifter):
    address = f"/api/v1/submissions/{held.request.key}/release/"
    unknown = api(shifter).post(address, {"number": held.number + 1}, format="json")
    assert unknown.status_code == 400
    assert "number" in unknown.json()
    answer = api(shifter).post(address, {"number": held.number}, format="json")
    assert answer.status_code == 200
    held.refresh_from_db()
    assert held.release_requested_at is not None


def test_operator_releases_held_jobs_by_the_page(
    held, browse, shifter, cluster, fake, django_capture_on_commit_callbacks
):
    client = browse(shifter)
    page = client.get("/jobs/live/?state=held").content.decode()
    url = f"/submissions/{held.request.key}/{held.number}/release/"
    assert page.count("Release…") == 1
    assert f'href="{url}"' in page
    assert "Not submitted by the portal" in page
    assert "Release held jobs" in client.get(url).content.decode()
    assert fake.told() == [], "the page only asks"
    answer = client.post(url, {"reason": "SAM is back."}, follow=True)
    assert "will be released" in answer.content.decode()
    assert "Release…" not in client.get("/jobs/live/?state=held").content.decode()
    assert recall_sent(cluster=cluster, at=LATER) == 1
    assert recall_sent(cluster=cluster, at=LATER) == 0
    assert fake.told() == ["scontrol release 100"]
    assert kinds() == ["submission.release_requested", "submission.released"]


def test_liaison_is_told_who_may_release(held, browse, liaison, fake):
    client = browse(liaison)
    assert "Approvers and shifters" in rows(client)[held.spool_id].offer.obstacle
    url = f"/submissions/{held.request.key}/{held.number}/release/"
    assert client.post(url).status_code == 403
    with pytest.raises(NotAllowed):
        request_release(submission=held, by=liaison, at=AT)
    assert kinds() == []


def test_release_that_the_scheduler_refuses_is_reported_and_not_repeated(
    held, browse, shifter, cluster, fake
):
    request_release(submission=held, by=shifter, at=AT)
    fake.mode("down")
    assert recall_sent(cluster=cluster, at=LATER) == 0, "repeated later"
    fake.mode("deny")
    assert recall_sent(cluster=cluster, at=LATER) == 0
    fake.mode("ok")
    assert recall_sent(cluster=cluster, at=LATER) == 0
    assert fake.told() == []
    assert kinds() == ["submission.release_requested", "submission.release_refused"]
    page = browse(shifter).get("/jobs/live/?state=held").content.decode()
    assert "Release refused: scontrol: Access/permission denied" in page
    assert "Release…" in page, "it can be requested again"


@pytest.mark.parametrize("obstacle", ["hold", "cancel", "adapter"])
def test_obstacle_is_shown_in_place_of_the_button(
    obstacle, held, browse, shifter, approver, cluster
):
    if obstacle == "hold":
        make_move(verb=Verb.HOLD, request=held.request, by=approver, at=AT, reason="Wait.")
        text = "On hold in the portal"
    elif obstacle == "cancel":
        cancel_sent(request=held.request, by=shifter, at=AT, reason="Wrong.")
        text = "being cancelled"
    else:
        cluster.scheduler = "torque"
        cluster.options = {}
        cluster.save()
        text = "does not let the portal release jobs"
    client = browse(shifter)
    page = client.get("/jobs/live/?state=held").content.decode()
    assert text in page
    assert "Release…" not in page
    held.refresh_from_db()
    with pytest.raises(InvalidTransition, match=text):
        request_release(submission=held, by=shifter, at=AT)
    url = f"/submissions/{held.request.key}/{held.number}/release/"
    assert "Cannot be released" in client.get(url).content.decode()


def test_rows_are_filtered_by_reason_and_link_to_running_logs(held, browse, shifter, cluster):
    client = browse(shifter)
    groups = client.get("/jobs/?tab=held").content.decode()
    assert "/jobs/live/?state=held&amp;reason=Held%20by%20administrator" in groups
    assert set(rows(client, "state=held&reason=Held by administrator")) == {"77"}
    assert rows(client, "state=queued") == {}
    jobs = [
        CurrentJobs(held.spool_id, AT, CurrentState.RUNNING, 3, "nova"),
        CurrentJobs("78", AT, CurrentState.RUNNING, 1, "nova"),
        CurrentJobs("79", AT, CurrentState.RUNNING, 2, "nova"),
    ]
    store_queue(cluster=cluster, jobs=jobs, origins={}, at=AT)
    assert {spool: row.log_job_id for spool, row in rows(client, "state=running").items()} == {
        held.spool_id: f"{held.spool_id}_0",
        "78": "78",
        "79": "",
    }
    page = client.get("/jobs/live/?state=running").content.decode()
    assert "/jobs/running/log/?cluster=farm&amp;job=78" in page


def test_number_of_queries_does_not_grow_with_rows(held, browse, shifter, cluster):
    client = browse(shifter)
    client.get("/jobs/live/?state=held")
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get("/jobs/live/?state=held")
    jobs = [CurrentJobs(str(200 + n), AT, HELD, 1, "nova", "JobHeldUser") for n in range(30)]
    store_queue(cluster=cluster, jobs=jobs, origins={}, at=AT)
    with CaptureQueriesContext(connection) as many:
        assert len(rows(client)) == 30
    assert len(many) <= len(few)


def test_unchanged_arrays_are_not_written(cluster, sent):
    jobs = [CurrentJobs(sent.spool_id, AT, HELD, 3, "nova", "JobHeldUser")]
    store_queue(cluster=cluster, jobs=jobs, origins={}, at=AT)
    row = LiveArray.objects.get()
    store_queue(cluster=cluster, jobs=jobs, origins={}, at=LATER)
    assert LiveArray.objects.get().pk == row.pk
    store_queue(cluster=cluster, jobs=[], origins={}, at=LATER)
    assert not LiveArray.objects.exists()
