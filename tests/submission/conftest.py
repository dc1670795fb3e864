import json

import pytest

from apps.clusters.models import Cluster
from apps.submission.domain.arrays.assignment import choose_cluster
from tests.factories import clusters, requests, submissions
from tests.factories.requests import AT
from tests.factories.workflows import workflow
from tests.submission.fake_slurm import FakeSlurm

DECLARATION = """
title: Printing
stages:
  stage:
    title: Stage
    arguments: [name, release, configuration, input_dataset, output_dataset, events, jobs, memory_bytes, wall_seconds]
    command: ["/usr/bin/printf", "%s", "{configuration}", "{job_index}", "{first_event}"]
"""


@pytest.fixture(autouse=True)
def today(monkeypatch):
    monkeypatch.setattr("django.utils.timezone.now", lambda: AT)


@pytest.fixture
def fake(tmp_path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm")


@pytest.fixture
def cluster(db, fake) -> Cluster:
    options = {
        "array_size": 4,
        "accounts": {"NOVA": "nova"},
        "directory": "/tmp",
        "most_in_flight": 100,
    }
    return clusters.cluster(
        name="farm",
        scheduler="slurm",
        submits=True,
        options={"bin": str(fake.directory), "timeout_seconds": "5"},
        submission=options,
    )


@pytest.fixture
def printing(db):
    return workflow("printing", DECLARATION)


@pytest.fixture
def make(liaison, nova, approver, printing):
    """Return a function that makes a request of two stages in a state."""

    def in_state(state: str, **changes):
        values = {"jobs": 6, "events": 60}
        stages = (requests.stage("one", **values), requests.stage("two", **values))
        content = {"workflow": printing, "stages": stages, "later": AT, **changes}
        return requests.request_in(state, by=liaison, experiment=nova, approver=approver, **content)

    return in_state


@pytest.fixture
def end_jobs():
    """Return a function that lets jobs of a submission end: completed, but for those of `failed`,
    by number of task.
    """
    return submissions.end_jobs


READING_DECLARATION = """
title: Reading files
stages:
  stage:
    title: Stage
    arguments:
      [name, release, configuration, input_dataset, output_dataset, jobs, memory_bytes,
       wall_seconds]
    command: ["/usr/bin/printf", "%s", "{configuration}", "{files}"]
"""
NAMES = [f"raw_{number}.root" for number in range(10)]


@pytest.fixture
def catalogue(tmp_path, settings):
    """Return a function that says which files the dataset has."""
    path = tmp_path / "datasets.json"
    settings.DATASET_CATALOGUE = f"file:{path}"

    def has(*names):
        files = [{"name": name, "events": 100, "size_bytes": 2_000} for name in names]
        path.write_text(json.dumps({"datasets": [{"name": "raw", "file_list": files}]}))

    has(*NAMES)
    return has


@pytest.fixture
def reading(db, catalogue, liaison, nova, approver):
    """Return a function that makes a queued request of a stage that reads the files of `raw`."""
    reads_files = workflow("reading", READING_DECLARATION)

    def make(jobs=4, *, state="queued", **changes):
        stage = requests.stage("reco", jobs=jobs, events=None, input_dataset="raw")
        content = {"workflow": reads_files, "stages": (stage,), "later": AT, **changes}
        return requests.request_in(state, by=liaison, experiment=nova, approver=approver, **content)

    return make


@pytest.fixture
def started(reading, cluster, approver):
    """Return the assignment of such a request that has started."""
    request = reading(state="running")
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)
