"""Rules that retry with half the events, on another cluster and at another site, on real Slurms."""

import pytest
from django.utils import timezone

from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Site
from apps.jobs.models import Job
from apps.progress.domain.progress import progress_now
from apps.quality.domain.data_quality import data_quality_of
from apps.recovery.domain.rules.lifecycle import create_rule
from apps.submission.models import Submission
from tests.end_to_end.test_recovery_slurm import (
    decisions_on,
    recover,
)
from tests.end_to_end.test_submission_slurm import Portal
from tests.factories import clusters, people
from tests.programs.slurm_server import running_slurm
from tests.submission.fake_slurm import FakeSlurm

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

#: A job can produce nine events at most; it lists those that it produced.
NINE_AT_MOST = """#!/bin/bash
test $OPSPORTAL_EVENTS_PER_JOB -le 9 || exit 72
last=$((OPSPORTAL_FIRST_EVENT + OPSPORTAL_EVENTS_PER_JOB - 1))
seq $OPSPORTAL_FIRST_EVENT $last >> {jobs}/events
"""
#: Job 1 fails on the first cluster only; each attempt notes where it ran.
FAILS_HERE = """#!/bin/bash
echo $SLURM_CLUSTER_NAME >> {jobs}/attempts-$OPSPORTAL_JOB_INDEX
test $OPSPORTAL_JOB_INDEX$SLURM_CLUSTER_NAME != 1{cluster} || exit 73
"""
#: The other Slurm numbers its jobs from here, so that no test mixes up those of both.
FIRST_JOB_ELSEWHERE = 500_000


@pytest.fixture(scope="module")
def other_slurm():
    """A second real Slurm beside the first one."""
    first_job = f"--set=FirstJobId={FIRST_JOB_ELSEWHERE}"
    with running_slurm("--nodes", "1", first_job, cluster="other") as server:
        yield server


@pytest.fixture
def other_cluster(other_slurm, settings):
    """The cluster of the second Slurm, to which the portal submits, too."""
    settings.LOG_ROOTS = [*settings.LOG_ROOTS, other_slurm.jobs_dir]
    other = ensure_cluster(
        name=other_slurm.cluster,
        scheduler="slurm",
        by="test",
        at=people.LONG_AGO,
        options={"conf": str(other_slurm.conf), "log_owners": "root"},
    )
    other.submits = True
    other.submission = {
        "directory": str(other_slurm.jobs_dir),
        "output": str(other_slurm.jobs_dir / "%A_%a.out"),
        "array_size": 2,
    }
    other.save()
    return other


@pytest.fixture
def add_rule(activate, approver):
    """Return a function that lets a new rule act on jobs that exit with a code."""

    def adding(exit_code, kind):
        definition = {"condition": {"exit_codes": [exit_code]}, "action": {"kind": kind}}
        create_rule(name="Test", definition=definition, by=approver, at=timezone.now())
        activate("Test")

    return adding


def test_half_the_events_are_produced_and_the_other_half_is_not_produced(
    slurm,
    cluster,
    start,
    add_rule,
    tmp_path,
):
    request = start(NINE_AT_MOST, jobs=3)
    add_rule(72, "half-events")
    portal = Portal(cluster, slurm, tmp_path / "journal")
    [array] = portal.turn()
    recover(cluster)
    [half] = portal.turn()
    recover(cluster)

    assert (half.retry_of, half.indices, half.changes) == (array, "0-2", {"events_part": 2})
    assert set(decisions_on(array).values_list("outcome", flat=True)) == {"completed"}
    events = sorted(map(int, (tmp_path / "events").read_text().split()))
    assert events == [*range(1, 6), *range(11, 16), *range(21, 26)]

    portal.work_off()
    request.refresh_from_db()
    [stage] = progress_now(request, at=timezone.now()).stages
    assert stage.in_part.jobs == 3
    assert len(events) + stage.in_part.events_missing == request.stages.get().events
    assert request.state == "data_quality"
    assert data_quality_of(request).in_part


@pytest.mark.parametrize("kind", ["other-cluster", "avoid-site"])
def test_job_is_retried_on_a_second_slurm(
    kind,
    slurm,
    other_slurm,
    cluster,
    other_cluster,
    start,
    add_rule,
    tmp_path,
):
    cluster.site = Site.objects.create(name="Bern")
    cluster.save()
    other_cluster.site = Site.objects.create(name="Lyon")
    other_cluster.save()
    if kind == "avoid-site":
        add_roomy_cluster(cluster.site, tmp_path)

    request = start(FAILS_HERE.replace("{cluster}", slurm.cluster), jobs=3)
    add_rule(73, kind)
    portal = Portal(cluster, slurm, tmp_path / "journal")
    other_portal = Portal(other_cluster, other_slurm, tmp_path / "other-journal")
    [array] = portal.turn()
    assert Job.objects.get(job_id=f"{array.spool_id}_1").site == cluster.site
    recover(cluster)
    assert [row.changes for row in decisions_on(array)] == [{"cluster": "other"}]

    [retry] = other_portal.turn()
    assert (retry.retry_of, retry.indices, retry.cluster) == (array, "1", other_cluster)
    assert int(retry.spool_id) >= FIRST_JOB_ELSEWHERE
    recover(other_cluster)
    [decision] = decisions_on(array)
    assert (decision.outcome, decision.recovery) == ("completed", "by-rule")
    retried = Job.objects.get(cluster=other_cluster, spool_id=retry.spool_id)
    assert (retried.state, retried.site) == ("completed", other_cluster.site)
    assert (tmp_path / "attempts-1").read_text().split() == [slurm.cluster, other_slurm.cluster]
    for index in (0, 2):
        assert (tmp_path / f"attempts-{index}").read_text().split() == [slurm.cluster]

    completed = 0
    for submission in Submission.objects.filter(request=request):
        completed += submission.completed
    assert completed == 3
    request.refresh_from_db()
    assert request.state == "data_quality"
    assert not data_quality_of(request).in_part


def add_roomy_cluster(site, directory) -> None:
    """Add a simulated cluster at a site, with more room than any other."""
    simulated = FakeSlurm(directory / "simulated")
    clusters.cluster(
        "roomy",
        scheduler="slurm",
        submits=True,
        site=site,
        options={"bin": str(simulated.directory), "timeout_seconds": "5"},
        submission={"array_size": 4, "most_in_flight": 90_000},
    )
