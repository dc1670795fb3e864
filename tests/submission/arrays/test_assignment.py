"""Going on without failed jobs: who may, when, what follows, and that data quality is told."""

from datetime import timedelta

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.core.tasks import deliver_waiting
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, QueueReading
from apps.production.domain.approvals.inbox import inbox_items, waiting_for
from apps.production.domain.approvals.reminders import remind_of_waiting
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.outputs.acceptance import withdraw_acceptance
from apps.production.domain.outputs.counts import mark_located
from apps.production.enums import Verb
from apps.production.models import Request, Stage, StageAcceptance
from apps.progress.domain.needs import note_attention
from apps.progress.domain.production_report import report_of
from apps.progress.domain.progress import progress_now
from apps.progress.domain.transitions import complete_ended, has_ended
from apps.quality.domain.data_quality import data_quality_of
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.shortfalls import accept_stage, shortfalls_of
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.models import Submission
from tests.database import rolled_back
from tests.factories.requests import AT
from tests.factories.verdicts import judge


@pytest.fixture
def running(make, cluster, approver):
    return choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)


@pytest.fixture
def send(running, end_jobs):
    """Return a function that sends the next array and lets its jobs end."""

    def sent(failed=()):
        assert plan_next(assignment=running, at=AT) is not None
        array = dispatch.send(submission=dispatch.claim_next(cluster=running.cluster, at=AT), at=AT)
        jobs = end_jobs(array, failed=failed, at=AT)
        attach_origin(
            origins={job.pk: (running.request.key, array.stage_name) for job in jobs}, at=AT
        )
        dispatch.refresh_progress(cluster=running.cluster, at=AT)
        return array

    return sent


def accept(running, by, position=0, reason="The bug is in the generator: two of six are enough."):
    return accept_stage(request=running.request, position=position, by=by, at=AT, reason=reason)


def test_a_stage_is_taken_as_it_is_and_the_request_is_done_in_part(running, send, shifter):
    send()
    last = send(failed={1})
    judge(last, {1: "code"}, at=AT)
    assert plan_next(assignment=running, at=AT) is None, "the next stage waits for the failed one"
    row = accept(running, shifter)
    assert (row.jobs_missing, row.by) == (1, "shift-one")
    event = events_of(running.request).filter(kind="request.stage_accepted").get()
    assert (event.actor, event.data["missing"], event.data["name"]) == ("shift-one", 1, "one")
    send()
    send()
    recompute_dirty_hours(at=AT)
    one, two = progress_now(running.request, at=AT).stages
    assert (one.acceptance, two.acceptance) == (row, None)
    assert (one.events_missing, one.expected.basis) == (10, "accepted as is")
    assert [request.pk for request in complete_ended(at=AT)] == [running.request.pk]
    request = Request.objects.get(pk=running.request.pk)
    make_move(verb=Verb.REVIEW, request=request, by="opsportal", at=AT)
    assert data_quality_of(request).in_part
    with pytest.raises(InvalidTransition):
        make_move(verb=Verb.DONE, request=request, by=shifter, at=AT)


def test_not_while_jobs_may_still_come(running, send, approver, end_jobs, cluster):
    with pytest.raises(InvalidTransition, match="none of its jobs has completed"):
        accept(running, approver)
    plan_next(assignment=running, at=AT)
    with pytest.raises(InvalidTransition, match="4 jobs are being submitted"):
        accept(running, approver)
    array = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    with pytest.raises(InvalidTransition, match="4 jobs are queued or running"):
        accept(running, approver)
    end_jobs(array, failed={0}, at=AT)
    dispatch.refresh_progress(cluster=cluster, at=AT)
    with pytest.raises(InvalidTransition, match="previous stage still waits"):
        accept(running, approver, position=1)
    with pytest.raises(InvalidTransition, match="no such stage"):
        accept(running, approver, position=7)
    send(failed={0})
    retry_failed(request=running.request, position=0, by=approver, at=AT)
    with pytest.raises(InvalidTransition, match="being submitted"):
        accept(running, approver)


def test_only_the_opg_with_a_reason_and_once(running, send, approver, liaison, shifter):
    send()
    send(failed={0})
    with pytest.raises(NotAllowed):
        accept(running, liaison)
    with pytest.raises(InvalidFields):
        accept(running, approver, reason="  ")
    accept(running, approver)
    with pytest.raises(InvalidTransition, match="opg-one already accepted stage one"):
        accept(running, shifter)
    with pytest.raises(InvalidTransition, match="Revoke that first"):
        retry_failed(request=running.request, position=0, by=shifter, at=AT)


def test_nothing_is_taken_that_is_complete(running, send, approver):
    send()
    send()
    with pytest.raises(InvalidTransition, match="all of its jobs have completed"):
        accept(running, approver)


def test_missing_jobs_are_waited_for_again(running, send, approver, shifter):
    send()
    send(failed={0})
    accept(running, approver)
    withdraw_acceptance(
        request=running.request, position=0, by=shifter, at=AT, reason="The bug is mended."
    )
    assert not StageAcceptance.objects.exists()
    assert plan_next(assignment=running, at=AT) is None
    assert (
        len(retry_failed(request=running.request, position=0, by=shifter, at=AT).submissions) == 1
    )
    assert [
        stage.progress.sums.retried for stage in progress_now(running.request, at=AT).stages
    ] == [
        1,
        0,
    ]
    report = report_of(running.request, at=AT)
    assert (report["total"]["retried"], report["stages"][0]["retried"]) == (1, 1)
    with pytest.raises(InvalidTransition, match="this stage is not accepted"):
        withdraw_acceptance(request=running.request, position=0, by=shifter, at=AT, reason="Again.")


def test_failed_jobs_keep_the_request_open_until_somebody_decides(
    running, send, cluster, end_jobs, shifter, browse
):
    for _ in range(3):
        send()
    last = send(failed={0})
    later, request = AT + timedelta(days=30), running.request
    recompute_dirty_hours(at=later)
    Collection.objects.update(last_success_at=later)
    QueueReading.objects.create(cluster=cluster, at=later)
    (two,) = [
        stage.progress
        for stage in progress_now(request, at=later).stages
        if stage.progress.stage == "two"
    ]
    assert has_ended(two, at=later, settled=True), "all have ended, and for long"
    assert complete_ended(at=later) == []
    page = browse(shifter).get(f"/jobs/progress/{request.key}/").content.decode()
    assert "Some jobs did not complete." in page
    assert "six hours" not in page

    def complete_by_hand():
        make_move(
            verb=Verb.COMPLETE, request=Request.objects.get(pk=request.pk), by=shifter, at=later
        )

    def accept_stage():
        accept(running, shifter, position=1)
        assert complete_ended(at=later) == [request]

    def send_again():
        fresh = Request.objects.get(pk=request.pk)
        (again,) = retry_failed(request=fresh, position=1, by=shifter, at=AT).submissions
        assert again.retry_of == last
        assert complete_ended(at=later) == []
        again = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
        origins = {job.pk: (request.key, "two") for job in end_jobs(again, at=AT)}
        attach_origin(origins=origins, at=AT)
        recompute_dirty_hours(at=later)
        assert complete_ended(at=later) == [request]

    for decide in (complete_by_hand, accept_stage, send_again):
        with rolled_back():
            decide()
            assert Request.objects.get(pk=request.pk).state == "completing", decide


def test_jobs_that_were_sent_by_hand_are_judged_by_accounting(
    running, cluster, approver, end_jobs, send
):
    send()
    send(failed={0})
    running.request.submissions.all().delete()
    recompute_dirty_hours(at=AT)
    one, two = shortfalls_of(running.request, AT)
    assert (one.requested, one.completed, one.obstacle, one.events_missing) == (6, 5, "", 10)
    assert "none of its jobs" in two.obstacle
    accept(running, approver)


def test_the_page_and_the_api(running, send, browse, shifter, liaison):
    key = running.request.key
    url, api = f"/submissions/{key}/", f"/api/v1/submissions/{key}/"
    send()
    send(failed={0})
    page = browse(shifter).get(url).content.decode()
    assert "Continue without 1 job" in page
    assert "about 10 of 60 events will be missing" in page
    card = {
        who: browse(who).get(url, HTTP_HX_REQUEST="true").content.decode()
        for who in (shifter, liaison)
    }
    assert "Retry failed jobs or continue without them" in card[shifter]
    assert "Send failed jobs again" not in card[liaison]
    assert "Continue without" not in browse(liaison).get(url).content.decode()
    client = browse(shifter)
    assert client.post(f"{url}accept/", {"position": 0, "reason": ""}).status_code == 400
    wrong = client.post(f"{url}accept/", {"position": 0, "reason": "long " * 500}).content.decode()
    assert 'id="accept0_reason_error"' in wrong, "beside the field, where what was typed still is"
    assert "long long" in wrong
    wrong = client.post(f"{url}retry/", {"position": 0, "verdict": "fate"}).content.decode()
    assert ('id="retry0_verdict_error"' in wrong, 'id="accept0_reason_error"' in wrong) == (
        True,
        False,
    )
    page = client.post(
        f"{url}accept/", {"position": 0, "reason": "<b>Enough."}, follow=True
    ).content.decode()
    assert "continues without these jobs" in page
    assert "&lt;b&gt;Enough." in page
    assert "without 1 job" in " ".join(page.split())
    assert "Send failed jobs" not in page, "not before they are waited for again"
    assert (
        "shift-one</b> accepted stage one, 1 job missing"
        in browse(liaison).get(f"/requests/{key}/").content.decode()
    )
    progress = browse(liaison).get(f"/jobs/progress/{key}/").content.decode()
    assert "shift-one accepted 5 of 6 jobs: “&lt;b&gt;Enough.”" in progress
    (one, _) = browse(liaison).get(f"/api/v1/progress/{key}/").json()["stages"]
    taken = one["accepted"]
    assert (taken["by"], taken["jobs_missing"], taken["events_missing"]) == ("shift-one", 1, 10)
    json = {"content_type": "application/json"}
    assert (
        client.post(f"{api}accept/", {"position": 0, "reason": "Twice."}, **json).status_code == 409
    )
    assert (
        client.post(f"{api}wait-again/", {"position": 0, "reason": "Mended."}, **json).status_code
        == 200
    )
    assert (
        client.post(f"{api}accept/", {"position": 0, "reason": "After all."}, **json).status_code
        == 200
    )
    client.post(f"{url}wait-again/", {"position": 0, "reason": "Mended."})
    assert not StageAcceptance.objects.exists()


def test_the_next_stage_waits_until_outputs_are_where_they_must_be(
    running, send, browse, approver, liaison
):
    first = running.request.stages.get(position=0)
    first.arguments = {"catalogued": True}
    first.save(update_fields=["arguments"])
    send()
    send()
    assert plan_next(assignment=running, at=AT) is None
    page = browse(liaison).get(f"/submissions/{running.request.key}/").content.decode()
    assert "outputs not located yet: the next stage waits for them" in page
    mark_located(
        stage=Stage.objects.select_related("request__experiment").get(pk=first.pk),
        by=approver,
        at=AT,
    )
    assert plan_next(assignment=running, at=AT).stage_name == "two"
    assert (
        "not located yet"
        not in browse(liaison).get(f"/submissions/{running.request.key}/").content.decode()
    )


def test_failed_jobs_wait_in_the_inbox_of_the_opg(
    running, send, cluster, browse, shifter, liaison, approver
):
    def waits(user, minutes=31):
        note_attention(at=AT + timedelta(minutes=minutes))
        return list(waiting_for(user, AT + timedelta(minutes=minutes)))

    send()
    last = send(failed={0})
    assert waits(shifter, minutes=29) == [], "it may be sent again by itself"
    assert waits(shifter) == waits(approver) == waits(shifter, minutes=600) == [running.request]
    assert waits(liaison) == []
    assert "Retry its failed jobs or continue without them" in [
        turn.todo for turn in inbox_items(waits(shifter), shifter, AT)
    ]
    accept(running, shifter)
    assert waits(shifter) == []
    withdraw_acceptance(
        request=running.request, position=0, by=shifter, at=AT, reason="The bug is mended."
    )
    retry_failed(request=running.request, position=0, by=shifter, at=AT)
    assert waits(shifter) == []
    again = running.request.submissions.get(retry_of=last)
    again.state = "failed"
    again.save()
    assert waits(shifter, minutes=1) == [running.request], (
        "what the scheduler refused waits at once"
    )


def test_inbox_follows_at_once_what_is_decided_on_failed_jobs(running, send, shifter, monkeypatch):
    later = AT + timedelta(hours=1)
    send()
    send(failed={0})
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    assert [note_attention(at=later), note_attention(at=later)] == [1, 0]
    deliver_waiting()
    assert list(waiting_for(shifter, later)) == [running.request]
    retry_failed(request=running.request, position=0, by=shifter, at=later)
    deliver_waiting()
    assert list(waiting_for(shifter, later)) == []


def test_failed_jobs_that_wait_are_reminded_of_once_for_each_wait(
    running, send, shifter, approver, liaison
):
    """The wait is that of the jobs, not of the request: it began when their array had ended."""

    def remind(at):
        note_attention(at=at)
        return remind_of_waiting(at=at)

    days = timedelta(days=3)
    send()
    assert remind(AT + 9 * days) == 0, "nothing has failed"
    last = send(failed={0})
    later = AT + timedelta(days=1)
    Submission.objects.filter(pk=last.pk).update(settled_at=later)
    assert remind(AT + days) == 0
    assert remind(later + days) == 1
    told = Event.objects.get(kind="request.reminder")
    assert told.data["people"] == sorted([approver.username, shifter.username])
    running.request.refresh_from_db()
    (turn,) = inbox_items([running.request], shifter, later + days)
    assert told.data["since"] == turn.since.isoformat() == later.isoformat()
    assert told.reason.startswith(turn.todo)
    assert remind(later + 9 * days) == 0
    retry_failed(request=running.request, position=0, by=shifter, at=later + days)
    again = running.request.submissions.get(retry_of=last)
    assert remind(later + 9 * days) == 0
    Submission.objects.filter(pk=again.pk).update(state="failed", sending_at=later + days)
    assert remind(later + 2 * days) == 1, "what was refused is another wait"
    accept(running, shifter)
    assert remind(later + 9 * days) == 0
