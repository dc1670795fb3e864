"""Files that schedulers write: excerpts of real ones (Slurm 22.05, HTCondor 24),
and the whole ones where they are.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from apps.clusters.schedulers.base import Flagged, JobRecord, JobState
from apps.clusters.schedulers.exports import FORMATS

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples"
NEWEST = datetime(2026, 11, 21, tzinfo=UTC)
FILETXT = (
    "JobId=7 UserId=alice(20001) GroupId=alice(20001) Name={name} JobState=FAILED "
    "Partition=batch TimeLimit=5 "
    "StartTime=2026-11-20T22:05:23 EndTime=2026-11-20T22:05:25 NodeList=wn2 NodeCnt=1 "
    "ProcCnt=1 WorkDir=/exp/jobs/s "
    "ReservationName= Tres=cpu=1,mem=50M,node=1,billing=1 Account=hep QOS=normal WcKey= "
    "Cluster=opstest "
    "SubmitTime=2026-11-20T22:05:23 EligibleTime=2026-11-20T22:05:23 ArrayJobId=6 "
    "ArrayTaskId=0 DerivedExitCode=0:0 "
    "ExitCode=13:0 \n"
)
DOCUMENT = {
    "jobid": 4,
    "username": "alice",
    "user_id": 20001,
    "@start": "2026-11-20T22:43:41",
    "elapsed": 0,
    "total_cpus": 1,
    "@end": "2026-11-20T22:43:41",
    "@submit": "2026-11-20T22:43:40",
    "partition": "batch",
    "nodes": "wn1",
    "exit_code": "0:11",
    "state": "FAILED",
    "time_limit": 300,
    "job_name": "gen-segv",
    "work_dir": "/tmp/jobs/s",
    "std_out": "/tmp/jobs/out/%x-%j.out",
    "tres_req": "cpu=1,mem=100M,node=1,billing=1",
    "account": "ops",
}
SACCT = {
    "account": "hep",
    "comment": {"job": "campaign=mc26a"},
    "cluster": "opstest",
    "job_id": 86,
    "name": "scan",
    "array": {"job_id": 86, "task": None, "task_id": 5},
    "time": {
        "elapsed": 2,
        "end": 1795214469,
        "start": 1795214467,
        "submission": 1795214464,
        "limit": 5,
        "total": {"seconds": 61, "microseconds": 5},
    },
    "exit_code": {
        "status": "SIGNALED",
        "return_code": None,
        "signal": {"signal_id": 9, "name": "Killed"},
    },
    "het": {"job_id": 0, "job_offset": None},
    "nodes": "wn1",
    "partition": "batch",
    "user": "alice",
    "working_directory": "/tmp/jobs/s",
    "kill_request_user": None,
    "state": {"current": "FAILED", "reason": "None"},
    "tres": {
        "allocated": [{"type": "cpu", "count": 2}],
        "requested": [{"type": "mem", "count": 50}],
    },
    "steps": [
        {
            "tres": {"requested": {"max": [{"type": "mem", "count": 4239360}]}},
            "time": {"total": {"seconds": 0, "microseconds": 3586}},
            "step": {"id": "batch"},
        }
    ],
}
EVENTS = """000 (9211.000.000) 2026-02-13 10:44:59 Job submitted from host: <10.0.0.33:9618?addrs=10.0.0.33-9618>
    DAG Node: label1
...
001 (9211.000.000) 2026-02-13 10:45:00 Job executing on host: <10.0.0.33:9618?addrs=10.0.0.33-9618&alias=test02>
\tSlotName: slot1_1@test02.example.org
\tCpus = 1
...
006 (9211.000.000) 2026-02-13 10:45:08 Image size of job updated: 1012
\t44  -  MemoryUsage of job (MB)
...
005 (9211.000.000) 2026-02-13 10:45:37 Job terminated.
\t(1) Normal termination (return value 3)
\t\tUsr 0 00:00:07, Sys 0 00:00:01  -  Run Remote Usage
\t\tUsr 0 00:00:07, Sys 0 00:00:01  -  Total Remote Usage
\t2908  -  Total Bytes Sent By Job
\t17  -  Total Bytes Received By Job
\tPartitionable Resources :    Usage  Request Allocated
\t   Cpus                 :        0        1         2
...
000 (9212.000.000) 2026-02-13 10:45:38 Job submitted from host: <10.0.0.33:9618>
...
"""


def read(form: str, text: str, zone=UTC) -> list[JobRecord | Flagged]:
    return list(FORMATS[form](text, zone, NEWEST))


def test_sacct_json_is_read_whatever_its_version() -> None:
    later = json.loads(json.dumps(SACCT)) | {"state": {"current": ["FAILED"], "reason": "None"}}
    later["time"]["limit"] = {"set": True, "infinite": False, "number": 5}
    later["exit_code"] = {
        "status": ["SIGNALED"],
        "return_code": {"set": False},
        "signal": {"id": {"set": True, "number": 9}},
    }
    running = SACCT | {"job_id": 9, "state": {"current": "RUNNING"}}
    for job in (SACCT, later):
        (record,) = read("sacct-json", json.dumps({"jobs": [job, running]}))
        assert (record.job_id, record.spool_id, record.state) == ("86_5", "86", JobState.FAILED)
        assert (record.signal, record.cpu_seconds, record.time_limit_seconds, record.cpus) == (
            9,
            61.000005,
            300,
            2,
        )
        assert (record.max_memory_bytes, record.requested_memory_bytes) == (4239360, 50 * 1024**2)


def test_a_job_that_was_requeued_has_attempts() -> None:
    first = SACCT | {
        "state": {"current": "REQUEUED"},
        "time": SACCT["time"] | {"submission": 1795214460},
    }
    records = read("slurmrestd", json.dumps({"jobs": [SACCT, first]}))
    assert [(record.attempt, record.submitted_at.second) for record in records] == [(2, 0), (1, 0)]


def test_jobcomp_is_read_with_newlines_and_bars_in_names() -> None:
    odd = "a|b\nc JobState=COMPLETED d"
    text = (
        FILETXT.format(name="scan") + FILETXT.format(name=odd) + "JobId=9 UserId=alice(20001) Gro"
    )
    broken, first, second = read("jobcomp", text, ZoneInfo("Europe/Berlin"))
    assert (first.job_id, first.exit_code, first.uid, first.wall_seconds) == ("6_0", 13, 20001, 2)
    assert first.started_at == datetime(2026, 11, 20, 21, 5, 23, tzinfo=UTC)
    assert second.name == odd
    assert "filetxt" in broken.reason
    (document,) = read("jobcomp", json.dumps(DOCUMENT))
    assert (document.signal, document.stdout_path) == (11, "/tmp/jobs/out/gen-segv-4.out")


def test_event_log_is_read() -> None:
    (record,) = read("condor-events", EVENTS)
    assert (record.job_id, record.state, record.exit_code) == ("9211.0", JobState.FAILED, 3)
    assert (record.host, record.cpus, record.cpu_seconds, record.wall_seconds) == (
        "test02.example.org",
        2,
        8,
        37,
    )
    assert (record.max_memory_bytes, record.bytes_in, record.bytes_out) == (44 * 1024**2, 17, 2908)
    without_year = EVENTS.replace("2026-02-13", "12/31")
    (record,) = read("condor-events", without_year)
    assert record.ended_at == datetime(2025, 12, 31, 10, 45, 37, tzinfo=UTC)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
@pytest.mark.parametrize(
    ("form", "path", "records", "flagged"),
    [
        ("sacct-json", "slurm/sacct/sacct.json", 35, 0),
        ("slurmrestd", "slurm/scontrol/rest-slurmdb-v0.0.38-jobs.json", 106, 0),
        ("jobcomp", "slurm/jobcomp/filetxt-jobcomp.log", 118, 0),
        ("jobcomp", "slurm/jobcomp/elasticsearch-docs.jsonl", 10, 0),
        ("condor-history", "htcondor/history-dune-2017.classads", 1, 1),
    ],
)
def test_real_files_are_read(form: str, path: str, records: int, flagged: int) -> None:
    rows = read(form, (SAMPLES / path).read_text(errors="replace"))
    assert sum(isinstance(one, JobRecord) for one in rows) == records
    assert sum(isinstance(one, Flagged) for one in rows) == flagged
