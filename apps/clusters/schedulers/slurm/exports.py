"""Parse Slurm's accounting in files: `sacct --json`, slurmrestd, and jobcomp plugins.

Each job is converted to the row that `sacct` would print, so that only one parser handles values.
Slurm 21.08 to 25.05: later versions write a number as `{"set": true, "number": 5}` and a state as a
list.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

import re2

from apps.clusters.schedulers.base import Flagged, JobRecord
from apps.clusters.schedulers.slurm.accounting import (
    FIELDS,
    JobRows,
    Row,
    number_attempts,
    read_records,
)

#: A line of jobcomp/filetxt. It escapes nothing, so user text is whatever stands between the fields
#: around it. RE2 takes linear time for any text.
_FILETXT = re2.compile(
    r"(?s)JobId=(?P<JobIDRaw>\d+) UserId=(?P<User>\S*)\((?P<UID>\d+)\) GroupId=\S* "
    r"Name=(?P<JobName>.*?)"
    r" JobState=(?P<State>[A-Z_]+) Partition=(?P<Partition>\S*) TimeLimit=(?P<TimelimitRaw>\S+)"
    r" StartTime=(?P<Start>\S+) EndTime=(?P<End>\S+) NodeList=(?P<NodeList>.*?) NodeCnt=\d+ "
    r"ProcCnt=(?P<AllocCPUS>\d+)"
    r" WorkDir=(?P<WorkDir>.*?) ReservationName=.*? Tres=(?P<tres>\S*) "
    r"Account=(?P<Account>\S*) QOS=\S* WcKey=\S*"
    r" Cluster=(?P<Cluster>\S*) SubmitTime=(?P<Submit>\S+) EligibleTime=\S+"
    r"(?: ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\d+))?(?: Het\S*=\S*)*"
    r" DerivedExitCode=\S+ ExitCode=(?P<ExitCode>\d+:\d+) ?"
)
_FIRST = re.compile(r"^(?=JobId=\d+ UserId=)", re.MULTILINE)
_MEMORY = re.compile(r"(?:^|,)mem=(\d+[KMGTP]?)")


def records_in_json(text: str, zone: tzinfo, newest: datetime) -> Iterator[JobRecord | Flagged]:
    """Yield the records of `sacct --json` or slurmrestd's `/slurmdb/…/jobs`, of finished jobs."""
    try:
        answer = json.loads(text, strict=False)
        jobs = answer["jobs"]
        if not isinstance(jobs, list):
            raise TypeError("jobs is not a list")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        yield Flagged(text, f"This is not an answer of sacct --json or slurmrestd: {error}.")
        return
    yield from _records(jobs, _rows_of_json)


def records_of_jobcomp(text: str, zone: tzinfo, newest: datetime) -> Iterator[JobRecord | Flagged]:
    """Yield the records of jobcomp.

    These are lines of `jobcomp/filetxt`, in local time, or documents for Elasticsearch.
    """
    if text.lstrip().startswith("{"):
        yield from _records(text.splitlines(), lambda line: _rows_of_document(json.loads(line)))
    else:
        yield from _records(_FIRST.split(text), lambda line: _rows_of_line(line, zone))


def _records(items: Iterable[Any], read: Any) -> Iterator[JobRecord | Flagged]:
    """Yield the records of items; attempts are numbered within the items."""
    jobs: list[JobRows] = []
    for item in items:
        if not item or (isinstance(item, str) and not item.strip()):
            continue
        try:
            rows = read(item)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raw = item if isinstance(item, str) else json.dumps(item)
            yield Flagged(raw, f"The job cannot be read: {type(error).__name__}: {error}.")
        else:
            jobs.append(rows)

    attempts = number_attempts(rows.job for rows in jobs)
    for rows in jobs:
        if rows.job["State"] not in {"PENDING", "RUNNING", "SUSPENDED"}:
            yield from read_records(rows, attempts)


def _job_id(job: Mapping[str, Any], raw_id: str) -> str:
    """Return a job ID as sacct shows it, also for array tasks and heterogeneous components."""
    array = job.get("array") or {}
    array_id = _number(array.get("job_id"))
    task_id = _number(array.get("task_id"))
    het = job.get("het") or {}
    het_id = _number(het.get("job_id"))

    if array_id and array.get("task"):
        return f"{array_id}_[{array['task']}]"
    if array_id and task_id:
        return f"{array_id}_{task_id}"
    if het_id and het_id != "0":
        return f"{het_id}+{_number(het.get('job_offset')) or 0}"
    return raw_id


def _rows_of_json(job: Mapping[str, Any]) -> JobRows:
    time = job["time"]
    raw_id = _number(job["job_id"])
    job_id = _job_id(job, raw_id)
    state = _word(job["state"]["current"])
    cancelled_by = job.get("kill_request_user") or ""
    if state == "CANCELLED" and cancelled_by:
        state = f"CANCELLED by {cancelled_by}"
    memory = _count(job["tres"].get("requested"), "mem")
    steps = [_row_of_step(step, job_id) for step in job.get("steps") or ()]
    row = {
        "JobID": job_id,
        "JobIDRaw": raw_id,
        "State": state,
        "ExitCode": _exit_code(job["exit_code"]),
        "Reason": job["state"].get("reason") or "",
        "Submit": _number(time["submission"]),
        "Start": _number(time["start"]),
        "End": _number(time["end"]),
        "ElapsedRaw": _number(time.get("elapsed")),
        "TimelimitRaw": _number(time.get("limit")),
        "NodeList": job.get("nodes") or "",
        "AllocCPUS": _count(job["tres"].get("allocated"), "cpu"),
        "AllocTRES": _tres(job["tres"].get("allocated")),
        "TotalCPU": _seconds(time.get("total")),
        "ReqMem": f"{memory}M" if memory else "",
        "Partition": job.get("partition") or "",
        "Account": job.get("account") or "",
        "User": job.get("user") or (job.get("association") or {}).get("user") or "",
        "JobName": job.get("name") or "",
        "Comment": (job.get("comment") or {}).get("job") or "",
        "WorkDir": job.get("working_directory") or "",
        "SubmitLine": job.get("submit_line") or "",
        "StdOut": job.get("stdout") or "",
        "StdErr": job.get("stderr") or "",
        "Cluster": job.get("cluster") or "",
    }
    return JobRows(dict.fromkeys(FIELDS, "") | row, steps)


def _row_of_step(step: Mapping[str, Any], job_id: str) -> Row:
    used = step["tres"].get("requested") or {}
    most = used.get("max")
    energy = (step.get("statistics") or {}).get("energy") or {}
    return dict.fromkeys(FIELDS, "") | {
        "JobID": f"{job_id}.{_word(step['step']['id']).rpartition('.')[2]}",
        "TotalCPU": _seconds(step["time"].get("total")),
        "MaxRSS": _count(most, "mem"),
        "TRESUsageInMax": _tres(most),
        "TRESUsageInTot": _tres(used.get("total")),
        "ConsumedEnergyRaw": _number(energy.get("consumed")),
    }


def _rows_of_document(job: Mapping[str, Any]) -> JobRows:
    """Return the rows of a document of jobcomp/elasticsearch or jobcomp/kafka.

    Its times are in UTC, its time limit is in seconds.
    """
    array = job.get("array_job_id")
    row = {
        "JobID": f"{array}_{job['array_task_id']}" if array else str(job["jobid"]),
        "JobIDRaw": str(job["jobid"]),
        "State": job["state"],
        "ExitCode": job["exit_code"],
        **{name: _seconds_since(job[key], UTC) for name, key in _DOCUMENT_TIMES.items()},
        "ElapsedRaw": str(job["elapsed"]),
        "TimelimitRaw": str(job["time_limit"] // 60) if job.get("time_limit") else "",
        "AllocCPUS": str(job["total_cpus"]),
        "ReqMem": _memory(job.get("tres_req", "")),
        "UID": str(job.get("user_id", "")),
        **{name: str(job.get(key) or "") for name, key in _DOCUMENT_TEXTS.items()},
    }
    return JobRows(dict.fromkeys(FIELDS, "") | row, [])


_DOCUMENT_TIMES = {"Submit": "@submit", "Start": "@start", "End": "@end"}
_DOCUMENT_TEXTS = {
    "NodeList": "nodes",
    "Partition": "partition",
    "Account": "account",
    "User": "username",
    "JobName": "job_name",
    "WorkDir": "work_dir",
    "StdOut": "std_out",
    "StdErr": "std_err",
    "Cluster": "cluster",
}


def _rows_of_line(line: str, zone: tzinfo) -> JobRows:
    match = _FILETXT.fullmatch(line.rstrip("\n"))
    if not match:
        raise ValueError("this is not a line of jobcomp/filetxt")

    facts = {name: value or "" for name, value in match.groupdict().items()}
    times = {name: _seconds_since(facts[name], zone) for name in ("Submit", "Start", "End")}
    elapsed = ""
    if times["Start"]:
        elapsed = str(max(0, int(times["End"]) - int(times["Start"])))
    row = {
        **{name: value for name, value in facts.items() if name in FIELDS},
        **times,
        "JobID": f"{facts['array']}_{facts['task']}" if facts["array"] else facts["JobIDRaw"],
        "ElapsedRaw": elapsed,
        "ReqMem": _memory(facts["tres"]),
    }
    return JobRows(dict.fromkeys(FIELDS, "") | row, [])


def _seconds_since(text: str, zone: tzinfo) -> str:
    """Return a time as seconds since 1970; "" for `Unknown`."""
    if text in {"Unknown", "None"}:
        return ""
    at = datetime.fromisoformat(text)
    return str(int((at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()))


def _memory(tres: str) -> str:
    match = _MEMORY.search(tres)
    return match[1] if match else ""


def _number(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    return "" if value is None else str(value)


def _word(value: Any) -> str:
    return str(value[0] if isinstance(value, list) and value else value)


def _count(tres: Any, kind: str) -> str:
    """Return the largest count of a kind of resource; "" if there is none."""
    resources = [resource for resource in tres or () if resource["type"] == kind]
    counts = [resource["count"] for resource in resources if resource["count"] is not None]
    return str(max(counts)) if counts else ""


def _tres(tres: Any) -> str:
    """Return the counts of resources as sacct writes them: `cpu=8,gres/gpu=2`."""
    counts = []
    for resource in tres or ():
        if resource["count"] is not None:
            name = "/".join(filter(None, (resource["type"], resource.get("name"))))
            counts.append(f"{name}={resource['count']}")
    return ",".join(counts)


def _seconds(time: Any) -> str:
    """Format seconds and microseconds as sacct does; "" for -1, which means unknown."""
    if not time or int(_number(time["seconds"]) or 0) < 0:
        return ""
    minutes, seconds = divmod(int(_number(time["seconds"]) or 0), 60)
    return (
        f"{minutes // 60}:{minutes % 60}:{seconds}.{int(_number(time.get('microseconds')) or 0):06}"
    )


def _exit_code(code: Mapping[str, Any]) -> str:
    signal = code.get("signal") or {}
    number = _number(signal.get("signal_id", signal.get("id"))) or "0"
    return f"{_number(code.get('return_code')) or 0}:{number}"
