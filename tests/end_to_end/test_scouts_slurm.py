"""Scouts on a real Slurm: a broken stage stops, and a sound one gets the memory that it needs."""

from collections import Counter
from pathlib import Path

import pytest
from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.jobs.models import Job
from apps.production.models import Hold
from apps.submission.enums import ScoutState
from apps.submission.models import StageScouts
from tests.end_to_end.test_submission_slurm import Portal

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]
#: Fails until a file exists.
PROGRAM = """#!/bin/bash
test -e {jobs}/mended && exit
echo "ValueError: no such geometry" >&2
exit 3
"""
#: Uses about 30 MB for long enough that accounting samples it on a busy machine, too.
FRUGAL_PROGRAM = """#!/bin/bash
head -c 20M /dev/zero | tail -c 20M | (sleep 6; wc -c)
"""
JOBS = 60


@pytest.fixture
def no_time_limit(slurm):
    """On a busy machine, even a short job may run for more than the minute that it asks for."""
    slurm.scontrol("update", "PartitionName=batch", "OverTimeLimit=UNLIMITED")
    yield
    slurm.scontrol("update", "PartitionName=batch", "OverTimeLimit=0")


def test_broken_stage_stops_after_its_first_jobs_and_goes_on_by_a_click(
    slurm,
    cluster,
    start,
    tmp_path: Path,
    approver,
    client,
):
    request = start(PROGRAM, jobs=JOBS)
    portal = Portal(cluster, slurm, tmp_path / "journal")
    sent = 0
    while not Hold.objects.exists():
        scouts = portal.turn()
        sent += sum(array.tasks for array in scouts)
        assert sent <= 20
    row = StageScouts.objects.get()
    assert (row.state, row.failed, row.completed) == (ScoutState.BROKEN, sent, 0)
    assert portal.turn() == [], "the other jobs stay"

    (tmp_path / "mended").touch()
    client.force_login(approver)
    hold = Hold.objects.get()
    client.post(reverse("production:hold-lift", args=[hold.pk]), {"to": "request"})
    assert sum(array.tasks for array in portal.turn()) == JOBS - sent
    completed = Job.objects.filter(request=request, state=JobState.COMPLETED)
    assert completed.count() == JOBS - sent
    assert Hold.objects.count() == 1


def test_stage_that_asked_far_too_much_memory_gets_less_and_completes(
    slurm,
    cluster,
    start,
    no_time_limit,
    tmp_path: Path,
):
    request = start(FRUGAL_PROGRAM, jobs=JOBS)
    portal = Portal(cluster, slurm, tmp_path / "journal")
    sent = 0
    asked = []
    while sent < JOBS:
        for array in portal.turn():
            sent += array.tasks
            asked.append((array.tasks, array.asked["time_limit_seconds"]))
            memory_bytes = array.asked["memory_bytes"]
            jobs = Job.objects.filter(spool_id=array.spool_id)
            assert set(jobs.values_list("requested_memory_bytes", flat=True)) == {memory_bytes}
    row = StageScouts.objects.get()
    assert row.state == ScoutState.SOUND
    assert row.measured_memory_bytes < row.memory_bytes < row.asked_memory_bytes
    assert asked[0] == (10, 600)
    assert asked[-1] == (JOBS - 10, row.wall_seconds)
    assert row.wall_seconds < 600
    states = Counter(Job.objects.filter(request=request).values_list("state", flat=True))
    assert states == {JobState.COMPLETED: JOBS}
