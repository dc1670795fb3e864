"""Excluded hosts on a real Slurm: new arrays run elsewhere, and are never refused because of them."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster, Host
from apps.clusters.schedulers.base import BatchJob, SubmissionRefused
from apps.hosts.domain.exclusions import exclude_host, return_host
from apps.hosts.models import HostExclusion
from apps.jobs.domain.hosts import read_hosts
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import Assignment, Submission
from tests.end_to_end.test_recovery_slurm import start  # noqa: F401
from tests.end_to_end.test_submission_slurm import cluster  # noqa: F401

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

PROGRAM = "#!/bin/bash\necho $SLURMD_NODENAME\n"


@pytest.fixture
def listed(cluster):  # noqa: F811
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
def send(slurm, listed, start):  # noqa: F811
    """Return a function that submits the next array of a request, each of some jobs."""
    most_arrays = 5

    def sending(*, jobs) -> Submission:
        if not Assignment.objects.exists():
            start(PROGRAM, jobs=jobs * most_arrays)
        slurm_cluster = Cluster.objects.get(pk=listed.pk)
        slurm_cluster.submission["array_size"] = jobs
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
