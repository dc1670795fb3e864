"""Wrong records, by reader: each is flagged with its reason, is kept as it came,
and stops no other.
"""

import json
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import Flagged, JobRecord
from apps.clusters.schedulers.exports import FORMATS
from apps.clusters.schedulers.htcondor.classads import read_ad
from apps.clusters.schedulers.htcondor.records import read_record
from apps.clusters.schedulers.slurm.accounting import Attempt, group_rows, read_records
from apps.clusters.schedulers.torque.accounting import Accounting
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.domain.collection.record_import import record_from
from apps.jobs.domain.records.values import BadRecord
from apps.jobs.models import FlaggedRecord, Job
from tests.clusters.test_exports import EVENTS, FILETXT, SACCT
from tests.clusters.test_slurm_accounting import SINCE, T0, row
from tests.factories.htcondor_spool import history_ad
from tests.factories.jobs import AT, record

LONG = "x" * 10_000_000
#: Kinds of wrong input, and a word of the reason of each; empty if the value is right.
REASONS = {
    "truncated": "",
    "milliseconds": "year|seconds|read|event",
    "future": "future",
    "end before start": "before it started",
    "cpu": "exceeds",
    "nan": "read|number",
    "long": "longer",
    "names": None,
}


def slurm(fault):
    change = {
        "milliseconds": {"End": str(T0 * 1000)},
        "end before start": {"End": str(T0 - 600)},
        "cpu": {"TotalCPU": "9-00:00:00"},
        "nan": {"TotalCPU": "NaN"},
        "long": {"Comment": LONG},
        "names": {"JobName": "a|b\nc"},
    }.get(fault)
    if change is None:
        return None
    (rows,) = group_rows([row(**change)])
    (found,) = read_records(rows, {rows.identity: Attempt(1, SINCE)})
    return found


def htcondor(fault):
    times = {"QDate": T0, "JobCurrentStartDate": T0 + 5, "CompletionDate": T0 + 65}
    change = {
        "milliseconds": {"CompletionDate": T0 * 1000},
        "end before start": {"CompletionDate": T0 - 600},
        "cpu": {"RemoteUserCpu": 9e5, "RemoteWallClockTime": 60, "RequestCpus": 1},
        "long": {"JobDescription": LONG},
        "names": {"JobBatchName": "a|b\\nc"},
    }.get(fault)
    if fault == "nan":
        lines = [*history_ad(7, 3, **times).splitlines(), b'RemoteUserCpu = real("NaN")']
    elif change is None:
        return None
    else:
        lines = history_ad(7, 3, **times | change).splitlines()
    return read_record(read_ad(lines))


def torque(fault, directory):
    changes = {
        "truncated": "",
        "milliseconds": "end=1795168800000",
        "end before start": "start=1795168800 end=1795168100",
        "cpu": (
            "start=1795168800 end=1795168860 exec_host=n/0 resources_used.walltime=60 "
            "resources_used.cput=99:00:00"
        ),
        "nan": "start=1795168800 end=1795168860 resources_used.cput=NaN",
        "long": f"jobname={LONG}",
        "names": "jobname=a|b",
    }
    if fault not in changes:
        return None
    line = f"11/20/2026 10:20:00;E;5.srv;user=ana ctime=1795168000 {changes[fault]}"
    Path(directory, "20261120").write_text(
        "11/20/2026 10:20\n" if fault == "truncated" else f"{line}\n"
    )
    (found,) = Accounting(Path(directory), AT.tzinfo).finished_jobs(
        since=AT - timedelta(days=1), until=AT + timedelta(days=1), settled_before=AT
    )
    return found


def sent(fault):
    good = {
        "job_id": "7",
        "state": "completed",
        "submitted_at": T0,
        "started_at": T0 + 5,
        "ended_at": T0 + 65,
        "cpus": 1,
    }
    change = {
        "milliseconds": {"ended_at": T0 * 1000},
        "future": {"ended_at": AT.timestamp() + 86_400},
        "end before start": {"ended_at": T0 - 600},
        "cpu": {"cpu_seconds": 9e5},
        "nan": {"cpu_seconds": "NaN"},
        "long": {"comment": LONG},
        "names": {"name": "a|b\nc"},
    }.get(fault)
    try:
        return record_from('{"job_id": 7, "sta' if change is None else good | change, at=AT)
    except BadRecord as error:
        return Flagged("", str(error))


def sacct_json(fault):
    times = SACCT["time"]
    change = {
        "milliseconds": {"time": times | {"end": times["end"] * 1000}},
        "end before start": {"time": times | {"end": times["start"] - 600}},
        "cpu": {"time": times | {"total": {"seconds": 900_000, "microseconds": 0}}},
        "nan": {"time": times | {"total": {"seconds": "NaN", "microseconds": 0}}},
        "long": {"comment": {"job": LONG}},
        "names": {"name": "a|b\nc"},
    }.get(fault)
    text = (
        '{"jobs": [{"job_id": 8'
        if fault == "truncated"
        else json.dumps({"jobs": [SACCT | (change or {})]})
    )
    return next(FORMATS["sacct-json"](text, UTC, AT)) if change or fault == "truncated" else None


def jobcomp(fault):
    line = FILETXT.format(name={"long": LONG, "names": "a|b\nc"}.get(fault, "x"))
    changed = {
        "truncated": line[:200],
        "end before start": line.replace("EndTime=2026", "EndTime=2025"),
        "milliseconds": line.replace("EndTime=2026-11-20T22:05:25", "EndTime=1795214469000"),
        "nan": line.replace("ProcCnt=1", "ProcCnt=NaN"),
        "long": line,
        "names": line,
    }.get(fault)
    return next(FORMATS["jobcomp"](changed, UTC, AT)) if changed else None


def condor_events(fault):
    changed = {
        "truncated": EVENTS.replace("(1) Normal termination (return value 3)", "(1) Norm"),
        "end before start": EVENTS.replace("10:45:37", "10:40:37"),
        "milliseconds": EVENTS.replace("2026-02-13 10:45:37", "1795214469000"),
        "cpu": EVENTS.replace("00:00:07", "99:00:07"),
        "nan": EVENTS.replace("return value 3", "return value NaN"),
        "names": EVENTS.replace("label1", "a|b"),
    }.get(fault)
    return next(FORMATS["condor-events"](changed, UTC, AT)) if changed else None


@pytest.mark.parametrize(
    "reader", [slurm, htcondor, torque, sent, sacct_json, jobcomp, condor_events]
)
def test_wrong_records_are_flagged_by_every_reader(reader, tmp_path):
    tried = 0
    for fault, words in REASONS.items():
        found = reader(fault, tmp_path) if reader is torque else reader(fault)
        if found is None:
            continue
        tried += 1
        if words is None:
            assert isinstance(found, JobRecord), (fault, found)
        else:
            assert isinstance(found, Flagged), (fault, found)
            assert any(word in found.reason for word in words.split("|")), (fault, found.reason)
    assert tried >= 6


def test_collector_stores_what_can_be_trusted_and_keeps_the_rest(
    alps, nova, planned, client, shifter
):
    secret = "--export=DB_PASSWORD=hunter2"
    planned.records = [
        record(1),
        record(2, cpu_seconds=9e9, comment=secret),
        record(3, ended_at=AT - timedelta(hours=3)),
        record(4, comment=LONG),
        record(5, name="a|b\nc"),
        record(6, cpu_seconds=float("nan")),
    ]
    done = collect_finished_jobs(cluster=alps, at=AT)
    assert (done.new, done.flagged, done.problem) == (5, 4, "")
    assert collect_finished_jobs(cluster=alps, at=AT + timedelta(seconds=15)).changed == 0

    assert dict(FlaggedRecord.objects.values_list("reason", "stored")) == {
        "cpu_seconds exceeds wall_seconds × cpus. Are the units seconds?": True,
        "cpu_seconds is not a number.": True,
        "The job ended before it started.": False,
        "comment is longer than 64,000 characters.": True,
    }
    assert len(Job.objects.get(job_id="4").comment) == 64_000
    assert not FlaggedRecord.objects.filter(raw__contains="hunter2").exists()

    client.force_login(shifter)
    page = client.get("/jobs/flagged/?reason=The job ended before it started.").content.decode()
    assert "&quot;job_id&quot;: &quot;3&quot;" in page
    assert "&quot;job_id&quot;: &quot;2&quot;" not in page
