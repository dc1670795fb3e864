"""Jobs of parameter scans: arrays of one point each, scripts run by bash,
and the progress of each point.
"""

import io
import os
import subprocess
import tarfile

import pytest

from apps.production.enums import Verb
from apps.progress.domain.progress import progress_now
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.request_bundle import write_bundle
from apps.submission.domain.arrays.shortfalls import accept_stage
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.by_stage import retry_failed
from tests.factories import requests
from tests.factories.requests import AT
from tests.submission.dispatch.test_dispatch import LATER, step


@pytest.fixture
def scanning(make):
    """Return a function that makes a scan of three points, with two jobs each, in a state."""

    def in_state(state):
        values = {"jobs": 6, "events": 66}
        one = requests.stage(
            "one", configuration="e{energy}:", output_dataset="one_{energy}", **values
        )
        two = requests.stage("two", configuration="all:", output_dataset="two_{energy}", **values)
        return make(state, scan="energy = 1, 2, 5", stages=(one, two))

    return in_state


@pytest.fixture
def running(scanning, cluster, approver):
    return choose_cluster(request=scanning("running"), cluster=cluster, by=approver, at=AT)


def test_each_array_has_the_jobs_of_one_point(running):
    arrays = [step(running) for _ in range(3)]
    assert step(running) is None
    assert [(array.first, array.tasks) for array in arrays] == [(0, 2), (2, 2), (4, 2)]
    # Configuration, index and first event: 22 events of each point, 11 of each job.
    printed = [_printed(array.script, task) for array in arrays for task in (0, 1)]
    assert printed == ["e1:|0|1|", "e1:|1|12|", "e2:|2|23|", "e2:|3|34|", "e5:|4|45|", "e5:|5|56|"]
    assert [f"OPSPORTAL_POINT={n}" in array.script for n, array in enumerate(arrays, start=1)] == [
        True
    ] * 3


def _printed(script, task):
    environment = {"SLURM_ARRAY_TASK_ID": str(task), "PATH": os.environ["PATH"]}
    script = script.replace("/usr/bin/printf %s", "/usr/bin/printf '%s|'")
    done = subprocess.run(
        ["/bin/bash", "-s"],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_progress_is_that_of_each_point(running, approver, end_jobs):
    first, second, _ = (step(running) for _ in range(3))
    end_jobs(first)
    end_jobs(second, failed={1})
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    points = progress_now(running.request, at=LATER).points
    assert [point.point.label for point in points] == ["energy = 1", "energy = 2", "energy = 5"]
    assert [point.stages[0].output_dataset for point in points] == ["one_1", "one_2", "one_5"]
    one = [point.stages[0] for point in points]
    assert [(s.requested_jobs, s.completed, s.failed, s.in_scheduler) for s in one] == [
        (2, 2, 0, 0),
        (2, 1, 1, 0),
        (2, 0, 0, 2),
    ]
    assert not any(point.is_done for point in points)

    retry_failed(request=running.request, position=0, by=approver, at=LATER, reason="503")
    again = dispatch.send(
        submission=dispatch.claim_next(cluster=running.cluster, at=LATER), at=LATER
    )
    assert "e2:" in again.script
    again_point = progress_now(running.request, at=LATER).points[1].stages[0]
    assert (again_point.failed, again_point.in_scheduler) == (0, 1)


def test_a_point_goes_on_once_its_own_jobs_are_complete(running, approver, end_jobs):
    arrays = [step(running) for _ in range(3)]
    end_jobs(arrays[1])
    end_jobs(arrays[0], failed={1})
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    second = step(running)
    assert (second.position, second.first, second.tasks) == (1, 2, 2)
    assert "OPSPORTAL_POINT=2" in second.script
    assert step(running) is None, "job 1 of the first point has failed, and the third runs"

    end_jobs(arrays[2])
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    third = step(running)
    assert (third.position, third.first) == (1, 4)
    retry_failed(request=running.request, position=0, by=approver, at=LATER, reason="503")
    again = dispatch.send(
        submission=dispatch.claim_next(cluster=running.cluster, at=LATER), at=LATER
    )
    assert step(running) is None
    end_jobs(again)
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    first = step(running)
    assert (first.position, first.first, first.tasks) == (1, 0, 2)
    assert step(running) is None


def test_an_accepted_stage_lets_every_point_go_on(running, approver, end_jobs):
    arrays = [step(running) for _ in range(3)]
    for array in arrays:
        end_jobs(array, failed={0})
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    assert step(running) is None
    accept_stage(request=running.request, position=0, by=approver, at=LATER, reason="enough")
    assert [step(running).first for _ in range(3)] == [0, 2, 4]
    assert step(running) is None


def test_a_test_runs_the_first_point(scanning, cluster, approver):
    assignment = assign_request(
        request=scanning("queued"), cluster=cluster, by=approver, at=AT, verb=Verb.TEST
    )
    sent = plan_next(assignment=assignment, at=AT)
    assert sent.is_test
    assert "e1:" in sent.script


def test_the_bundle_has_a_script_for_each_point(scanning):
    request = scanning("queued")
    with tarfile.open(fileobj=io.BytesIO(write_bundle(request=request, at=AT))) as tar:
        texts = {member.name: tar.extractfile(member).read().decode() for member in tar}
    names = sorted(name.rpartition("/")[2] for name in texts if "point" in name)
    assert names == [f"stage-{stage}-point-{point}.sh" for stage in (1, 2) for point in (1, 2, 3)]
    lines = texts[f"{request.key}/submit.sh"].splitlines()
    sent = [line.rpartition("stage-")[2].rstrip(")") for line in lines if "sbatch" in line]
    assert sent == [
        f"{stage}-point-{point}.sh {2 * point - 2}" for stage in (1, 2) for point in (1, 2, 3)
    ]
    waits = [
        line.partition("--dependency=afterok$")[2].partition('"')[0]
        for line in lines
        if "sbatch" in line
    ]
    assert waits == ["", "", "", *(f"stage_1_point_{point}" for point in (1, 2, 3))]


def test_progress_of_other_requests_has_no_points(make):
    assert progress_now(make("queued"), at=AT).points == []


def test_the_api_shows_them(running, client, approver):
    step(running)
    client.force_login(approver)
    points = client.get(f"/api/v1/progress/{running.request.key}/").json()["points"]
    assert [(point["number"], point["values"]) for point in points] == [
        (1, {"energy": "1"}),
        (2, {"energy": "2"}),
        (3, {"energy": "5"}),
    ]
    assert points[0]["stages"][0] == {
        "stage": "one",
        "output_dataset": "one_1",
        "jobs_requested": 2,
        "done": 0,
        "failed": 0,
        "in_scheduler": 2,
    }
    page = client.get(running.request.get_absolute_url()).content.decode()
    assert "3 points of the parameter scan" in page
    assert "energy = 5" in page
