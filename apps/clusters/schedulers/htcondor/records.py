"""Convert the ads of jobs that left the queue to job records.

An ad that cannot be parsed or is implausible is flagged.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import TypedDict

from apps.clusters.schedulers.base import Flagged, JobRecord, JobState
from apps.clusters.schedulers.htcondor.classads import (
    Ad,
    integer_of,
    number_of,
    read_ad,
    text_of,
    truth_of,
    value_of,
)
from apps.clusters.schedulers.plausibility import checked

_REMOVED = 3
_COMPLETED = 4
_HELD = 5
_OUT_OF_RESOURCES = 34
_OF_MEMORY = 102
# allowed_job_duration and allowed_execute_duration.
_TIME_IS_UP = {46, 47}
_MEMORY = re.compile(r"(?i)\bmemory\b")
_REMOVED_BY = re.compile(r"\(by user ([^\s)]+)\)")
_SITES = (
    "MachineAttrGLIDEIN_Site0",
    "MATCH_EXP_JOB_GLIDEIN_Site",
    "MATCH_EXP_JOBGLIDEIN_ResourceName",
    "MATCH_GLIDEIN_Site",
)
_NO_SITE = {"", "Unknown", "Local Job"}
#: The schedd writes these as numbers, never as expressions.
_MEASURED = ("RemoteUserCpu", "RemoteSysCpu", "RemoteWallClockTime", "CpusProvisioned", "ExitCode")
_MEGABYTE = 1024 * 1024


def read_record(ad: Ad, *, cpu_model_attribute: str = "") -> JobRecord | Flagged:
    """Return the last attempt of a job, which its ad describes.

    `cpu_model_attribute` is a machine attribute that `SYSTEM_JOB_MACHINE_ATTRS` copies to job ads.
    """
    cluster = integer_of(ad, "ClusterId")
    proc = integer_of(ad, "ProcId")
    if not cluster or proc is None:
        return Flagged(_raw(ad), "The ad has no ClusterId or ProcId.")
    try:
        record = _read(ad, cluster, proc)
        if cpu_model_attribute:
            record = replace(record, cpu_model=text_of(ad, f"MachineAttr{cpu_model_attribute}0"))
    except (ValueError, OverflowError, OSError) as error:
        return Flagged(_raw(ad), f"The ad cannot be read: {error}.")
    doubts = []
    for name in _MEASURED:
        if value_of(ad, name) and number_of(ad, name) is None:
            doubts.append(f"{name} cannot be read.")
    return checked(record, lambda: _raw(ad), doubts)


def records_of_history(text: str, zone: tzinfo, newest: datetime) -> Iterator[JobRecord | Flagged]:
    """Yield the records of a history file, in which a line `*** …` follows each ad."""
    for ad in re.split(r"^\*\*\* .*$", text, flags=re.MULTILINE):
        if ad.strip():
            yield read_record(read_ad(ad.encode("utf-8", "surrogatepass").splitlines()))


def _raw(ad: Ad) -> str:
    return b"\n".join(ad.values()).decode("utf-8", "backslashreplace")


def _read(ad: Ad, cluster: int, proc: int) -> JobRecord:
    submitted_at = _time(ad, "QDate")
    ended_at = _time(ad, "CompletionDate") or _time(ad, "EnteredCurrentStatus")
    if not submitted_at or not ended_at:
        raise ValueError("no QDate, or neither CompletionDate nor EnteredCurrentStatus")
    state, exit_code, signal = _ending(ad)
    remove_reason = text_of(ad, "RemoveReason")
    cancelled_by = ""
    removed_by = _REMOVED_BY.search(remove_reason)
    if removed_by and state == JobState.CANCELLED:
        cancelled_by = removed_by[1]
    # A slot is named `slot1@glidein_1@host`.
    slot = text_of(ad, "LastRemoteHost") or text_of(ad, "RemoteHost")
    user_cpu_seconds = number_of(ad, "RemoteUserCpu") or 0.0
    system_cpu_seconds = number_of(ad, "RemoteSysCpu") or 0.0
    requested_megabytes = integer_of(ad, "RequestMemory") or integer_of(ad, "MemoryProvisioned")
    arguments = text_of(ad, "Arguments") or text_of(ad, "Args")
    return JobRecord(
        job_id=f"{cluster}.{proc}",
        raw_id=cluster,
        spool_id=str(cluster),
        attempt=max(integer_of(ad, "NumJobStarts") or 1, 1),
        state=state,
        exit_code=exit_code,
        signal=signal,
        submitted_at=submitted_at,
        started_at=_time(ad, "JobCurrentStartDate") or _time(ad, "JobStartDate"),
        ended_at=ended_at,
        host=slot.rpartition("@")[2],
        cpus=integer_of(ad, "CpusProvisioned") or integer_of(ad, "RequestCpus") or 0,
        cpu_seconds=user_cpu_seconds + system_cpu_seconds,
        wall_seconds=integer_of(ad, "RemoteWallClockTime") or 0,
        max_memory_bytes=_max_memory(ad),
        requested_memory_bytes=_times(requested_megabytes, _MEGABYTE),
        time_limit_seconds=integer_of(ad, "AllowedExecuteDuration")
        or integer_of(ad, "AllowedJobDuration"),
        account=text_of(ad, "AccountingGroup"),
        user=text_of(ad, "Owner"),
        name=text_of(ad, "JobBatchName"),
        comment=text_of(ad, "JobDescription"),
        reason=_hold_reason(ad) or remove_reason or text_of(ad, "VacateReason"),
        cancelled_by=cancelled_by,
        work_dir=text_of(ad, "Iwd"),
        submit_line=f"{text_of(ad, 'Cmd')} {arguments}".strip(),
        stdout_path=_path(ad, "Out"),
        stderr_path=_path(ad, "Err"),
        **_gpu_figures(ad),
        site=_site(ad),
    )


def _site(ad: Ad) -> str:
    """Return the site on which a job ran, by the first attribute that names one; else ""."""
    for name in _SITES:
        site = text_of(ad, name)
        if site not in _NO_SITE:
            return site
    return ""


class _GpuFigures(TypedDict):
    gpus: int | None
    gpu_share: float | None
    max_gpu_memory_bytes: int | None


def _gpu_figures(ad: Ad) -> _GpuFigures:
    """Return the figures of GPUs; `GPUsAverageUsage` counts GPUs: 1.5 of two that were assigned."""
    gpus = integer_of(ad, "GPUsProvisioned")
    if gpus is None:
        gpus = integer_of(ad, "RequestGPUs") or 0
    use = number_of(ad, "GPUsAverageUsage")
    share = None
    if gpus and use is not None:
        share = min(1.0, max(0.0, use / gpus))
    memory = _times(integer_of(ad, "GPUsMemoryUsage"), _MEGABYTE)
    return {
        "gpus": gpus,
        "gpu_share": share,
        "max_gpu_memory_bytes": memory if gpus else None,
    }


def _ending(ad: Ad) -> tuple[JobState, int, int]:
    """Return state, exit code and signal."""
    status = integer_of(ad, "JobStatus")
    if status == _REMOVED:
        return _removed(ad), 0, 0
    if status not in (_COMPLETED, None):
        raise ValueError(f"JobStatus {status} is not that of a finished job")
    if truth_of(ad, "ExitBySignal"):
        return JobState.FAILED, 0, integer_of(ad, "ExitSignal") or 0
    code = integer_of(ad, "ExitCode")
    code = (integer_of(ad, "ExitStatus") or 0) if code is None else code
    return (JobState.FAILED if code else JobState.COMPLETED), code, 0


def _removed(ad: Ad) -> JobState:
    """Return the state of a removed job; for a job on hold, the hold reason decides."""
    if not _hold_reason(ad):
        return JobState.CANCELLED
    code = integer_of(ad, "HoldReasonCode") or integer_of(ad, "LastHoldReasonCode")
    detail = integer_of(ad, "HoldReasonSubCode") or integer_of(ad, "LastHoldReasonSubCode")
    if code in _TIME_IS_UP:
        return JobState.TIMEOUT
    if code == _OUT_OF_RESOURCES:
        is_memory = detail == _OF_MEMORY or (not detail and _MEMORY.search(_hold_reason(ad)))
        return JobState.OUT_OF_MEMORY if is_memory else JobState.FAILED
    return JobState.CANCELLED


def _hold_reason(ad: Ad) -> str:
    """Return why a job was on hold when it was removed; "" if it was not."""
    if integer_of(ad, "JobStatus") != _REMOVED or integer_of(ad, "LastJobStatus") != _HELD:
        return ""
    return text_of(ad, "HoldReason") or text_of(ad, "LastHoldReason")


def _time(ad: Ad, name: str) -> datetime | None:
    seconds = integer_of(ad, name)
    if seconds and seconds > 0:
        return datetime.fromtimestamp(seconds, UTC)
    return None


def _max_memory(ad: Ad) -> int | None:
    """Return the peak memory; `MemoryUsage` is usually an expression of the other two."""
    megabytes = integer_of(ad, "MemoryUsage")
    if megabytes is not None:
        return megabytes * _MEGABYTE
    return _times(integer_of(ad, "ResidentSetSize_RAW") or integer_of(ad, "ResidentSetSize"), 1024)


def _times(number: int | None, unit: int) -> int | None:
    return None if number is None else number * unit


def _path(ad: Ad, name: str) -> str:
    """Return the path of an output file; "" if there is none or it is incomplete."""
    path = text_of(ad, name)
    directory = text_of(ad, "Iwd")
    if not path or path == "/dev/null" or "$(" in path or not (path.startswith("/") or directory):
        return ""
    if path.startswith("/"):
        return path
    return f"{directory.rstrip('/')}/{path}"
