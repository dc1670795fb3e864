"""Batches of retries: the dry run, the steps, what stops them, what came of them, and who may."""

import threading
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.slurm.submission import options_of
from apps.core.errors import DomainError, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.enums import State
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.ignored_advice import ignore_advice
from apps.submission.domain.arrays.plan import lock_request, plan_next, plan_retry
from apps.submission.domain.arrays.rows import batch_job
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries import release
from apps.submission.domain.retries.batches import (
    cancel_batch,
    counts_of,
    default_step,
    dry_run,
    latest_batches,
    may_change,
    plan_batch,
    resume_batch,
)
from apps.submission.domain.retries.eligibility import RetryLimits, reserved_indices
from apps.submission.domain.retries.links import count_alike
from apps.submission.domain.retries.release import advance_batch, fails_again
from apps.submission.enums import LeftOut
from apps.submission.models import RetryBatch, RetryJob, Submission
from tests.factories import people, statusboard
from tests.factories.requests import AT, draft
from tests.factories.submissions import retry_failed
from tests.factories.verdicts import failure_group, judge
from tests.pages import text_of

LATER = AT + timedelta(minutes=10)
YEAR = timedelta(days=365)
ANY = RetryLimits()


@pytest.fixture
def running(make, cluster, approver):
    return choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)


@pytest.fixture
def group(db):
    return failure_group(at=AT)


@pytest.fixture
def end(running, end_jobs, group):
    """Return a function that sends what is due, lets tasks of it fail because of samweb,
    and puts them in the group.
    """

    def ending(failed, *, at=LATER, service=""):
        plan_next(assignment=running, at=at)
        sent = dispatch.send(submission=dispatch.claim_next(cluster=running.cluster, at=at), at=at)
        end_jobs(sent, failed=set(failed), at=at)
        dispatch.refresh_progress(cluster=running.cluster, at=at)
        judge(sent, dict.fromkeys(failed, "service"), at=at, service=service)
        group.verdicts.model.objects.filter(group=None).update(group=group)
        return sent

    return ending


def reasons(retries):
    return {reason.value: len(rows) for reason, rows in retries.left_out.items()}


def test_batch_is_released_in_steps_and_its_outcome_counted(running, end, group, shifter):
    sent = end({0, 1, 2})
    retries = dry_run(source=group, user=shifter, limits=ANY, at=LATER)
    assert (retries.jobs, len(retries.eligible), retries.stages) == (
        3,
        3,
        [(running.request.key, "one", 3)],
    )
    batch = plan_batch(source=group, by=shifter, at=LATER, step=2, pause_minutes=5, attempts=3)
    assert reasons(dry_run(source=group, user=shifter, limits=ANY, at=LATER)) == {"in-batch": 3}
    assert advance_batch(batch=batch, at=LATER) == 2
    assert advance_batch(batch=batch, at=LATER + timedelta(minutes=4)) == 0
    group.refresh_from_db()
    assert (group.status, group.owner) == ("assigned", shifter.username)
    assert group.retry_batches.get().state == "releasing"
    end({1})
    assert advance_batch(batch=batch, at=LATER + timedelta(minutes=5)) == 1
    assert counts_of(batch) == {"released": 1, "succeeded": 1, "failed": 1}
    group.refresh_from_db()
    assert (group.status, group.retry_batches.get().state) == ("retried", "released")
    end((), at=LATER + timedelta(hours=1))
    advance_batch(batch=batch, at=LATER + timedelta(hours=2))
    assert counts_of(batch) == {"succeeded": 2, "failed": 1}
    finished = Event.objects.get(kind="retry.finished")
    assert finished.data == {"batch": batch.pk, "succeeded": 2, "jobs": 3}
    assert (finished.target_label, batch.jobs.first().submission.retry_of) == (str(group), sent)


def test_dry_run_names_why_jobs_are_left_out(running, end, group, shifter, liaison, cluster):
    sent = end({0, 1, 2})
    assert reasons(dry_run(source=group, user=liaison, limits=ANY, at=LATER)) == {"forbidden": 3}
    assert reasons(
        dry_run(source=group, user=shifter, limits=RetryLimits(attempts=1), at=LATER)
    ) == {"attempts": 3}
    assert reasons(
        dry_run(source=group, user=shifter, limits=RetryLimits(of_stage=1), at=LATER)
    ) == {"budget": 2}
    judged = group.verdicts.order_by("job__job_id")
    judged.filter(pk=judged[0].pk).update(later_state="completed")
    Submission.objects.filter(pk=sent.pk).update(failed_indices="0,2")
    cluster.submits = False
    cluster.save()
    retries = dry_run(source=group, user=shifter, limits=ANY, at=LATER)
    assert reasons(retries) == {"succeeded": 1, "unsettled": 1, "cluster": 1}
    with pytest.raises(InvalidTransition):
        plan_batch(source=group, by=shifter, at=LATER)


def test_batch_waits_for_the_service(running, end, group, shifter, approver):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    incident = open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=AT)
    end({0}, service="samweb")
    batch = plan_batch(source=group, by=shifter, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 0
    close_incident(incident=incident, by=approver, at=LATER, reason="It answers.")
    assert advance_batch(batch=batch, at=LATER) == 1


@pytest.fixture
def outage(approver):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    started_at = AT - timedelta(hours=2)
    return open_incident(
        service=samweb, state=State.DOWN, title="503", by=approver, at=AT, started_at=started_at
    )


def batch_texts(client, batch):
    """Return the texts of the page of a batch and of the list of batches."""
    return [text_of(client.get(address)) for address in (batch.get_absolute_url(), "/retries/")]


def test_pages_of_a_batch_name_the_service_that_all_jobs_wait_for(
    browse, running, end, group, shifter, approver, outage
):
    end({0, 1, 2}, service="samweb")
    batch = plan_batch(source=group, by=shifter, at=LATER, step=1)
    client = browse(shifter)
    waiting = (
        f'Waiting for <a href="{outage.service.get_absolute_url()}">samweb</a> (down since <time'
    )
    for page in batch_texts(client, batch):
        assert waiting in page
        assert "eleasing" not in page
    [obstacle] = client.get(f"/api/v1/retry-batches/{batch.pk}/").json()["waiting_for"]
    assert (obstacle["service"], obstacle["announcement"]) == ("samweb", None)
    assert datetime.fromisoformat(obstacle["down_since"]) == outage.started_at

    group.verdicts.filter(pk=group.verdicts.first().pk).update(service="")
    for page in batch_texts(client, batch):
        assert "eleasing" in page, "one job can be released"
    assert advance_batch(batch=batch, at=LATER) == 1
    assert all(waiting in page for page in batch_texts(client, batch))

    close_incident(incident=outage, by=approver, at=AT, reason="It answers.")
    assert not any(waiting in page for page in batch_texts(client, batch))
    assert client.get("/api/v1/retry-batches/").json()["results"][0]["waiting_for"] == []


def test_batch_that_is_not_releasing_waits_for_nothing(
    browse, running, end, group, shifter, outage
):
    end({0, 1}, service="samweb")
    batch = plan_batch(source=group, by=shifter, at=LATER)
    cancel_batch(batch=batch, by=shifter, at=LATER)
    assert not any("Waiting for" in page for page in batch_texts(browse(shifter), batch))


def test_what_batches_wait_for_is_read_for_all_at_once(
    client, running, end, group, shifter, outage, django_assert_num_queries
):
    end({0, 1, 2}, service="samweb")
    first, *others = [verdict.job for verdict in group.verdicts.all()]
    plan_batch(source=first, by=shifter, at=LATER)
    client.force_login(shifter)
    numbers = {}
    for address in ("/retries/", "/api/v1/retry-batches/"):
        with CaptureQueriesContext(connection) as queries:
            client.get(address)
        numbers[address] = len(queries)
    for job in others:
        plan_batch(source=job, by=shifter, at=LATER)
    for address, number in numbers.items():
        with django_assert_num_queries(number):
            client.get(address)


def test_batch_follows_the_advice_unless_its_request_ignores_it(
    running, end, group, shifter, approver, browse
):
    end({0, 1})
    job = group.verdicts.first().job
    post_announcement(title="<b>Power cut", by=approver, at=AT, do_not_submit=True)
    page = text_of(browse(shifter).get(f"/retries/job/{job.pk}/"))
    assert "“&lt;b&gt;Power cut”: do not submit. 1 job waits until" in page
    batch = plan_batch(source=group, by=shifter, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 0
    for page in batch_texts(browse(shifter), batch):
        assert "Waiting for the end of “&lt;b&gt;Power cut”" in page
    ignore_advice(
        request=running.request, by=approver, at=LATER, reason="It reads no files.", hours=2
    )
    assert advance_batch(batch=batch, at=LATER) == 2


def test_what_is_not_released_can_be_cancelled(running, end, group, shifter, liaison):
    end({0, 1, 2})
    batch = plan_batch(source=group, by=shifter, at=LATER, step=1)
    advance_batch(batch=batch, at=LATER)
    with pytest.raises(NotAllowed):
        cancel_batch(batch=batch, by=liaison, at=LATER)
    assert cancel_batch(batch=batch, by=shifter, at=LATER) == 2
    advance_batch(batch=batch, at=LATER + timedelta(hours=1))
    assert counts_of(batch) == {"released": 1, "cancelled": 2}
    assert len(dry_run(source=group, user=shifter, limits=ANY, at=LATER).eligible) == 2
    end(())
    advance_batch(batch=batch, at=LATER + timedelta(hours=1))
    assert counts_of(batch) == {"succeeded": 1, "cancelled": 2}, "released ones are counted back"


def test_group_that_is_someones_stays_theirs_during_a_batch(end, group, shifter):
    end({0, 1})
    group.status, group.owner = "assigned", "shift-two"
    group.save()
    plan_batch(source=group, by=shifter, at=LATER)
    group.refresh_from_db()
    assert (group.status, group.owner) == ("assigned", "shift-two")


def test_batch_stops_when_too_many_fail_again(running, end, group, shifter, monkeypatch):
    monkeypatch.setattr("apps.submission.domain.retries.release.STOP_FROM", 1)
    end({0, 1})
    batch = plan_batch(source=group, by=shifter, at=LATER, step=1, pause_minutes=0)
    advance_batch(batch=batch, at=LATER)
    end({0})
    assert advance_batch(batch=batch, at=LATER) == 0
    batch.refresh_from_db()
    assert batch.state == "stopped"
    resume_batch(batch=batch, by=shifter, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 1


@pytest.mark.parametrize(
    ("categories", "state"),
    [(("memory", "memory"), "stopped"), (("memory", "network"), "releasing")],
)
def test_batch_stops_when_retries_fail_alike(
    running, end, group, shifter, monkeypatch, categories, state
):
    monkeypatch.setattr("apps.submission.domain.retries.release.STOP_FROM", 3)
    monkeypatch.setattr("apps.submission.domain.retries.release.STOP_ALIKE_SHARE", 0.5)
    monkeypatch.setattr("apps.submission.domain.retries.release.STOP_ANY_SHARE", 0.7)
    end({0, 1, 2, 3})
    batch = plan_batch(source=group, by=shifter, at=LATER, step=3, pause_minutes=5)
    advance_batch(batch=batch, at=LATER)
    retry = end({0, 1})
    verdicts = Verdict.objects.filter(job__spool_id=retry.spool_id).order_by("job__job_id")
    for verdict, category in zip(verdicts, categories, strict=True):
        verdict.group = None
        verdict.category = category
        verdict.save()

    advance_batch(batch=batch, at=LATER)
    batch.refresh_from_db()
    assert batch.state == state


def test_retries_in_one_group_or_of_one_category_failed_alike(running, end, group, shifter):
    other_group = failure_group(at=AT, fingerprint="g", verdict="code", title="segmentation fault")
    end({0, 1, 2})
    batch = plan_batch(source=group, by=shifter, at=LATER, step=3)
    advance_batch(batch=batch, at=LATER)
    retry = end({0, 1, 2})
    batch.jobs.update(state="failed")
    verdicts = Verdict.objects.filter(job__spool_id=retry.spool_id).order_by("job__job_id")
    first, second, third = verdicts
    assert count_alike(batch) == 3

    verdicts.filter(pk=first.pk).update(group=other_group)
    assert count_alike(batch) == 2, "the others are in one group"
    verdicts.filter(pk=second.pk).update(group=None)
    assert count_alike(batch) == 1, "one in each group, one in none"
    verdicts.update(group=None)
    assert count_alike(batch) == 3, "of one category"
    verdicts.filter(pk=third.pk).delete()
    assert count_alike(batch) == 2, "the log of the third is being read"


def test_job_with_the_recycled_id_of_a_retry_is_none(running, end, group, shifter):
    end({0, 1})
    batch = plan_batch(source=group, by=shifter, at=LATER, step=2)
    advance_batch(batch=batch, at=LATER)
    retry = end({0, 1})
    batch.jobs.update(state="failed")
    assert count_alike(batch) == 2
    jobs = Job.objects.filter(spool_id=retry.spool_id).order_by("pk")
    jobs.filter(pk=jobs[0].pk).update(submitted_at=AT - YEAR)
    assert count_alike(batch) == 1


@given(alike=st.integers(0, 60), others=st.integers(0, 60), succeeded=st.integers(0, 60))
def test_batch_that_stops_would_stop_with_one_more_failure(alike, others, succeeded):
    failed = alike + others
    ended = failed + succeeded
    stops = fails_again(failed=failed, alike=alike, ended=ended)
    assert not (stops and ended < 5)
    assert not (stops and failed <= 0.1 * ended)
    assert not (stops and alike <= 0.1 * ended and failed <= 0.5 * ended)
    if stops:
        assert fails_again(failed=failed + 1, alike=alike + 1, ended=ended + 1)


@pytest.mark.parametrize(
    ("jobs", "step"), [(1, 5), (6, 5), (26, 6), (50, 10), (51, 11), (250, 50), (5000, 50)]
)
def test_default_step_leaves_jobs_that_a_stop_can_save(jobs, step):
    assert default_step(jobs) == step


def test_what_was_retried_meanwhile_is_left_out(end, group, shifter):
    failed = end({0})
    batch = plan_batch(source=group, by=shifter, at=LATER)
    retry_failed(failed, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 0
    assert batch.jobs.get().why == LeftOut.IN_FLIGHT.label


@pytest.mark.django_db(transaction=True)
def test_two_at_once_never_retry_a_job_twice(running, end, group, shifter):
    end({0, 1})
    made, refused = [], []

    def plan():
        try:
            batch = plan_batch(source=group, by=shifter, at=LATER)
            made.append(advance_batch(batch=batch, at=LATER))
        except DomainError as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=plan) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (made, len(refused)) == ([2], 1)
    assert Submission.objects.exclude(retry_of=None).get().indices == "0-1"


def test_pages_show_the_dry_run_then_the_batch(browse, running, end, group, shifter, liaison):
    end({0, 1})
    group.verdicts.update(advice="retry")
    job = group.verdicts.order_by("job__job_id")[0].job
    url = f"/retries/job/{job.pk}/"
    client = browse(shifter)
    page = client.get(url).content.decode()
    assert "Retry 1 job" in page
    assert "submission:" not in page
    assert "forbidden" in browse(liaison).get(url).content.decode()
    assert job.job_id in client.get(f"{url}?list=eligible&format=csv").content.decode()
    assert "No job is left out" in client.get(f"{url}?list=budget").content.decode()
    assert (
        client.get(f"{url}?list=a%0Ab&format=csv")
        .headers["Content-Disposition"]
        .endswith('-eligible.csv"')
    )
    assert client.post(url, {"step": 0}).status_code == 400
    given = {"step": 10, "pause_minutes": 5, "attempts": 3, "reason": "samweb is back"}
    answer = client.post(url, given, follow=True)
    batch = RetryBatch.objects.get()
    assert answer.redirect_chain == [(batch.get_absolute_url(), 302)]
    assert "1 job will be retried" in answer.content.decode()
    assert batch.get_absolute_url() in client.get("/retries/").content.decode()
    assert (
        browse(liaison).post(f"{batch.get_absolute_url()}act/", {"do": "cancel"}).status_code == 403
    )
    client.post(f"{batch.get_absolute_url()}act/", {"do": "cancel", "reason": "by mistake"})
    assert (
        "by mistake" in client.get(batch.get_absolute_url() + "?state=cancelled").content.decode()
    )
    assert "in another batch" not in client.get(url).content.decode()


def test_batches_in_the_api(client, running, end, group, shifter, liaison):
    end({0, 1})
    query = f"/api/v1/retry-batches/dry-run/?kind=job&id={group.verdicts.first().job_id}"
    client.force_login(liaison)
    assert client.get(query).json()["left_out"] == {"forbidden": [group.verdicts.first().job_id]}
    client.force_login(shifter)
    assert client.get(query).json()["eligible"] == [group.verdicts.first().job_id]
    job_source = {"kind": "job", "id": group.verdicts.first().job_id}
    made = client.post("/api/v1/retry-batches/", job_source, content_type="application/json")
    assert (made.status_code, made.json()["jobs"]) == (201, {"waiting": 1})
    again = client.post("/api/v1/retry-batches/", job_source, content_type="application/json")
    assert again.status_code == 409, "nothing is left to retry"
    [listed] = client.get("/api/v1/retry-batches/").json()["results"]
    cancelled = client.post(
        f"/api/v1/retry-batches/{listed['id']}/cancel/", {}, content_type="application/json"
    )
    assert cancelled.json()["jobs"] == {"cancelled": 1}
    wrong = client.post(
        "/api/v1/retry-batches/", {"kind": "job", "id": 10**9}, content_type="application/json"
    )
    assert wrong.status_code == 400


def test_list_in_the_api_counts_all_batches_at_once(
    client, running, end, group, shifter, django_assert_num_queries
):
    end({0, 1, 2})
    first, *others = [verdict.job for verdict in group.verdicts.all()]
    plan_batch(source=first, by=shifter, at=LATER)
    client.force_login(shifter)
    with CaptureQueriesContext(connection) as queries_of_one:
        client.get("/api/v1/retry-batches/")
    for job in others:
        plan_batch(source=job, by=shifter, at=LATER)
    with django_assert_num_queries(len(queries_of_one)):
        listed = client.get("/api/v1/retry-batches/").json()["results"]
    assert [row["jobs"] for row in listed] == [{"waiting": 1}] * 3


def test_earlier_batches_are_of_jobs_that_the_user_sees(running, end, group, shifter, dune, nova):
    end({0, 1})
    batch = plan_batch(source=group, by=shifter, at=LATER)
    assert latest_batches(group, people.person("ours", ("liaison", nova))) == [batch]
    assert latest_batches(group, people.person("theirs", ("liaison", dune))) == []


def test_batch_finishes_when_its_request_is_closed_before_retries_are_submitted(
    running, end, group, shifter
):
    end({0, 1})
    batch = plan_batch(source=group, by=shifter, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 2
    running.request.__class__.objects.filter(pk=running.request.pk).update(
        state="cancelled", closed_at=LATER
    )
    advance_batch(batch=batch, at=LATER)
    batch.refresh_from_db()
    assert (batch.state, counts_of(batch)) == ("finished", {"left_out": 2})


def test_recycled_id_gives_a_batch_no_other_request(
    running, end, group, shifter, other_liaison, nova, dune
):
    sent = end({0, 1})
    batch = plan_batch(source=group, by=shifter, at=LATER)
    ours = people.person("ours", ("shifter", nova))
    assert may_change(ours, batch)
    later = Submission.objects.get(pk=sent.pk)
    later.pk, later.token, later.request, later.sent_at = (
        None,
        uuid4(),
        draft(other_liaison, dune),
        LATER + YEAR,
    )
    later.save(force_insert=True)
    assert may_change(ours, batch)
    assert (reserved_indices(sent), reserved_indices(later)) == ({0, 1}, set())


def test_batch_that_fails_is_recorded_and_keeps_no_other_waiting(
    running, end, group, shifter, monkeypatch
):
    end({0})
    batch = plan_batch(source=group, by=shifter, at=LATER)

    def fail(batch):
        raise ValueError("no counts")

    with monkeypatch.context() as patch:
        patch.setattr(release, "_count", fail)
        assert advance_batch(batch=batch, at=LATER) == 0
    batch.refresh_from_db()
    assert (batch.attempts, batch.last_error) == (1, "ValueError: no counts")
    assert batch.due_at == LATER + timedelta(seconds=15)
    assert not release.BATCHES.due(LATER).exists()
    assert advance_batch(batch=batch, at=batch.due_at) == 1
    batch.refresh_from_db()
    assert (batch.attempts, batch.last_error) == (0, "")


def test_retries_ask_for_changed_resources_and_keep_them(running, end, group, shifter):
    end({0, 1, 2})
    batch = plan_batch(source=group, by=shifter, at=LATER)
    jobs = list(batch.jobs.order_by("job__job_id"))
    more_memory = {"memory_bytes": 7 * 1024**3}
    RetryJob.objects.filter(pk__in=[jobs[0].pk, jobs[2].pk]).update(changes=more_memory)
    RetryJob.objects.filter(pk=jobs[1].pk).update(changes={"avoided_hosts": ["wn-1", "wn-2"]})
    advance_batch(batch=batch, at=LATER)

    retries = list(Submission.objects.exclude(retry_of=None).order_by("indices"))
    stage = running.request.stages.get(position=0)
    assert [retry.indices for retry in retries] == ["0,2", "1"]
    assert [retry.changes for retry in retries] == [
        more_memory,
        {"avoided_hosts": ["wn-1", "wn-2"]},
    ]
    assert retries[0].asked["memory_bytes"] == 7 * 1024**3
    assert retries[1].asked["memory_bytes"] == stage.memory_bytes
    assert batch_job(retries[1]).avoided_hosts == ("wn-1", "wn-2")

    again = plan_retry(
        submission=retries[0],
        request=lock_request(running.request),
        indices=[2],
        by=shifter,
        at=LATER,
        reason="Again.",
        changes=ResourceChanges(memory_bytes=1, avoided_hosts=("wn-3",)),
    )
    assert again.changes == {"memory_bytes": 7 * 1024**3, "avoided_hosts": ["wn-3"]}
    assert options_of(batch_job(again))[-1] == "--exclude=wn-3"
