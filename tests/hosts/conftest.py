from datetime import timedelta
from itertools import count

import pytest

from apps.diagnosis.models import FailureGroup
from tests.factories import clusters, jobs
from tests.factories.verdicts import verdict


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
        for host in hosts:
            for _ in range(jobs_each):
                jobs.row(
                    cluster,
                    next(numbers),
                    at=ended_at,
                    started_at=ended_at - ran,
                    host=host,
                    state="completed",
                    exit_code=0,
                    experiment=nova,
                )

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
        for number in range(failures):
            job = jobs.row(
                cluster,
                next(numbers),
                at=ended_at,
                started_at=ended_at - ran,
                host=f"{host}.example.org",
                experiment=nova,
                stage="reco" if number % 2 else "simulation",
            )
            verdict(job, at=ended_at, group=group, service=service)

    return failing
