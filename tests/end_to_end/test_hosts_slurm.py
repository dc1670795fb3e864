"""Excluded hosts on a real Slurm: new arrays run elsewhere, and are never refused because of them.

Probe jobs run on them, and return those that are mended.
"""

import time
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster, Host
from apps.clusters.schedulers.base import BatchJob, SubmissionRefused
from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.exclusions import exclude_host, return_host, store_exclusion
from apps.hosts.domain.probes.probe_jobs import (
    give_up_on_probe_jobs,
    plan_probe_jobs,
    send_probe_jobs,
)
from apps.hosts.models import HostExclusion, MeasuredState, Probe, ProbeJob
from apps.jobs.domain.hosts import read_hosts
from apps.jobs.models import Job
from apps.production.enums import PORTAL
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import Assignment, Submission
from tests.end_to_end.test_submission_slurm import Portal

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

PROGRAM = "#!/bin/bash\necho $SLURMD_NODENAME\n"


@pytest.fixture
def listed(cluster):
    """The cluster, whose hosts the portal has read."""
    assert read_hosts(cluster=cluster, at=timezone.now()) == 3
    return cluster


@pytest.fixture
def exclude(listed, shifter):
    """Return a function that excludes a host of the cluster."""

    def excluding(host):
        return exclude_host(
            cluster=listed, host=host, reason="Bad disk.", by=shifter, at=timezone.now()
        )

    return excluding


@pytest.fixture
def send(slurm, listed, start):
    """Return a function that submits the next array of a request, each of some jobs."""
    most_arrays = 5

    def sending(*, jobs, program=PROGRAM) -> Submission:
        if not Assignment.objects.exists():
            start(program, jobs=jobs * most_arrays)
        slurm_cluster = Cluster.objects.get(pk=listed.pk)
        slurm_cluster.submission |= {"array_size": jobs, "scouts": 0}
        slurm_cluster.save()
        plan_next(assignment=Assignment.objects.get(), at=timezone.now())
        claimed = dispatch.claim_next(cluster=slurm_cluster, at=timezone.now())
        return dispatch.send(submission=claimed, at=timezone.now())

    return sending


def hosts_of(slurm, array) -> set[str]:
    slurm.wait_ended([array.spool_id])
    rows = slurm.run("sacct", "-nPX", "-o", "NodeList", "-j", array.spool_id)
    return set(rows.split())


def test_array_runs_on_the_other_hosts_and_after_its_return_on_all(slurm, send, exclude, shifter):
    first_node = slurm.nodes[0]  # jobs go there while it has room
    exclusion = exclude(first_node)
    array = send(jobs=4)
    assert array.excluded_hosts == [first_node]
    assert hosts_of(slurm, array) <= set(slurm.nodes[1:])

    now = timezone.now()
    return_host(exclusion=exclusion, by=shifter, at=now, reason="New disk.")
    array = send(jobs=4)
    assert array.excluded_hosts == []
    assert first_node in hosts_of(slurm, array)


def test_arrays_are_not_refused_because_of_exclusions(slurm, listed, send, exclude):
    first_node = slurm.nodes[0]
    job = BatchJob(
        name="unknown-host",
        script=PROGRAM,
        tasks=1,
        time_limit_seconds=60,
        memory_bytes=10_000_000,
        environment={},
        avoided_hosts=("vanished",),
    )
    with pytest.raises(SubmissionRefused, match="Invalid node name"):
        adapter_of(listed).submit(job)

    # A host that was taken out of Slurm after it was excluded.
    Host.objects.create(cluster=listed, name="vanished", listed_at=timezone.now())
    Host.objects.update(listed_at=timezone.now())
    exclude("vanished")
    gone = timezone.now() - timedelta(hours=1)
    Host.objects.filter(name="vanished").update(listed_at=gone)
    exclude(first_node)
    array = send(jobs=1)
    assert (array.state, array.excluded_hosts) == ("sent", [first_node]), array.last_error

    # The only host of a partition.
    slurm.scontrol("create", "PartitionName=lone", f"Nodes={first_node}", "State=UP")
    try:
        listed.refresh_from_db()
        listed.submission["partition"] = "lone"
        listed.save()
        array = send(jobs=1)
        assert (array.state, array.exclusions_dropped) == ("sent", True), array.last_error
        slurm.wait_ended([array.spool_id])
    finally:
        slurm.scontrol("delete", "PartitionName=lone")

    # All hosts.
    listed.refresh_from_db()
    del listed.submission["partition"]
    listed.save()
    for node in slurm.nodes[1:]:
        exclude(node)
    array = send(jobs=1)
    assert (array.state, array.exclusions_dropped) == ("sent", True), array.last_error
    assert HostExclusion.objects.filter(ended_at=None).count() == 4


@pytest.fixture
def probe(slurm, listed, settings, live_server, tmp_path):
    """A probe that is good while a file exists, in jobs that reach the portal."""
    settings.PORTAL_URL = live_server.url
    settings.HOST_PROBE_HOURS = 0
    mended = tmp_path / "mended"
    script = f"echo on $SLURMD_NODENAME; test -e {mended}"
    return Probe.objects.create(
        name="mended", script=script, timeout_seconds=5, active=True
    ), mended


def probe_at(at) -> ProbeJob:
    """Plan and submit the probe job that is due."""
    assert plan_probe_jobs(at=at) == 1
    assert send_probe_jobs(cluster=Cluster.objects.get(), now=lambda: at) == 1
    return ProbeJob.objects.latest("planned_at")


def wait_for_results(job) -> ProbeJob:
    for _ in range(600):
        job.refresh_from_db()
        if job.ended_at is not None:
            return job
        time.sleep(0.1)
    raise AssertionError("the probe job did not report")


def test_mended_host_proves_itself_by_its_probes_and_gets_jobs_again(slurm, listed, probe, send):
    _, mended = probe
    node = slurm.nodes[0]
    now = timezone.now()
    with transaction.atomic():
        exclusion = store_exclusion(
            cluster=listed,
            host=node,
            reason="9 of 9 jobs failed.",
            by=PORTAL,
            at=now,
            expires_at=now + timedelta(days=1),
            evidence=None,
            automatic=True,
        )
    job = wait_for_results(probe_at(now))
    assert (job.state, job.good) == ("ended", False)
    state = MeasuredState.objects.get()
    assert (state.host, state.good, state.message) == (node, False, f"on {node}")

    mended.touch()
    for minutes in (6, 12, 18):
        job = wait_for_results(probe_at(now + timedelta(minutes=minutes)))
        assert job.good
    exclusion.refresh_from_db()
    assert exclusion.ended_as == "probed"
    assert MeasuredState.objects.get().good
    slurm.wait_ended([job.spool_id])  # it reports before it ends
    rows = slurm.run("sacct", "-nPX", "-o", "NodeList,State", "-j", job.spool_id)
    assert rows.split() == [f"{node}|COMPLETED"]
    array = send(jobs=4)
    assert array.excluded_hosts == []
    assert node in hosts_of(slurm, array)


def take_in(portal, array) -> None:
    """Wait for the jobs of an array, and do what collectors and workers do about them."""
    portal.slurm.wait_ended([array.spool_id])
    portal.collect({array.spool_id: array.tasks})
    portal.work_off()


def test_bad_host_is_excluded_the_others_finish_and_it_returns_after_its_probes(
    slurm, listed, probe, send, tmp_path
):
    _, mended = probe
    bad_node = slurm.nodes[0]
    program = f"#!/bin/bash\ntest -e {mended} || test $SLURMD_NODENAME != {bad_node} || exit 71\n"
    portal = Portal(listed, slurm, tmp_path / "journal")

    first = send(jobs=30, program=program)
    take_in(portal, first)
    failed = Job.objects.filter(spool_id=first.spool_id, state="failed")
    assert set(failed.values_list("host", flat=True)) == {bad_node}
    assert exclude_failing_hosts(at=timezone.now()) == 1
    exclusion = HostExclusion.objects.get()
    assert exclusion.host == bad_node
    assert exclusion.failed_jobs == failed.count() >= 5

    second = send(jobs=30)
    take_in(portal, second)
    assert second.excluded_hosts == [bad_node]
    jobs = Job.objects.filter(spool_id=second.spool_id)
    assert set(jobs.values_list("state", flat=True)) == {"completed"}
    assert exclude_failing_hosts(at=timezone.now()) == 0

    now = timezone.now()
    assert not wait_for_results(probe_at(now)).good
    mended.touch()
    for minutes in (6, 12, 18):
        assert wait_for_results(probe_at(now + timedelta(minutes=minutes))).good
    exclusion.refresh_from_db()
    assert exclusion.ended_as == "probed"


def test_drained_host_does_not_report_and_its_probe_job_is_cancelled(slurm, listed, probe, shifter):
    node = slurm.nodes[0]
    exclude_host(cluster=listed, host=node, reason="Bad disk.", by=shifter, at=timezone.now())
    slurm.scontrol("update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        job = probe_at(timezone.now())
        assert job.spool_id in slurm.run("squeue", "--noheader", "--format=%F")
        late = timezone.now() + timedelta(minutes=30)
        assert give_up_on_probe_jobs(cluster=Cluster.objects.get(), at=late) == 1
        job.refresh_from_db()
        assert (job.state, job.good) == ("lost", False)
        assert job.spool_id not in slurm.run("squeue", "--noheader", "--format=%F")
    finally:
        slurm.scontrol("update", f"NodeName={node}", "State=RESUME")


def test_vanished_host_is_refused_by_slurm_or_not_asked(slurm, listed, probe, shifter):
    Host.objects.create(cluster=listed, name="vanished", listed_at=timezone.now())
    Host.objects.update(listed_at=timezone.now())
    exclude_host(cluster=listed, host="vanished", reason="Gone.", by=shifter, at=timezone.now())
    job = probe_at(timezone.now())
    assert (job.state, job.good) == ("refused", False)
    assert "Invalid node name" in job.last_error
    Host.objects.filter(name="vanished").delete()
    assert plan_probe_jobs(at=timezone.now() + timedelta(minutes=10)) == 0
