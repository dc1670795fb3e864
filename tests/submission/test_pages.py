"""Pages, API and bundle."""

import subprocess
from dataclasses import replace
from datetime import timedelta

import pytest
from django.urls import reverse

from apps.clusters.models import Cluster
from apps.core.errors import InvalidFields, InvalidTransition
from apps.jobs.models import Job
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.priority.ranks import has_rank
from apps.production.enums import Verb
from apps.production.models import Attention
from apps.progress.domain.stage_counts import progress_of
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.enums import State
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.shortfalls import count_other_completed
from apps.submission.domain.arrays.submissions import stage_submissions_of
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import Assignment, Submission
from apps.submission.web.templatetags.sent_jobs import job_numbers, numbers_of_jobs
from tests.factories import clusters, statusboard
from tests.factories.bundles import unpack
from tests.factories.jobs import ran, record
from tests.factories.requests import AT
from tests.factories.verdicts import judge
from tests.pages import text_of

LATER = AT + timedelta(hours=1)


def test_an_operator_sends_a_request_by_its_page(browse, shifter, make, cluster, end_jobs):
    request = make("queued")
    client = browse(shifter)
    url = f"/submissions/{request.key}/"
    page = client.get(url).content.decode()
    assert "Submit to a cluster" in page
    assert "The portal has submitted nothing" in page
    first_stage = request.stages.get(position=0)
    text = text_of(client.get(url))
    assert f"The portal submits {first_stage.jobs} jobs of {first_stage.name}" in text
    assert page.partition("<main")[2].partition("</main>")[0].count('class="button main"') == 1
    assert "<summary>Limit and reason</summary>" in page
    assert "When its turn comes in the queue" in page
    answer = client.post(
        f"{url}assign/",
        {"cluster": "farm", "verb": "start", "version": request.version},
        follow=True,
    )
    assert "will be submitted to farm" in answer.content.decode()
    request.refresh_from_db()
    assert request.state == "running"
    plan_next(assignment=request.assignment, at=AT)
    submission = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    end_jobs(submission, failed={0, 2})
    dispatch.refresh_progress(cluster=cluster, at=AT)
    Job.objects.filter(spool_id=submission.spool_id).update(
        requested_memory_bytes=4_000_000_000, wall_seconds=900
    )
    page = " ".join(client.get(url).content.decode().split())
    requested = submission.tasks * 4 * 900 / 3600
    used = unused = requested / 2
    assert f"{used:.2g} <small>of {requested:.2g}, {unused:.2g} (50 %) unused</small>" in page
    assert "Retry failed jobs of one" in page
    assert "The portal has submitted nothing" not in page
    script = client.get(f"{url}1/script/")
    assert script.headers["Content-Type"].startswith("text/plain")
    assert script.content.decode() == submission.script
    client.post(f"{url}retry/", {"position": 0, "verdict": "", "reason": "SAM was down"})
    assert Submission.objects.get(number=2).indices == "0,2"
    answer = client.post(f"{url}retry/", {"position": 0}, follow=True)
    assert "no failed job" in answer.content.decode()
    assert Submission.objects.count() == 2


def test_a_liaison_sees_but_does_not_send(browse, liaison, make, cluster, approver):
    request = make("queued")
    client = browse(liaison)
    page = client.get(f"/submissions/{request.key}/").content.decode()
    assert "Submit to a cluster" not in page
    assert (
        client.post(f"/submissions/{request.key}/assign/", {"cluster": "farm"}).status_code == 403
    )
    assert client.get(f"/submissions/{request.key}/bundle/").status_code == 403


def test_the_page_of_a_request_leads_there(browse, liaison, make):
    request = make("queued")
    assert (
        f'hx-get="/submissions/{request.key}/"'
        in browse(liaison).get(f"/requests/{request.key}/").content.decode()
    )


def test_the_number_of_queries_does_not_grow(
    browse, shifter, make, cluster, approver, end_jobs, django_assert_max_num_queries
):
    request = make("queued")
    assignment = assign_request(
        request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START
    )
    client = browse(shifter)

    def count() -> int:
        with django_assert_max_num_queries(60) as queries:
            assert client.get(f"/submissions/{request.key}/").status_code == 200
        return len(queries)

    def send() -> None:
        plan_next(assignment=assignment, at=AT)
        end_jobs(
            dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT), failed={0}
        )

    send()
    before = count()
    send()
    assert count() == before


def test_what_cannot_be_sent_is_told_before_anything_moves(make, cluster, approver, nova, liaison):
    request = make("queued")
    request.stages.filter(position=1).update(configuration="-x")
    with pytest.raises(InvalidFields, match="taken as an option"):
        assign_request(request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START)
    other = clusters.cluster("pbs", "torque", submits=True)
    with pytest.raises(InvalidTransition, match="cannot submit"):
        assign_request(request=make("queued"), cluster=other, by=approver, at=AT)
    request.refresh_from_db()
    assert request.state == "queued"


def test_the_bundle_submits_each_stage_after_the_one_before(browse, approver, make, fake):
    request = make("queued")
    answer = browse(approver).get(f"/submissions/{request.key}/bundle/")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{request.key}.tar"'
    unpack(answer.content, fake.directory)
    home = fake.directory / request.key
    assert {path.name for path in home.iterdir()} == {
        "README",
        "stage-1.sh",
        "stage-2.sh",
        "submit.sh",
    }
    environment = {"PATH": f"{fake.directory}:/usr/bin:/bin"}
    subprocess.run(
        [home / "submit.sh", "--account=x y"],
        env=environment,
        check=True,
        timeout=30,
        capture_output=True,
    )
    assert [name for _, name in fake.jobs()] == [f"{request.key}.1", f"{request.key}.2"]
    assert fake.options("100")[-3:] == ["--account=x y", "stage-1.sh", "0"]
    assert "--dependency=afterok:100" in fake.options("101")
    assert fake.environment("101")["OPSPORTAL_STAGE"] == "two"


def test_the_api_sends_lists_and_retries(browse, approver, make, cluster, end_jobs):
    request = make("queued")
    client = browse(approver)
    url = f"/api/v1/submissions/{request.key}/"
    assert client.get(url).json() == []
    json = {"content_type": "application/json"}
    assert client.post(f"{url}assign/", {"cluster": "nowhere"}, **json).status_code == 400
    assert (
        client.post(f"{url}assign/", {"cluster": "farm", "begin": "start"}, **json).status_code
        == 200
    )
    plan_next(assignment=request.assignment, at=AT)
    end_jobs(
        dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT), failed={3}
    )
    dispatch.refresh_progress(cluster=cluster, at=AT)
    assert (
        client.post(f"{url}retry/", {"position": 0, "verdict": "service"}, **json).status_code
        == 409
    )
    rows = client.post(f"{url}retry/", {"position": 0}, **json).json()
    assert [(row["number"], row["state"], row["indices"], row["retry_of"]) for row in rows] == [
        (1, "sent", "", None),
        (2, "planned", "3", 1),
    ]
    assert client.get(f"{url}bundle/").headers["Content-Type"] == "application/x-tar"


@pytest.mark.parametrize(
    "options",
    [
        [],
        {"account": "--uid=0"},
        {"directory": "relative"},
        {"array_size": 0},
        {"colour": 1},
        {"accounts": {"A": 3}},
    ],
)
def test_wrong_options_of_a_cluster_are_refused_in_the_back_office(db, options):
    from django.core.exceptions import ValidationError

    with pytest.raises(ValidationError):
        Cluster(name="x", scheduler="slurm", submission=options).full_clean()


def test_the_page_says_whether_it_begins_by_itself(browse, liaison, make, cluster, approver):
    request = make("queued")
    url = f"/submissions/{request.key}/"
    client = browse(liaison)
    assert (
        "Starts automatically on farm when there is capacity; rank 1"
        in client.get(url).content.decode()
    )
    announcement = post_announcement(title="Power cut", by=approver, at=AT, do_not_submit=True)
    page = client.get(url).content.decode()
    assert "Not starting now:" in page
    assert announcement.title in page
    own = request.get_absolute_url()
    assert "Requests start in order of rank." in client.get(own).content.decode()
    Cluster.objects.update(submits=False)
    assert "No cluster starts this request automatically" in client.get(url).content.decode()
    page = client.get(own).content.decode()
    assert "An approver or shifter must start it" in page
    assert "Next action · approvers and shifters" in page


def test_the_start_and_the_choice_of_a_cluster_are_one_step(browse, make, cluster, approver):
    request = make("queued")
    client = browse(approver)
    dialog = text_of(client.get(f"{request.get_absolute_url()}?do=start"))
    assert '<option value="farm">farm</option>' in dialog
    assert "Choose a cluster" not in dialog, "there is only one"
    move = reverse("portal:request-move", args=[request.key, "start"])
    client.post(move, {"cluster": "farm", "version": request.version})
    request.refresh_from_db()
    assert (request.state, request.assignment.cluster) == ("running", cluster)

    clusters.cluster(name="grid", scheduler="slurm", submits=True)
    other = make("queued")
    move = reverse("portal:request-move", args=[other.key, "start"])
    page = client.post(move, {"cluster": "", "version": other.version})
    assert "Choose a cluster, or that its jobs are submitted by hand." in text_of(page)
    limited = make("queued")
    move_limited = reverse("portal:request-move", args=[limited.key, "start"])
    data = {"cluster": "grid", "most_in_flight": 7, "version": limited.version}
    client.post(move_limited, data)
    assert Assignment.objects.get(request=limited).most_in_flight == 7
    client.post(move, {"cluster": "by-hand", "version": other.version})
    other.refresh_from_db()
    assert other.state == "running"
    assert not hasattr(other, "assignment")


def test_the_start_says_that_no_cluster_is_chosen(browse, liaison, make, cluster, approver):
    request = make("queued")
    own = request.get_absolute_url()
    choose = f'href="/submissions/{request.key}/#cluster"'
    client = browse(approver)
    dialog = text_of(client.get(f"{own}?do=start"))
    assert "None: its jobs are submitted by hand" in dialog
    assert "Limit concurrent jobs" in dialog
    make_move(verb=Verb.START, request=request, by=approver, at=AT)
    Attention.objects.create(request=request, kind="late", since=AT, words="its deadline passed")
    assert 'name="verb"' not in client.get(f"/submissions/{request.key}/").text
    page = text_of(client.get(own))
    assert "Next action · approvers and shifters" in page
    assert "Started, but no cluster is chosen." in page
    assert choose in page
    assert choose not in text_of(browse(liaison).get(own))

    choose_cluster(request=request, cluster=cluster, by=approver, at=AT)
    page = text_of(client.get(own))
    assert "no cluster is chosen" not in page
    assert choose not in page


def test_start_without_jobs_is_returned_to_the_queue(browse, make, cluster, approver):
    request = make("queued")
    make_move(verb=Verb.START, request=request, by=approver, at=AT)
    client = browse(approver)
    own = request.get_absolute_url()
    assert "Return to queue" in text_of(client.get(own))
    move = reverse("portal:request-move", args=[request.key, "return-to-queue"])
    client.post(move, {"reason": "Started too early.", "version": request.version})
    request.refresh_from_db()
    assert (request.state, request.work_began_at) == ("queued", None)
    assert has_rank(request)

    started = assign_request(request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START)
    assert plan_next(assignment=started, at=AT)
    assert "4 planned jobs will be discarded" in text_of(client.get(f"{own}?do=return-to-queue"))
    request = started.request
    request.refresh_from_db()
    client.post(move, {"reason": "Wrong cluster.", "version": request.version})
    request.refresh_from_db()
    assert request.state == "queued"
    assert not request.submissions.exists()

    make_move(verb=Verb.START, request=request, by=approver, at=AT)
    assert plan_next(assignment=Assignment.objects.get(request=request), at=AT)
    dispatch.claim_next(cluster=cluster, at=AT)
    assert "Return to queue" not in text_of(client.get(own))
    assert "has submitted jobs" in text_of(client.get(f"{own}?do=return-to-queue"))


def test_started_request_needs_no_cluster_where_none_submits(browse, make, cluster, approver):
    request = make("queued")
    Cluster.objects.update(submits=False)
    client = browse(approver)
    own = request.get_absolute_url()
    assert "No cluster is chosen" not in text_of(client.get(f"{own}?do=start"))
    make_move(verb=Verb.START, request=request, by=approver, at=AT)
    assert "no cluster is chosen" not in text_of(client.get(own))


def test_sent_jobs_are_ended_after_a_confirmation(
    browse, shifter, liaison, make, cluster, approver, end_jobs
):
    request = make("queued")
    assignment = assign_request(
        request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START
    )
    client, url = browse(shifter), f"/submissions/{request.key}/cancel/"
    assert "No jobs in a scheduler" in client.get(url).content.decode()
    plan_next(assignment=assignment, at=AT)
    dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    assert "Cancel submitted jobs…" in client.get(f"/submissions/{request.key}/").content.decode()
    assert "4 queued and running jobs on farm will be cancelled" in client.get(url).content.decode()
    assert client.post(url, {"reason": ""}).status_code == 400
    note = browse(liaison).get(f"/requests/{request.key}/?do=cancel").content.decode()
    assert "4 submitted jobs on farm will be cancelled." in note
    note = client.get(f"/requests/{request.key}/?do=hold").content.decode()
    assert "queued jobs will be held" in note
    assert (
        "will be cancelled"
        in client.post(url, {"reason": "Wrong partition."}, follow=True).content.decode()
    )
    assert Submission.objects.get().cancel_requested_at == AT
    api = f"/api/v1/submissions/{request.key}/cancel/"
    assert (
        client.post(api, {"reason": "Again."}, content_type="application/json").status_code == 409
    )


def test_the_page_shows_how_the_test_went(browse, liaison, make, cluster, approver, end_jobs):
    request = make("queued")
    assignment = assign_request(
        request=request, cluster=cluster, by=approver, at=AT, verb=Verb.TEST
    )
    plan_next(assignment=assignment, at=AT)
    test = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    client, url = browse(liaison), f"/submissions/{request.key}/"
    assert "Test of one:" in client.get(url).content.decode()
    end_jobs(test)
    dispatch.refresh_progress(cluster=cluster, at=AT)
    page = client.get(url).content.decode()
    assert "good" in page
    assert "30 min, 2 GB" in page
    plan_next(assignment=assignment, at=AT)
    test = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    end_jobs(test, failed={0})
    dispatch.refresh_progress(cluster=cluster, at=AT)
    assert "Waiting for the verdict." in client.get(url).content.decode()
    judge(test, {0: "service"}, at=AT, service="samweb")
    repeated = "The test is repeated once the service is up."
    assert repeated in client.get(url).content.decode()
    summary = text_of(client.get(f"/requests/{request.key}/"))
    assert "The test of two failed." in summary
    assert repeated in summary
    assert "Production starts once the test passes." not in summary


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ("7", "7"),
        ("3,17-19", "3, 17–19"),
        ("108,409,433", "108, 409, 433"),
        ("1,3,5,7,9,11,13,15", "1, 3, 5, 7, 9, 11, 13, 15"),
        ("1,3,5,7,9,11,13,15,17-99,101", "1, 3, 5, 7, 9, 11, 13, 15, …"),
    ],
)
def test_numbers_of_jobs_are_not_read_as_one(ranges, told):
    assert numbers_of_jobs(ranges) == told


def test_numbers_of_consecutive_jobs_are_a_range():
    assert job_numbers(Submission(first=0, tasks=60)) == "0–59"
    assert job_numbers(Submission(first=7, tasks=1)) == "7"
    assert job_numbers(Submission(first=3, tasks=4, indices="3,17-19")) == "3, 17–19"


@pytest.mark.parametrize(
    ("state", "waits"), [("running", True), ("completing", False), ("done", False)]
)
def test_only_a_request_that_submits_jobs_waits_for_a_service(state, waits, browse, shifter, make):
    samweb = statusboard.service("samweb", AT)
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=AT)
    request = make(state)
    request.stages.first().services.add(samweb)
    page = browse(shifter).get(f"/submissions/{request.key}/").content.decode()
    assert ("samweb is down" in page.partition("<main")[2]) is waits


def test_completed_jobs_that_the_portal_did_not_submit_are_told(
    browse, liaison, make, cluster, approver
):
    """Else the progress of the stage would contradict its submissions."""
    request = make("queued")
    assign_request(request=request, cluster=cluster, verb=Verb.START, by=approver, at=AT)
    plan_next(assignment=request.assignment, at=AT)
    submission = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    submission.refresh_from_db()
    by_hand = record(1, submitted_at=AT, started_at=AT, ended_at=LATER)
    of_the_portal = [
        replace(by_hand, job_id=f"{submission.spool_id}_{task}", spool_id=submission.spool_id)
        for task in range(submission.tasks)
    ]
    ran(cluster, request.key, "one", by_hand, *of_the_portal, at=LATER)
    (first, _) = rows = stage_submissions_of(request)
    count_other_completed(request, rows)
    assert (first.completed, first.running, first.other_completed) == (0, submission.tasks, 0)
    dispatch.refresh_progress(cluster=cluster, at=LATER)

    (first, second) = stage_submissions_of(request)
    count_other_completed(request, (first, second))
    completed = progress_of(request)[0].completed
    assert (first.completed, first.other_completed) == (submission.tasks, 1)
    assert first.completed + first.other_completed == completed
    assert second.other_completed == 0
    page = browse(liaison).get(f"/submissions/{request.key}/").content.decode()
    assert page.count("not submitted here") == 1
    assert "and 1 not submitted here" in page
