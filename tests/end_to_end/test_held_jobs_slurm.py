"""Jobs that are held in a real Slurm: the page lists them, an operator releases them, they run."""

import time

import pytest

from apps.archive.tasks import read_queue
from apps.core.models import Event
from apps.jobs.models import Job
from apps.submission.models import Submission
from apps.submission.tasks import send_to
from tests.end_to_end.test_submission_slurm import Portal
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

HELD_PAGE = "/jobs/live/?state=held"
#: A job leaves a file when it starts, and runs until another file exists.
PROGRAM = """#!/bin/bash
touch {jobs}/started-$OPSPORTAL_JOB_INDEX
until test -e {jobs}/go-on; do sleep 0.1; done
"""
WAITING = {"PENDING", "SPECIAL_EXIT"}
#: Reason by which the page explains each command that holds jobs.
REASONS = {
    "uhold": "Held by user",
    "hold": "Held by administrator",
    "requeuehold": "Requeued and held",
    "requeuehold State=SpecialExit": "Requeued and held",
}


@pytest.fixture
def hold(slurm, cluster, start, tmp_path):
    """Return a function that submits an array of two jobs and holds it in Slurm by a command."""

    def holding(command) -> Submission:
        runs_first = command.startswith("requeuehold")
        partition_state = "UP" if runs_first else "DOWN"
        slurm.scontrol("update", "PartitionName=batch", f"State={partition_state}")
        try:
            start(PROGRAM, jobs=2)
            send_to(cluster_id=cluster.pk)
            array = Submission.objects.get()
            if runs_first:
                wait_for_file(tmp_path / "started-0")
                wait_for_file(tmp_path / "started-1")
            slurm.scontrol(*command.split(), array.spool_id)
        finally:
            slurm.scontrol("update", "PartitionName=batch", "State=UP")
        return array

    return holding


def wait_for_file(path) -> None:
    deadline = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} is missing"
        time.sleep(0.1)


def wait_until_held(slurm, array) -> None:
    """Wait until both jobs are pending; a job that was requeued ends first."""
    deadline = time.monotonic() + 180
    while not WAITING.issuperset(slurm.states(array.spool_id).values()):
        assert time.monotonic() < deadline, slurm.scontrol("show", "job", array.spool_id)
        time.sleep(0.1)


def held_rows(client) -> dict[str, object]:
    """Return the rows of the page of held arrays that a user sees, by ID of the array."""
    page = client.get(HELD_PAGE)
    assert page.status_code == 200
    rows = {}
    for row in page.context["rows"]:
        rows[row.array.spool_id] = row
    return rows


@pytest.mark.parametrize("command", REASONS)
def test_operator_releases_held_jobs_and_they_complete(
    command,
    hold,
    slurm,
    cluster,
    browse,
    shifter,
    liaison,
    other_liaison,
    tmp_path,
):
    array = hold(command)
    wait_until_held(slurm, array)
    if command.startswith("requeuehold"):
        # Once released, it would wait for its former credential to expire.
        slurm.scontrol("update", f"jobid={array.spool_id}", "starttime=now+1")
    portal = Portal(cluster, slurm, tmp_path / "journal")
    capture_once(
        cluster=cluster.name, scheduler="slurm", spool=slurm.state_dir, journal=portal.journal
    )
    archive_all()
    read_queue(cluster_id=cluster.pk)

    operator = browse(shifter)
    row = held_rows(operator)[array.spool_id]
    assert (row.array.jobs, row.reason.text) == (2, REASONS[command])
    assert (row.array.request, row.array.stage) == (array.request, "only")
    url = f"/submissions/{array.request.key}/{array.number}/release/"
    page = operator.get(HELD_PAGE).content.decode()
    assert REASONS[command] in page
    assert f'href="{url}"' in page

    # Others cannot release it, and it stays held.
    assert url not in browse(liaison).get(HELD_PAGE).content.decode()
    assert array.spool_id not in held_rows(browse(other_liaison))
    assert browse(liaison).post(url).status_code == 403
    assert browse(other_liaison).post(url).status_code == 404
    send_to(cluster_id=cluster.pk)
    assert WAITING.issuperset(slurm.states(array.spool_id).values())

    answer = operator.post(url, {"reason": "The disk is back."}, follow=True)
    assert answer.status_code == 200
    assert "will be released" in answer.content.decode()
    send_to(cluster_id=cluster.pk)
    (tmp_path / "go-on").touch()
    slurm.wait_ended([array.spool_id])
    attempts = ["completed", "completed"]
    if command.startswith("requeuehold"):
        attempts += ["requeued", "requeued"]
    portal.collect({array.spool_id: len(attempts)})
    jobs = Job.objects.filter(spool_id=array.spool_id).order_by("state")
    assert list(jobs.values_list("state", flat=True)) == attempts

    read_queue(cluster_id=cluster.pk)
    assert array.spool_id not in held_rows(operator)
    released = Event.objects.filter(kind__startswith="submission.release").order_by("pk")
    assert list(released.values_list("kind", "actor")) == [
        ("submission.release_requested", shifter.username),
        ("submission.released", "opsportal"),
    ]
