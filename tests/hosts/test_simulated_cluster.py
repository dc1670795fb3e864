"""Arrays and retries on the simulated cluster run on no host that is excluded, from end to end."""

from datetime import timedelta

import pytest

from apps.clusters.models import Host
from apps.demo.simulation.world import HOSTS
from apps.hosts.domain.exclusions import exclude_host
from apps.jobs.models import Job
from apps.submission.models import Submission
from tests.submission.test_simulated_cluster import demo, press_send_again, request_of  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


def test_jobs_run_on_the_hosts_that_are_left(
    demo,  # noqa: F811
    liaison,
    nova,
    approver,
    shifter,
):
    now = demo.clock()
    names = [name.partition(".")[0] for name in HOSTS]
    for name in names:
        Host.objects.create(cluster=demo.cluster, name=name, listed_at=now)
    left = set(names[:2])
    for name in names[2:]:
        exclude_host(
            cluster=demo.cluster,
            host=name,
            reason="Bad rack.",
            by=shifter,
            at=now,
            expires_at=now + timedelta(days=30),
        )
    Host.objects.update(listed_at=now + timedelta(days=1))

    request = request_of(liaison, nova, approver)
    for _ in range(20):
        demo.turn()
        press_send_again(request, approver, demo)
        if Submission.objects.filter(stage_name="simulation", ended__gt=0).exists():
            break

    assert Submission.objects.filter(stage_name="simulation", ended__gt=0).exists()
    for submission in Submission.objects.exclude(sent_at=None):
        assert submission.excluded_hosts == sorted(names[2:])
    hosts = Job.objects.filter(request=request).values_list("host", flat=True)
    assert {host.partition(".")[0] for host in hosts} <= left
