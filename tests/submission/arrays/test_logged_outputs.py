"""Output files that a job names in its log: stored as if it had sent them, and hostile lines none."""

import json
import os

import pytest

from apps.datasets.domain.output_files import NamedFile
from apps.datasets.models import OutputFile
from apps.diagnosis.domain.reading.line_templates import queue_completed, read_completed_batch
from apps.diagnosis.domain.reading.output_lines import MOST_FILES, outputs_in
from apps.diagnosis.engine.base import Block
from apps.jobs.models import Job
from apps.submission.domain.arrays.logged_outputs import LOGGED_OUTPUTS, named_file
from tests.factories import jobs as job_factory
from tests.factories.requests import AT
from tests.submission.arrays.test_output_files import array, report, stage_of
from tests.submission.test_keep_up import HOUR, detector, keep_up

__all__ = ["array", "detector", "keep_up"]  # fixtures

LATER = AT + 2 * HOUR


def line(**fields: object) -> str:
    return f"opsportal-output: {json.dumps(fields)}\n"


def completed(submission, task: int, **fields: object) -> Job:
    return job_factory.row(
        submission.cluster,
        7_000 + task,
        at=LATER,
        job_id=f"{submission.spool_id}_{task}",
        spool_id=submission.spool_id,
        state="completed",
        exit_code=0,
        request_key=submission.request.key,
        stage=stage_of(submission).name,
        experiment=submission.request.experiment,
        **fields,
    )


def test_files_in_the_log_of_a_completed_job_are_stored(array, tmp_path, settings):
    settings.LOG_ROOTS = [tmp_path]
    array.cluster.options["log_owners"] = str(os.getuid())
    array.cluster.save()
    path = tmp_path / "job.out"
    path.write_text(
        "start\n"
        + line(name="a.root", size_bytes=5, events=3, run=1, checksum="adler32:0a1b2c3d")
        + "  "
        + line(name="b.root", size_bytes=7)
        + "opsportal-output: {broken\nopsportal-output: [1]\nend\n"
    )
    job = completed(array, array.first, log_path=str(path))
    assert queue_completed(job_pks=[job.pk], at=LATER) == 1
    assert read_completed_batch(at=LATER) == 1

    rows = OutputFile.objects.order_by("name")
    assert list(rows.values_list("name", "size_bytes", "events", "key", "by")) == [
        ("a.root", 5, 3, job.job_id, f"log of job {job.job_id}"),
        ("b.root", 7, None, job.job_id, f"log of job {job.job_id}"),
    ]


def test_files_that_the_job_sent_itself_stay_as_they_are(array):
    report(array, array.first, NamedFile("sent.root", 10))
    job = completed(array, array.first)
    LOGGED_OUTPUTS.take(job, [{"name": "logged.root", "size_bytes": 1}], at=LATER)
    assert list(OutputFile.objects.values_list("name", flat=True)) == ["sent.root"]


def test_files_of_a_job_of_no_request_are_not_stored(array):
    job = completed(array, array.first)
    job.request_key = ""
    LOGGED_OUTPUTS.take(job, [{"name": "a.root", "size_bytes": 1}], at=LATER)
    assert not OutputFile.objects.exists()


def test_a_fault_is_logged_and_stores_nothing_wrong(array, caplog):
    job = completed(array, array.first)
    files = [{"name": "a.root", "size_bytes": 1}, {"name": ["x"], "size_bytes": 1}]
    LOGGED_OUTPUTS.take(job, files, at=LATER)
    assert list(OutputFile.objects.values_list("name", flat=True)) == ["a.root"]
    assert "names 1 files that cannot be stored" in caplog.text

    other = completed(array, array.first + 1)
    LOGGED_OUTPUTS.take(other, [{"name": "a\x00b", "size_bytes": -1}], at=LATER)
    assert OutputFile.objects.count() == 1
    assert "are not stored" in caplog.text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "a"},
        {"name": "a", "size_bytes": "5"},
        {"name": "a", "size_bytes": True},
        {"name": "a", "size_bytes": 5.5},
        {"name": "a", "size_bytes": 5, "events": "3"},
        {"name": "a", "size_bytes": 5, "checksum": 7},
        {"name": "a", "size_bytes": 5, "parents": "b"},
        {"name": "a", "size_bytes": 5, "parents": [7]},
    ],
)
def test_fields_of_the_wrong_type_are_refused(fields):
    assert named_file(fields) is None


def test_lines_of_a_log_are_bounded():
    long = line(name="x" * 9_000, size_bytes=1)
    deep = "opsportal-output: {" + '"a":[' * 3_000 + "\n"
    inside = "echo " + line(name="echoed.root", size_bytes=1)
    many = "".join(line(name=f"{n}.root", size_bytes=n) for n in range(MOST_FILES + 5))
    data = (long + deep + inside + many).encode()
    files = outputs_in([Block(data, 0, len(data), 1)])
    assert len(files) == MOST_FILES
    assert files[0] == {"name": "0.root", "size_bytes": 0}
