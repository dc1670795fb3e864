"""Which jobs that the portal did not submit can run again as their owner, and what is submitted."""

import io
import tarfile
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.archive.domain.capture_hosts import change_capture_host, create_capture_host
from apps.archive.domain.store.conflicts import choose_capture
from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from apps.clusters.domain import adapter_of
from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.environment import pack
from apps.core.errors import InvalidTransition
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.statusboard.domain.maintenance.announcements import (
    post_announcement,
    withdraw_announcement,
)
from apps.submission.domain.arrays.ignored_advice import ignore_advice
from apps.submission.domain.arrays.submissions import clusters_to_look_at
from apps.submission.domain.debugging.bundle import debug_bundle
from apps.submission.domain.retries.batches import counts_of, dry_run, may_change, plan_batch
from apps.submission.domain.retries.bundle import retry_bundle
from apps.submission.domain.retries.eligibility import RetryLimits, examine
from apps.submission.domain.retries.offers import retry_offer
from apps.submission.domain.retries.owned import (
    owned_job,
    record_owner_retries,
    submit_owner_retries,
)
from apps.submission.domain.retries.release import advance_batch
from apps.submission.enums import LeftOut
from apps.submission.models import DebugProfile, RetryJob
from tests.factories import archive, clusters, jobs, people, statusboard
from tests.factories.requests import AT
from tests.factories.verdicts import verdict
from tests.pages import text_of

LATER = AT + timedelta(minutes=10)
SCRIPT = b"#!/bin/bash\nreco $1\n"
COMMAND = "/usr/bin/sudo -n -u {user} /opt/opsportal/bin/submit-as-owner"


@pytest.fixture
def alps(db):
    return clusters.cluster("alps", "slurm", options={"owner_command": COMMAND})


@pytest.fixture
def lost(nova, alps):
    """Make a failed job of alice's that the portal did not submit; return its verdict."""

    def make(
        number=77,
        *,
        variables=((b"HOME", b"/home/alice"), (b"SLURM_JOB_ID", b"77")),
        masked=(),
        captured=True,
        sender="",
        **fields,
    ):
        content = {"script": SCRIPT, "environment": pack(list(variables)), "arguments": "a b"}
        one = archive.captured_job(
            number, cluster="alps", masked_names=masked, sender=sender, **content
        )
        if captured:
            archive.store(one)
        values = {
            "state": "failed",
            "submitted_at": one.submitted_at,
            "user": "alice",
            "job_id": f"{number}_3",
        }
        (job,) = jobs.store(alps, jobs.record(number, **values | fields))
        type(job).objects.filter(pk=job.pk).update(experiment=nova)
        job.refresh_from_db()
        return verdict(job, at=LATER)

    return make


def reasons(verdict: Verdict, user, **limits):
    retries = dry_run(source=verdict.job, user=user, limits=RetryLimits(**limits), at=LATER)
    return "eligible" if retries.eligible else retries.reasons[0][0]


def verdicts_with_jobs(*verdicts):
    rows = Verdict.objects.filter(pk__in=[verdict.pk for verdict in verdicts])
    return list(rows.select_related("job__cluster", "experiment"))


def test_reasons(lost, alps, nova, approver, shifter, liaison):
    failed = lost()
    assert reasons(failed, approver) == reasons(failed, shifter) == "eligible"
    assert reasons(failed, liaison) == LeftOut.FORBIDDEN
    assert reasons(lost(78, captured=False), approver) == LeftOut.NO_SCRIPT
    assert reasons(lost(79, user=""), approver) == LeftOut.NO_SCRIPT
    assert reasons(lost(80), approver, attempts=1) == LeftOut.ATTEMPTS
    assert reasons(lost(81, state="node_fail", ended_at=LATER), approver) == LeftOut.UNSETTLED
    alps.options = {}
    alps.save()
    assert reasons(lost(82), approver) == LeftOut.NOT_SENT
    assert reasons(lost(83, captured=False), approver) == LeftOut.NO_SCRIPT, "nothing to bundle"


def test_shifters_of_another_experiment_can_neither_plan_nor_change_it(lost, dune, nova, approver):
    failed = lost()
    stranger = people.person("dune-shifter", ("shifter", dune))
    assert not dry_run(source=failed.job, user=stranger, limits=RetryLimits(), at=LATER).jobs
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    assert not may_change(stranger, batch)
    assert may_change(people.person("nova-shifter", ("shifter", nova)), batch)


def test_second_capture_that_differs_stops_retries_and_bundles(lost, approver, alps):
    """A forged batch with the submission time of accounting must not choose what runs as alice."""
    failed = lost()
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    archive.store(
        archive.captured_job(
            77, submitted_at=failed.job.submitted_at, script=b"forged", sender="farm-1"
        )
    )

    with pytest.raises(InvalidTransition, match="captures of it differ"):
        owned_job(batch.jobs.get())
    assert submit_owner_retries(cluster=alps, at=LATER) == 0
    assert batch.jobs.get().state == "left_out"
    another = lost(78)
    archive.store(archive.captured_job(78, script=b"forged", minutes=0.5, sender="farm-1"))
    assert reasons(another, approver) == LeftOut.CONFLICT
    with pytest.raises(InvalidTransition, match="captures of it differ"):
        retry_bundle(verdicts=[another], by=approver, at=LATER)
    with pytest.raises(InvalidTransition, match="Captures of this job differ in script"):
        debug_bundle(job=another.job, profile=DebugProfile(name="plain"), by=approver, at=LATER)


def scripts_of(bundle):
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        return [
            tar.extractfile(member).read() for member in tar if member.name.endswith("script.sh")
        ]


@pytest.mark.parametrize("number", [0, 1])
def test_chosen_capture_runs_again_and_is_bundled(number, lost, approver):
    """The first capture, or another one of a host that is trusted."""
    create_capture_host(name="farm-1", clusters=["alps"], trusted=True, by="test", at=AT)
    failed = lost(78)
    archive.store(archive.captured_job(78, script=b"chosen", minutes=0.5, sender="farm-1"))
    capture = ArchivedJob.objects.filter(job_id="78").order_by("pk")[number]
    choose_capture(job=capture, conflict_version=1, reason="checked", by=approver, at=LATER)

    assert reasons(failed, approver) == "eligible"
    script = read_blob(capture.script)
    for bundle in (
        retry_bundle(verdicts=[failed], by=approver, at=LATER),
        debug_bundle(
            job=failed.job, profile=DebugProfile(name="plain", trace=False), by=approver, at=LATER
        ),
    ):
        assert scripts_of(bundle) == [script]
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    assert owned_job(batch.jobs.get()).script == script


def test_only_captures_of_trusted_hosts_run_again_as_the_owner(lost, approver):
    host, _ = create_capture_host(name="farm-1", clusters=["alps"], by="test", at=AT)
    failed = lost(sender="farm-1")
    assert reasons(failed, approver) == LeftOut.UNTRUSTED
    host.trusted = True
    change_capture_host(host=host, by="test", at=AT)
    assert reasons(failed, approver) == "eligible"
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    host.delete()
    with pytest.raises(InvalidTransition, match="a host that is not trusted"):
        owned_job(batch.jobs.get())
    ArchivedJob.objects.update(sender=None)
    with pytest.raises(InvalidTransition, match="a host that is not trusted"):
        owned_job(batch.jobs.get())


def test_owners_get_jobs_of_other_hosts_as_a_bundle(lost, approver):
    offer = retry_offer(source=lost(sender="farm-1").job, user=approver, at=LATER)
    assert (offer.bundle, offer.bundle_list) == (1, LeftOut.UNTRUSTED)


def test_what_is_submitted_is_what_was_archived(lost, approver, alps):
    failed = lost(
        time_limit_seconds=90,
        requested_memory_bytes=2**30,
        account="prod",
        work_dir="/home/alice/run",
    )
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    assert not clusters_to_look_at().exists()
    assert advance_batch(batch=batch, at=LATER) == 1
    assert list(clusters_to_look_at()) == [alps]
    job = owned_job(batch.jobs.get())
    assert (job.owner, job.first_id, job.task, job.script) == ("alice", "77", 3, SCRIPT)
    assert (job.arguments, job.environment) == (("a", "b"), b"HOME=/home/alice\0")
    assert (job.time_limit_seconds, job.memory_bytes, job.account) == (90, 2**30, "prod")
    assert job.directory == "/home/alice/run"
    assert job.name == f"retry.77.{batch.jobs.get().token.hex}"


def test_dry_run_leaves_out_jobs_with_masked_secrets(lost, approver, django_assert_num_queries):
    failed = lost(masked=("BEARER_TOKEN",))
    assert reasons(failed, approver) == LeftOut.SECRETS
    with pytest.raises(InvalidTransition, match="No job can be retried"):
        plan_batch(source=failed.job, by=approver, at=LATER)
    assert reasons(lost(78, masked=("SLURM_JWT",)), approver) == "eligible"

    with CaptureQueriesContext(connection) as queries:
        examine(verdicts_with_jobs(failed), limits=RetryLimits(), user=approver, at=LATER)
    verdicts = [failed, *(lost(number, masked=("BEARER_TOKEN",)) for number in range(80, 90))]
    with django_assert_num_queries(len(queries)):
        outcome = examine(
            verdicts_with_jobs(*verdicts), limits=RetryLimits(), user=approver, at=LATER
        )
    assert outcome.reasons == [(LeftOut.SECRETS, 11)]


def test_owners_get_jobs_with_masked_secrets_as_a_bundle(lost, approver, browse):
    failed = lost(variables=[(b"TOKEN", b"<masked:0123456789abcdef>")], masked=("TOKEN",))
    client, address = browse(approver), f"/retries/job/{failed.job.pk}/"
    assert "Retry bundle of 1 job" in text_of(client.get(address))
    page = client.get(
        f"{address}?list={retry_offer(source=failed.job, user=approver, at=LATER).bundle_list}"
    )
    assert failed.job.job_id in text_of(page)
    addresses = (
        f"{address}?format=tar",
        f"/api/v1/retry-batches/bundle/?kind=job&id={failed.job.pk}",
    )
    for address in addresses:
        answer = client.get(address)
        assert answer["Content-Type"] == "application/x-tar", address
        assert b"secrets are not archived" in answer.content, address


def test_masked_secrets_are_a_reason_to_leave_a_job_out(lost, approver, alps):
    masked_job = lost(variables=[(b"TOKEN", b"<masked:0123456789abcdef>")])
    batch = plan_batch(source=masked_job.job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    with pytest.raises(InvalidTransition, match="TOKEN"):
        owned_job(batch.jobs.get())
    assert submit_owner_retries(cluster=alps, at=LATER) == 0
    assert (batch.jobs.get().state, batch.jobs.get().why) == (
        "left_out",
        "secrets are not archived: TOKEN",
    )


def test_retry_that_fails_again_counts_as_an_attempt(lost, approver):
    first = lost()
    batch = plan_batch(source=first.job, by=approver, at=LATER)
    RetryJob.objects.filter(batch=batch).update(state="failed", spool_id="78")
    second = lost(78)
    assert reasons(second, approver, attempts=2) == LeftOut.ATTEMPTS
    assert reasons(second, approver, attempts=3) == "eligible"


@pytest.fixture
def announce(shifter, approver):
    """Return a function that posts an announcement not to submit."""

    def post(**about):
        return post_announcement(title="Power cut", by=approver, at=AT, do_not_submit=True, **about)

    return post


@pytest.mark.parametrize(
    ("experiment", "service", "released"),
    [
        ("", "", 0),
        ("nova", "", 0),
        ("dune", "", 1),
        ("", "slurm", 0),
        ("", "samweb", 1),
        ("nova", "slurm", 0),
        ("nova", "samweb", 1),
    ],
)
def test_retry_waits_for_announcements_about_it(
    lost, alps, announce, approver, browse, nova, dune, experiment, service, released
):
    """The job's experiment is nova; the service of its cluster is slurm."""
    services = {slug: statusboard.service(slug, people.LONG_AGO) for slug in ("slurm", "samweb")}
    alps.service = services["slurm"]
    alps.save()
    experiments = {"nova": nova, "dune": dune}
    announcement = announce(
        experiments=[experiments[experiment]] if experiment else [],
        services=[services[service]] if service else [],
    )
    batch = plan_batch(source=lost().job, by=approver, at=LATER)
    page = text_of(browse(approver).get(batch.get_absolute_url()))
    assert ("Waiting for the end of “Power cut”" in page) == (not released)
    assert advance_batch(batch=batch, at=LATER) == released

    withdraw_announcement(announcement=announcement, by=approver, at=LATER, reason="Over.")
    later = LATER + timedelta(hours=1)
    assert released + advance_batch(batch=batch, at=later) == 1


def test_retry_that_is_released_but_not_submitted_waits_too(lost, alps, announce, approver):
    batch = plan_batch(source=lost().job, by=approver, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 1
    announcement = announce()
    submit_owner_retries(cluster=alps, at=LATER)
    assert (batch.jobs.get().tries, batch.jobs.get().state) == (0, "released")
    withdraw_announcement(announcement=announcement, by=approver, at=LATER, reason="Over.")
    submit_owner_retries(cluster=alps, at=LATER)
    assert batch.jobs.get().tries == 1


def test_retry_that_may_be_submitted_already_is_looked_for_whatever_the_advice(
    lost, alps, announce, approver, monkeypatch
):
    batch = plan_batch(source=lost().job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    submit_owner_retries(cluster=alps, at=LATER)
    announce()
    adapter = type(adapter_of(alps))
    later = LATER + timedelta(hours=1)
    monkeypatch.setattr(adapter, "find_submitted", lambda self, name: None)
    submit_owner_retries(cluster=alps, at=later)
    assert (batch.jobs.get().tries, batch.jobs.get().spool_id) == (1, "")
    monkeypatch.setattr(adapter, "find_submitted", lambda self, name: "901")
    submit_owner_retries(cluster=alps, at=later)
    assert batch.jobs.get().spool_id == "901"


@pytest.mark.parametrize("in_its_experiment", [True, False])
def test_retry_follows_the_advice_unless_its_request_ignores_it(
    lost, announce, approver, make, nova, dune, in_its_experiment
):
    """A job's owner chooses the request that it names: one of another experiment does not count."""
    request = make("queued")
    failed = lost().job
    Job.objects.filter(pk=failed.pk).update(request_key=request.key)
    announce()
    batch = plan_batch(source=failed, by=approver, at=LATER)
    assert advance_batch(batch=batch, at=LATER) == 0
    ignore_advice(request=request, by=approver, at=LATER, reason="It reads no files.", hours=2)
    if not in_its_experiment:
        type(request).objects.filter(pk=request.pk).update(experiment=dune)
    assert advance_batch(batch=batch, at=LATER + timedelta(hours=3)) == 0
    assert advance_batch(batch=batch, at=LATER + timedelta(hours=1)) == in_its_experiment


def test_dry_run_names_the_announcement_that_jobs_wait_for(lost, announce, approver, browse):
    address = f"/retries/job/{lost().job.pk}/"
    client = browse(approver)
    assert "do not submit" not in text_of(client.get(address))
    announce()
    assert (
        "“Power cut”: do not submit. 1 job waits until the announcement ends, or until"
        in text_of(client.get(address))
    )


def test_what_is_never_accepted_is_left_out_and_said(lost, approver, alps):
    """No Slurm answers here: whether the job is there is not known,
    so it is not submitted again.
    """
    batch = plan_batch(source=lost().job, by=approver, at=LATER)
    advance_batch(batch=batch, at=LATER)
    for hours in range(20):
        assert submit_owner_retries(cluster=alps, at=LATER + timedelta(hours=hours)) == 0
    assert counts_of(batch) == {"released": 1}
    assert batch.jobs.get().tries == 1


@pytest.mark.parametrize(
    "command", ["sudo -u {user} x", "/usr/bin/sudo x", "/usr/bin/sudo -u{user} x", "/a 'b"]
)
def test_owner_command_that_cannot_be_right_is_refused(alps, command):
    alps.options = {"owner_command": command}
    with pytest.raises(SchedulerError, match="owner_command"):
        adapter_of(alps)


def test_pages_say_as_whom_jobs_run(client, lost, approver):
    failed = lost()
    client.force_login(approver)
    address = f"/retries/job/{failed.job.pk}/"
    page = client.get(address)
    assert page.status_code == 200
    assert "As their owners" in page.content.decode()
    batch = plan_batch(source=failed.job, by=approver, at=LATER)
    batch.jobs.update(state="released", spool_id="901")
    page = client.get(batch.get_absolute_url()).content.decode()
    assert '<span class="mono">901</span> as' in page


@pytest.fixture
def retried(lost, alps, nova, approver):
    """Retry a failed job as its owner; return the batch, the failed job and the finished retry."""
    failed = lost().job
    batch = plan_batch(source=failed, by=approver, at=LATER)
    batch.jobs.update(state="released", spool_id="901", sending_at=LATER)
    times = {"submitted_at": LATER, "started_at": LATER, "ended_at": LATER}
    (retry,) = jobs.store(
        alps, jobs.record(901, **times, user="alice", job_id="901_3", state="completed")
    )
    Job.objects.filter(pk=retry.pk).update(experiment=nova)
    record_owner_retries(cluster=alps)
    return batch, failed, retry


def link(job):
    """Return a link to a job in the HTML of a page."""
    return f'<a class="mono" href="{job.get_absolute_url()}">{job.job_id}</a>'


def test_failed_job_batch_and_retry_link_to_each_other(retried, approver, browse):
    batch, failed, retry = retried
    client = browse(approver)
    batch_page = text_of(client.get(batch.get_absolute_url()))
    assert link(failed) in batch_page
    assert f"{link(retry)} as alice" in batch_page
    assert f"retried as {link(retry)}" in text_of(client.get(failed.get_absolute_url()))
    assert f"retry of {link(failed)}" in text_of(client.get(retry.get_absolute_url()))


def test_job_that_succeeded_at_its_retry_offers_none(retried, lost, approver, browse):
    _, failed, _ = retried
    client = browse(approver)
    assert "Retry…" not in text_of(client.get(failed.get_absolute_url()))
    assert "Retry…" in text_of(client.get(lost(78).job.get_absolute_url()))


def test_links_follow_no_recycled_id(retried, alps, nova, approver, browse):
    _, failed, retry = retried
    earlier = failed.submitted_at - timedelta(days=30)
    times = {"submitted_at": earlier, "started_at": earlier, "ended_at": earlier}
    (old,) = jobs.store(
        alps, jobs.record(901, **times, user="alice", job_id="901_3", state="completed")
    )
    Job.objects.filter(pk=old.pk).update(experiment=nova)
    client = browse(approver)
    assert "retry of" not in text_of(client.get(old.get_absolute_url()))
    assert f"retried as {link(retry)}" in text_of(client.get(failed.get_absolute_url()))


def test_batch_says_who_can_cancel_jobs_that_run_as_their_owner(lost, approver, browse):
    batch = plan_batch(source=lost().job, by=approver, at=LATER)
    page = text_of(browse(approver).get(batch.get_absolute_url()))
    assert "Only their owner can cancel jobs that run as a user" in page
