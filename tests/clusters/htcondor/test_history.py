"""Finished jobs, from history files and from a directory with a file for each."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import Flagged, JobState, SchedulerError
from apps.clusters.schedulers.htcondor import history
from apps.clusters.schedulers.htcondor.classads import read_ad
from apps.clusters.schedulers.htcondor.records import read_record
from apps.clusters.schedulers.htcondor.scheduler import HTCondor
from tests.factories.htcondor_spool import banner, history_ad

SAMPLES = Path(__file__).parents[4] / "shared" / "samples" / "htcondor"
START = datetime(2026, 11, 20, 9, tzinfo=UTC)
T = int(START.timestamp())
DAY = timedelta(days=1)


def ended(number, minutes, *, proc=0, written=True, **values):
    """Return a job that ended so many minutes after START, with the line that ends its ad."""
    at = T + minutes * 60
    times = {
        "QDate": T - 600,
        "JobCurrentStartDate": T - 300,
        "CompletionDate": at,
        "EnteredCurrentStatus": at,
    }
    values = times | values
    completed = values["CompletionDate"]
    return history_ad(number, proc, **values) + banner(
        number, proc, completed=completed, written=at + 5 if written else None
    )


def jobs_of(since=0, until=1_000_000, **options):
    scheduler = HTCondor("mice", {name: str(path) for name, path in options.items()})
    minutes = [timedelta(minutes=minute) for minute in (since, until)]
    return [
        record.job_id
        for record in scheduler.finished_jobs(since=START + minutes[0], until=START + minutes[1])
    ]


def record(**values):
    return read_record(read_ad(history_ad(7, 3, **{"QDate": T} | values).splitlines()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history"


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("block", [7, 100, 1_000_000])
def test_jobs_are_found_by_their_ends_however_the_file_is_cut(path, monkeypatch, written, block):
    monkeypatch.setattr(history, "_BLOCK_BYTES", block)
    path.write_bytes(b"".join(ended(number, number, written=written) for number in range(1, 6)))

    assert jobs_of(history=path) == ["1.0", "2.0", "3.0", "4.0", "5.0"]
    assert jobs_of(2, 4, history=path) == ["2.0", "3.0"]
    assert jobs_of(6, history=path) == []


def test_reading_stops_where_all_before_is_older(path, monkeypatch):
    path.write_bytes(b"".join(ended(number, number) for number in range(1, 1001)))
    read = []
    monkeypatch.setattr(history, "read_ad", lambda lines: read.append(1) or read_ad(lines))

    assert jobs_of(999, history=path) == ["999.0", "1000.0"]
    assert len(read) == 2


def test_a_job_that_left_the_queue_long_after_its_end_is_found(path):
    path.write_bytes(
        ended(1, 60) + ended(2, 5).replace(b"= %d\n" % (T + 305), b"= %d\n" % (T + 7200))
    )

    assert jobs_of(0, 10, history=path) == ["2.0"]


def test_cpu_model_is_that_of_the_attribute_the_site_names(path):
    path.write_bytes(ended(1, 1, MachineAttrCPU_MODEL0="EPYC 7702"))

    models = {}
    for attribute in ("", "CPU_MODEL", "CpuModelNumber"):
        scheduler = HTCondor("mice", {"history": str(path), "cpu_model_attribute": attribute})
        [job] = scheduler.finished_jobs(since=START, until=START + DAY)
        models[attribute] = job.cpu_model
    assert models == {"": "", "CPU_MODEL": "EPYC 7702", "CpuModelNumber": ""}


def test_rotated_files_are_read_as_far_as_needed(path):
    for name, number in (
        ("history.20261120T080000", 1),
        ("history.20261120T090000", 2),
        ("history", 3),
    ):
        path.with_name(name).write_bytes(ended(number, number))
        os.utime(path.with_name(name), (T + number * 60,) * 2)
    path.with_name("history.7.0").write_bytes(b"of a job")

    assert jobs_of(history=path) == ["1.0", "2.0", "3.0"]
    assert jobs_of(history=path.parent) == ["1.0", "2.0", "3.0"]
    path.with_name("history.20261120T080000").write_bytes(b"\xff" * 100)
    assert jobs_of(2, history=path) == ["2.0", "3.0"]


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_a_job_that_is_not_written_to_its_end_is_left_for_the_next_time(path, cut):
    path.write_bytes(ended(1, 1) + ended(2, 2)[:-cut])

    assert jobs_of(history=path) == ["1.0"]


def test_records_of_other_kinds_are_passed_over(path):
    epoch = (
        history_ad(9) + b'*** EPOCH ClusterId=9 ProcId=0 RunInstanceId=0 Owner="x" CurrentTime=1\n'
    )
    path.write_bytes(ended(1, 1) + epoch + ended(2, 2))

    assert jobs_of(history=path) == ["1.0", "2.0"]


def test_an_ad_that_makes_no_sense_is_flagged_and_the_others_are_read(path):
    bad = history_ad(2, QDate="x", CompletionDate=T) + banner(2, completed=T)
    path.write_bytes(ended(1, 1) + bad + b"*** Offset =\n" + ended(3, 3, Owner="\\n*** Offset = 0"))

    flagged, first, last = HTCondor("mice", {"history": str(path)}).finished_jobs(
        since=START, until=START + DAY
    )
    assert (first.job_id, last.job_id) == ("1.0", "3.0")
    assert "no QDate" in flagged.reason
    assert 'QDate = "x"' in flagged.raw


def test_jobs_with_a_file_each_are_read(tmp_path, path):
    for number in (1, 2, 3):
        (tmp_path / f"history.{number}.0").write_bytes(ended(number, number).rpartition(b"*** ")[0])
        os.utime(tmp_path / f"history.{number}.0", (T + number * 60,) * 2)
    (tmp_path / ".history.4.0.tmp").write_bytes(ended(4, 4))
    (tmp_path / "history.5.0").symlink_to("/etc/passwd")
    (tmp_path / "history.6.0").mkdir()

    assert jobs_of(per_job_history=tmp_path) == ["1.0", "2.0", "3.0"]
    assert jobs_of(2, 3, per_job_history=tmp_path) == ["2.0"]
    path.write_bytes(ended(2, 2) + ended(9, 9))
    assert jobs_of(history=path, per_job_history=tmp_path) == ["1.0", "2.0", "3.0", "9.0"]


def test_wrong_options_and_missing_files_are_said(tmp_path):
    with pytest.raises(ValueError, match="unknown options of the htcondor adapter: collector"):
        HTCondor("mice", {"collector": "x"})
    with pytest.raises(SchedulerError, match="neither option"):
        jobs_of()
    with pytest.raises(SchedulerError, match="No such file"):
        jobs_of(history=tmp_path / "none")
    with pytest.raises(SchedulerError, match="No such file"):
        jobs_of(per_job_history=tmp_path / "none")


REMOVED = {"JobStatus": 3, "CompletionDate": 0, "RemoveReason": "via condor_rm (by user ana)"}


@pytest.mark.parametrize(
    ("values", "ending"),
    [
        ({}, (JobState.COMPLETED, 0, 0)),
        ({"ExitCode": 3}, (JobState.FAILED, 3, 0)),
        ({"ExitBySignal": True, "ExitSignal": 11}, (JobState.FAILED, 0, 11)),
        (REMOVED, (JobState.CANCELLED, 0, 0)),
        (
            REMOVED | {"LastJobStatus": 5, "LastHoldReasonCode": 1, "LastHoldReason": "x"},
            (JobState.CANCELLED, 0, 0),
        ),
        (
            REMOVED
            | {
                "LastJobStatus": 5,
                "HoldReasonCode": 34,
                "HoldReasonSubCode": 102,
                "HoldReason": "Memory",
            },
            (JobState.OUT_OF_MEMORY, 0, 0),
        ),
        (
            REMOVED
            | {
                "LastJobStatus": 5,
                "HoldReasonCode": 34,
                "HoldReason": "gone over memory limit of 1 Mb",
            },
            (JobState.OUT_OF_MEMORY, 0, 0),
        ),
        (
            REMOVED
            | {
                "LastJobStatus": 5,
                "HoldReasonCode": 34,
                "HoldReasonSubCode": 104,
                "HoldReason": "no memory",
            },
            (JobState.FAILED, 0, 0),
        ),
        (
            REMOVED | {"LastJobStatus": 5, "LastHoldReasonCode": 46, "LastHoldReason": "x"},
            (JobState.TIMEOUT, 0, 0),
        ),
        (REMOVED | {"LastHoldReasonCode": 46, "LastHoldReason": "x"}, (JobState.CANCELLED, 0, 0)),
    ],
)
def test_endings_are_told_apart(values, ending):
    job = record(**values)

    assert (job.state, job.exit_code, job.signal) == ending


def test_a_record_has_what_the_ad_has():
    job = record(
        Iwd="/home/ana",
        Out="out.7.3",
        Err="/logs/err.7.3",
        Cmd="run.sh",
        Arguments="--seed 1",
        NumJobStarts=2,
        RemoteUserCpu=100.5,
        RemoteSysCpu=2.0,
        RemoteWallClockTime=120.0,
        ResidentSetSize=2048,
        RequestMemory=4096,
        CpusProvisioned=8,
        LastRemoteHost="slot1_2@glidein_3_4@node7.example",
        MATCH_EXP_JOBGLIDEIN_ResourceName="Unknown",
        MATCH_GLIDEIN_Site="CNAF",
        AllowedJobDuration=3600,
    )
    paths = HTCondor("mice", {}).log_paths(job, script=b"", environment={})

    assert (job.job_id, job.raw_id, job.spool_id, job.attempt) == ("7.3", 7, "7", 2)
    assert (job.cpu_seconds, job.wall_seconds, job.cpus) == (102.5, 120, 8)
    assert (job.max_memory_bytes, job.requested_memory_bytes) == (2 * 1024**2, 4 * 1024**3)
    assert (job.host, job.site, job.time_limit_seconds) == ("node7.example", "CNAF", 3600)
    assert job.submit_line == "run.sh --seed 1"
    assert (paths.stdout, paths.stderr) == (Path("/home/ana/out.7.3"), Path("/logs/err.7.3"))


def test_gpus_of_a_record():
    job = record(GPUsProvisioned=2, GPUsAverageUsage=1.5, GPUsMemoryUsage=1024)
    assert (job.gpus, job.gpu_share, job.max_gpu_memory_bytes) == (2, 0.75, 1024**3)
    job = record(RequestGPUs=1, GPUsAverageUsage=1.2)
    assert (job.gpus, job.gpu_share, job.max_gpu_memory_bytes) == (1, 1.0, None)
    job = record(GPUsAverageUsage=0.3, GPUsMemoryUsage=7)
    assert (job.gpus, job.gpu_share, job.max_gpu_memory_bytes) == (0, None, None)


@pytest.mark.parametrize("out", ["", "/dev/null", "out.$(Cluster)", "out.$$(Name)"])
def test_output_that_is_nowhere_has_no_path(out):
    assert (
        HTCondor("mice", {}).log_paths(record(Iwd="/home", Out=out), script=b"", environment={})
        is None
    )


@pytest.mark.parametrize(
    "values", [{"JobStatus": 5}, {"ClusterId": "x"}, {"QDate": 10**17}, {"CompletionDate": 1e300}]
)
def test_an_ad_of_no_finished_job_is_refused(values):
    flagged = record(**{"EnteredCurrentStatus": "x"} | values)

    assert isinstance(flagged, Flagged)
    assert flagged.record is None


@pytest.mark.skipif(not SAMPLES.exists(), reason="no samples here")
def test_real_ads_are_read():
    """Of the first the number of its process was cut out when it was published,
    of the second the most.
    """
    month = [datetime(2017, number, 1, tzinfo=UTC) for number in (2, 3)]
    second, first = history.ads_in_history(
        SAMPLES / "history-dune-2017.classads", since=month[0], until=month[1]
    )
    job = read_record({**first, b"procid": b"ProcId = 10"})

    assert read_record(second).job_id == "14155293.202"
    assert (job.host, job.site, job.state) == (
        "fnpc4108.fnal.gov",
        "FNAL_GPGrid",
        JobState.COMPLETED,
    )
    assert (job.ended_at - job.started_at).total_seconds() == 154
