from datetime import timedelta
from itertools import count

import pytest

from apps.diagnosis.models import FailureGroup, Verdict
from apps.hosts.models import Probe
from apps.jobs.models import Job
from tests.factories import clusters, jobs
from tests.factories.verdicts import unsaved_verdict
from tests.hosts.probing import exclude_as_portal, list_hosts
from tests.submission.fake_slurm import FakeSlurm


@pytest.fixture
def alps(db):
    """A cluster to which the portal submits."""
    return clusters.cluster("alps", submits=True)


@pytest.fixture
def numbers():
    return count(1)


@pytest.fixture
def run_well(nova, numbers, at):
    """Return a function that completes jobs on each of some hosts."""

    def completing(cluster, hosts, *, jobs_each=3, ended_at=at, ran=timedelta(hours=1)):
        rows = []
        for host in list(hosts) * jobs_each:
            job = jobs.unsaved_row(
                cluster,
                next(numbers),
                at=ended_at,
                started_at=ended_at - ran,
                host=host,
                state="completed",
                exit_code=0,
                experiment=nova,
            )
            rows.append(job)
        Job.objects.bulk_create(rows)

    return completing


@pytest.fixture
def break_host(nova, numbers, at):
    """Return a function that fails jobs of two stages on a host."""

    def failing(cluster, host, *, failures=6, ended_at=at, service="", ran=timedelta(minutes=1)):
        group, _ = FailureGroup.objects.get_or_create(
            fingerprint="f" * 32,
            defaults={
                "verdict": "service",
                "title": "It fails",
                "status_at": at,
                "first_seen_at": at,
                "last_seen_at": at,
            },
        )
        rows = []
        for number in range(failures):
            job = jobs.unsaved_row(
                cluster,
                next(numbers),
                at=ended_at,
                started_at=ended_at - ran,
                host=f"{host}.example.org",
                experiment=nova,
                stage="reco" if number % 2 else "simulation",
            )
            rows.append(job)
        Job.objects.bulk_create(rows)
        Verdict.objects.bulk_create(
            unsaved_verdict(job, at=ended_at, group=group, service=service) for job in rows
        )

    return failing


@pytest.fixture
def fake(tmp_path):
    return FakeSlurm(tmp_path / "slurm")


@pytest.fixture
def farm(db, fake, at):
    """A cluster of five hosts to which the portal submits."""
    cluster = clusters.cluster(
        "farm",
        "slurm",
        submits=True,
        options={"bin": str(fake.directory), "timeout_seconds": "5"},
        submission={"partition": "long", "directory": "/tmp"},
    )
    list_hosts(cluster, ["wn-1", "wn-2", "wn-3", "wn-4", "wn-5"], at)
    return cluster


@pytest.fixture
def probes(farm):
    """Two probes that are good."""
    return [
        Probe.objects.create(name="disk", script="echo 5 GB free", active=True),
        Probe.objects.create(name="mount", script="ls / > /dev/null", active=True),
    ]


@pytest.fixture
def excluded(farm, at):
    return exclude_as_portal(farm, "wn-1", at)


@pytest.fixture
def excluded_hosts_alone(settings):
    settings.HOST_PROBE_HOURS = 0
