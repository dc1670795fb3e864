"""Hosts on which the failures of a batch are concentrated: proposed, and avoided by its retries."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.models import Host
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.causes.totals import mark_dirty as mark_causes_dirty
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.hosts.domain.exclusions import exclude_host
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty, recompute_dirty_hours
from apps.jobs.models import Job
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.rows import batch_job
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.bad_hosts import find_bad_hosts
from apps.submission.domain.retries.batches import dry_run, plan_batch
from apps.submission.domain.retries.eligibility import RetryLimits
from apps.submission.domain.retries.release import advance_batch
from apps.submission.models import RetryBatch, Submission
from tests.database import rolled_back
from tests.factories.jobs import record, store
from tests.factories.requests import AT
from tests.factories.verdicts import failure_group, judge
from tests.pages import text_of

LATER = AT + timedelta(minutes=10)
LABEL = "Exclude wn-1 (3 of these 3 failed there; 2 % elsewhere)"


@pytest.fixture
def group(db):
    return failure_group(at=AT)


@pytest.fixture
def broken(make, cluster, approver, end_jobs, group):
    """Three jobs failed on wn-1. On wn-2 and wn-3, 50 other jobs ended, of which one failed."""
    for number in (1, 2, 3):
        Host.objects.create(cluster=cluster, name=f"wn-{number}", listed_at=AT)
    running = choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)
    plan_next(assignment=running, at=LATER)
    sent = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=LATER), at=LATER)
    end_jobs(sent, failed={0, 1, 2}, tasks=range(3), at=LATER)
    Job.objects.update(host="wn-1.example.org")
    others = []
    for number in range(90_000, 90_050):
        state = "failed" if number == 90_000 else "completed"
        host = f"wn-{2 + number % 2}"
        others.append(record(number, host=host, state=state, submitted_at=AT, ended_at=LATER))
    store(cluster, *others, at=LATER)
    recompute_dirty_hours(at=LATER)
    dispatch.refresh_progress(cluster=cluster, at=LATER)
    judge(sent, dict.fromkeys(range(3), "service"), at=LATER)
    group.verdicts.model.objects.update(group=group)
    mark_causes_dirty([hour_of(LATER)])
    recount_dirty_hours()
    return sent


def bad_hosts(group, user):
    candidates = dry_run(source=group, user=user, limits=RetryLimits(), at=LATER).eligible
    return find_bad_hosts(candidates, user=user, at=LATER)


def recount(**changes):
    """Change the jobs on other hosts, and count again."""
    Job.objects.exclude(host__startswith="wn-1").update(**changes)
    mark_dirty([hour_of(LATER)])
    recompute_dirty_hours(at=LATER)


def test_retries_avoid_the_host_that_a_person_ticks(broken, group, shifter, client, fake):
    [bad_host] = bad_hosts(group, shifter)
    assert (bad_host.host, bad_host.failed, bad_host.jobs) == ("wn-1", 3, 3)
    assert bad_host.elsewhere == pytest.approx(1 / 50)

    client.force_login(shifter)
    address = f"/retries/group/{group.pk}/"
    assert LABEL in text_of(client.get(address))
    form = {"pause_minutes": 5, "attempts": 3, "avoid_hosts": "wn-1"}
    preview = client.post(address, form | {"do": "preview"}).content.decode()
    assert 'value="wn-1"' in preview
    assert "checked" in preview.partition('value="wn-1"')[2].partition(">")[0], "it stays ticked"

    client.post(address, form)
    batch = RetryBatch.objects.get()
    assert {str(row.changes) for row in batch.jobs.all()} == {"{'avoided_hosts': ['wn-1']}"}
    assert advance_batch(batch=batch, at=LATER) == 3
    retry = Submission.objects.exclude(retry_of=None).get()
    assert batch_job(retry).avoided_hosts == ("wn-1",)
    page = client.get(batch.get_absolute_url())
    assert "not on wn-1" in text_of(page)


def test_without_a_tick_the_retries_run_anywhere(broken, group, shifter):
    batch = plan_batch(source=group, by=shifter, at=LATER)
    assert [row.changes for row in batch.jobs.all()] == [{}, {}, {}]


def test_host_that_does_not_stand_out_is_not_proposed(broken, group, shifter, cluster):
    def let_jobs_fail_everywhere():
        for job, number in zip(Job.objects.filter(host__startswith="wn-1"), (1, 2, 3), strict=True):
            Job.objects.filter(pk=job.pk).update(host=f"wn-{number}")

    def exclude():
        exclude_host(cluster=cluster, host="wn-1", reason="Bad disk.", by=shifter, at=LATER)

    reasons = {
        "others fail too": lambda: recount(state="failed"),
        "no other host": lambda: recount(host="wn-1"),
        "failures everywhere": let_jobs_fail_everywhere,
        "excluded": exclude,
    }
    assert bad_hosts(group, shifter) != []
    for reason, make_true in reasons.items():
        with rolled_back():
            make_true()
            assert bad_hosts(group, shifter) == [], reason


def test_jobs_on_many_hosts_cost_no_query(broken, group, shifter):
    candidates = dry_run(source=group, user=shifter, limits=RetryLimits(), at=LATER).eligible
    with CaptureQueriesContext(
        connection,
    ) as queries:
        find_bad_hosts(candidates[:2], user=shifter, at=LATER)
    assert len(queries) == 0


def test_batch_refuses_hosts_that_its_jobs_cannot_avoid(broken, group, shifter, client):
    with pytest.raises(InvalidFields, match="No job to retry failed on wn-9"):
        plan_batch(source=group, by=shifter, at=LATER, avoid_hosts=["wn-1", "wn-9"])
    Host.objects.exclude(name="wn-1").delete()
    with pytest.raises(InvalidFields, match="has no other host"):
        plan_batch(source=group, by=shifter, at=LATER, avoid_hosts=["wn-1"])
    assert not RetryBatch.objects.exists()


def test_api_plans_a_batch_that_avoids_a_host(broken, group, shifter, client):
    client.force_login(shifter)
    body = {"kind": "group", "id": group.pk, "avoid_hosts": ["wn-1.example.org"]}
    answer = client.post("/api/v1/retry-batches/", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    assert {str(row.changes) for row in RetryBatch.objects.get().jobs.all()} == {
        "{'avoided_hosts': ['wn-1']}"
    }
