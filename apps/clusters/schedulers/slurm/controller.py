"""Asking slurmctld, by scontrol, where a job writes. It knows a job until MinJobAge after its end."""

import re
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord, LogPaths
from apps.clusters.schedulers.commands import CommandFailed, Commands
from apps.clusters.schedulers.slurm.patterns import fill_in

_FIRST_LINE = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_PLAIN_LINE = re.compile(r"^   (StdOut|StdErr)=(.*)$", re.MULTILINE)
_SUBMITTED = re.compile(r"^   SubmitTime=(\d+) ", re.MULTILINE)
_RESTARTS = re.compile(r"^   Requeue=\d+ Restarts=(\d+) ", re.MULTILINE)


def paths_known_to_controller(commands: Commands, record: JobRecord) -> LogPaths | None:
    """Return the paths of a job that slurmctld still knows. Raises `SchedulerError` where it cannot be asked."""
    try:
        shown = commands.run("scontrol", "show", "job", record.job_id)
    except CommandFailed as error:
        if "Invalid job id" in error.stderr:
            return None
        raise
    return paths_shown(shown, record)


def paths_shown(shown: str, record: JobRecord) -> LogPaths | None:
    """Read the output of `scontrol show job`; None where it is of another job, or of no use.

    Free text may hold newlines and so forge a line. The real ones come after all text of the user: the last wins.
    """
    job = _FIRST_LINE.match(shown)
    if not job or int(job[1]) != record.raw_id or _is_recycled(shown, record):
        return None
    found = dict(_PLAIN_LINE.findall(shown))
    stdout, stderr = found.get("StdOut", ""), found.get("StdErr", "")
    if not stdout.startswith("/") or "\\" in stdout + stderr:
        return None  # 22.05 fills in patterns that a backslash protects: the path that it shows is not the real one
    return LogPaths(stdout=_path(stdout, record), stderr=_path(stderr or stdout, record), source="scheduler")


def _path(shown: str, record: JobRecord) -> Path:
    """Fill in what scontrol leaves, as `%J` and `%4j` in 22.05; a `%b` that it leaves is none to slurmstepd either."""
    return Path(fill_in(shown.replace("%b", "%%b"), record))


def _is_recycled(shown: str, record: JobRecord) -> bool:
    """Tell whether a later job has the same id. The submission time of one that never restarted gives it away."""
    restarts, submitted = _RESTARTS.search(shown), _SUBMITTED.search(shown)
    if not restarts or not submitted or int(restarts[1]):
        return False
    return int(submitted[1]) != int(record.submitted_at.timestamp())
