"""Arrays and retries avoid the hosts that are excluded when they are submitted."""

from datetime import timedelta

import pytest

from apps.clusters.models import Host
from apps.clusters.schedulers.base import SubmissionRefused
from apps.hosts.domain.exclusions import exclude_host, return_host
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.rows import batch_job
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.excluded_hosts import with_excluded_hosts
from apps.submission.domain.retries import owned
from apps.submission.domain.retries.batches import plan_batch
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.domain.retries.owned import submit_owner_retries
from apps.submission.domain.retries.release import advance_batch
from apps.submission.models import RetryJob, Submission
from tests.factories.requests import AT
from tests.pages import text_of
from tests.submission.retries.test_owned import alps, lost  # noqa: F401

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def running(make, cluster, approver):
    """A running request on a cluster of three hosts."""
    for number in (1, 2, 3):
        Host.objects.create(cluster=cluster, name=f"wn-{number}", listed_at=AT)
    request = make("running")
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)


@pytest.fixture
def exclude(shifter):
    """Return a function that excludes a host of a cluster."""

    def excluding(cluster, host):
        return exclude_host(cluster=cluster, host=host, reason="Bad disk.", by=shifter, at=AT)

    return excluding


def send_next(assignment, at=AT):
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at)


def excluded_by_sbatch(fake, spool_id):
    options = [option for option in fake.options(spool_id) if option.startswith("--exclude=")]
    return "".join(options)


def test_array_avoids_the_hosts_excluded_when_it_is_submitted(
    running, fake, exclude, shifter, browse, approver
):
    exclusion = exclude(running.cluster, "wn-2")
    first = send_next(running)
    assert excluded_by_sbatch(fake, first.spool_id) == "--exclude=wn-2"
    assert first.excluded_hosts == ["wn-2"]

    return_host(exclusion=exclusion, by=shifter, at=AT, reason="New disk.")
    second = send_next(running)
    assert excluded_by_sbatch(fake, second.spool_id) == ""
    assert second.excluded_hosts == []

    # The list is that of the submission, whatever is excluded later.
    first.refresh_from_db()
    assert first.excluded_hosts == ["wn-2"]
    page = text_of(browse(approver).get(f"/submissions/{running.request.key}/"))
    assert page.count("not on 1 excluded host: wn-2") == 1
    answer = browse(approver).get(f"/api/v1/submissions/{running.request.key}/").json()
    lists = {row["number"]: row["excluded_hosts"] for row in answer}
    assert lists == {first.number: ["wn-2"], second.number: []}


def test_hosts_excluded_between_plan_and_submission_count(running, exclude):
    plan_next(assignment=running, at=AT)
    exclude(running.cluster, "wn-1")
    assert dispatch.claim_next(cluster=running.cluster, at=AT).excluded_hosts == ["wn-1"]


def test_retry_avoids_the_hosts_of_its_own_time_and_those_of_its_rule(
    running, fake, exclude, shifter, approver, end_jobs
):
    exclusion = exclude(running.cluster, "wn-1")
    first = send_next(running)
    end_jobs(first, failed={0})
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    return_host(exclusion=exclusion, by=shifter, at=AT, reason="New disk.")
    exclude(running.cluster, "wn-2")

    (retry,) = retry_failed(
        request=running.request, position=0, by=approver, at=LATER, reason="503"
    ).submissions
    Submission.objects.filter(pk=retry.pk).update(
        asked=retry.asked | {"avoided_hosts": ["wn-3"]}, changes={"avoided_hosts": ["wn-3"]}
    )
    claimed = dispatch.claim_next(cluster=running.cluster, at=LATER)
    assert claimed.retry_of == first
    assert batch_job(claimed).avoided_hosts == ("wn-3", "wn-2")
    assert claimed.changes == {"avoided_hosts": ["wn-3"]}
    retry = dispatch.send(submission=claimed, at=LATER)
    assert excluded_by_sbatch(fake, retry.spool_id) == "--exclude=wn-3,wn-2"


def test_if_all_hosts_are_excluded_none_is_avoided_and_the_page_says_so(
    running, fake, exclude, browse, approver
):
    for number in (1, 2, 3):
        exclude(running.cluster, f"wn-{number}")
    sent = send_next(running)
    assert excluded_by_sbatch(fake, sent.spool_id) == ""
    assert sent.exclusions_dropped
    page = text_of(browse(approver).get(f"/submissions/{running.request.key}/"))
    assert "also on excluded hosts: no other host was left" in page


def test_array_that_fits_no_other_host_is_submitted_without_its_exclusions(running, fake, exclude):
    """The hosts of one partition may all be excluded, though others of the cluster are not."""
    exclude(running.cluster, "wn-1")
    fake.mode("refuse-exclude")
    sent = send_next(running)
    assert (sent.state, sent.excluded_hosts, sent.exclusions_dropped) == ("sent", [], True)
    sent.refresh_from_db()
    assert sent.exclusions_dropped
    assert len(fake.jobs()) == 1


def test_array_refused_for_another_reason_is_refused(running, fake, exclude):
    exclude(running.cluster, "wn-1")
    fake.mode("refuse")
    sent = send_next(running)
    assert (sent.state, fake.jobs()) == ("failed", [])
    assert "Invalid account" in sent.last_error


def test_job_that_must_run_on_one_host_avoids_none(running, exclude):
    exclude(running.cluster, "wn-1")
    stored = {"host": "wn-1", "excluded_hosts": ["wn-2"]}
    assert with_excluded_hosts(stored, running.cluster, at=AT) == {"host": "wn-1"}


class OwnerScheduler:
    """Keeps what is submitted as owners; refuses jobs that avoid hosts, if told so."""

    def __init__(self):
        self.submitted = []
        self.refuses = False

    def find_submitted(self, name):
        return None

    def submit_as_owner(self, job):
        if self.refuses and job.avoided_hosts:
            raise SubmissionRefused("no such hosts")
        self.submitted.append(job)
        return "500"


@pytest.mark.parametrize("refuses", [False, True])
def test_retry_as_owner_avoids_them_too(
    lost,  # noqa: F811
    alps,  # noqa: F811
    exclude,
    approver,
    monkeypatch,
    browse,
    refuses,
):
    scheduler = OwnerScheduler()
    scheduler.refuses = refuses
    monkeypatch.setattr(owned, "adapter_for_owners", lambda cluster: scheduler)
    failed = lost()
    for number in (1, 2):
        Host.objects.create(cluster=alps, name=f"wn-{number}", listed_at=AT)
    exclude(alps, "wn-1")
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    assert submit_owner_retries(cluster=alps, at=LATER) == 1

    [job] = scheduler.submitted
    row = RetryJob.objects.get()
    assert job.avoided_hosts == (() if refuses else ("wn-1",))
    assert (row.excluded_hosts, row.exclusions_dropped) == ([] if refuses else ["wn-1"], refuses)
    page = text_of(browse(approver).get(batch.get_absolute_url()))
    assert ("not on 1 excluded host: wn-1" in page) is not refuses
    assert ("no other host was left" in page) is refuses


def test_array_that_waits_again_names_no_excluded_hosts(running, fake, exclude):
    """They are read again when it is submitted."""
    exclude(running.cluster, "wn-1")
    fake.mode("down")
    sent = send_next(running)
    assert (sent.state, sent.excluded_hosts) == ("unknown", ["wn-1"])
    Submission.objects.update(state="planned")
    sent.refresh_from_db()
    assert sent.excluded_hosts == []
