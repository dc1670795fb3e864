"""Find output paths of a job: from slurmctld, else from accounting, else from the submission.

File name patterns such as `%j` are expanded as slurmstepd does for a batch script.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from apps.clusters.schedulers.base import JobRecord, LogPaths, SchedulerError
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.slurm.output_options import requested_output

logger = logging.getLogger(__name__)

DEFAULT_OUTPUT = "slurm-%j.out"
DEFAULT_ARRAY_OUTPUT = "slurm-%A_%a.out"

_PATTERN = re.compile(r"%(?:(%)|(\d*)([A-Za-z]))")
# The value of %a for a job that is not an array.
_NO_TASK = 4294967294
_MOST_DIGITS = 10
# The short name of the first host in a list such as `wn[03-07,12],gpu1`.
_FIRST_HOST = re.compile(r"([^,\[.]*)(?:\[(\w+))?")
_FIRST_LINE = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_PLAIN_LINE = re.compile(r"^   (StdOut|StdErr)=(.*)$", re.MULTILINE)
_SUBMITTED = re.compile(r"^   SubmitTime=(\d+) ", re.MULTILINE)
_RESTARTS = re.compile(r"^   Requeue=\d+ Restarts=(\d+) ", re.MULTILINE)


def log_paths(
    commands: Commands, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
) -> LogPaths | None:
    """Return the paths of a batch job; None for an interactive one."""
    leader, plus, offset = record.job_id.partition("+")
    # The first component of a heterogeneous job runs the script.
    if plus and offset != "0":
        record = replace(record, job_id=f"{leader}+0", raw_id=int(leader), spool_id=leader)
    try:
        known = paths_shown(commands.run("scontrol", "show", "job", record.job_id), record)
    except SchedulerError as error:
        # A job that slurmctld has forgotten is no reason for a warning.
        if "Invalid job id" not in str(error):
            logger.warning("log paths of job %s: %s", record.job_id, error)
        known = None
    return (
        known
        or record.known_paths()
        or work_out_paths(record, script=script, environment=environment)
    )


def work_out_paths(
    record: JobRecord, *, script: bytes, environment: Mapping[str, str]
) -> LogPaths | None:
    """Derive the paths of a batch job as sbatch and slurmstepd do."""
    program = PurePosixPath(record.submit_line.split(" ")[0]).name
    if not record.work_dir or program in ("salloc", "srun"):
        return None

    output = requested_output(record.submit_line, environment, script)
    if _task_id(record) is None:
        default = DEFAULT_OUTPUT
    else:
        default = DEFAULT_ARRAY_OUTPUT
    stdout = fill_in(output.stdout or default, record)
    stderr = fill_in(output.stderr, record) if output.stderr else stdout
    return LogPaths(
        stdout=Path(record.work_dir, stdout), stderr=Path(record.work_dir, stderr), source="derived"
    )


def paths_shown(shown: str, record: JobRecord) -> LogPaths | None:
    """Parse the output of `scontrol show job`; None if it is of another job or unusable.

    Free text may contain newlines and forge lines. The real lines come after all user text, so the
    last match counts.
    """
    job = _FIRST_LINE.match(shown)
    if not job or int(job[1]) != record.raw_id:
        return None

    restarts = _RESTARTS.search(shown)
    submitted = _SUBMITTED.search(shown)
    if restarts and submitted:
        never_restarted = int(restarts[1]) == 0
        is_same_submission = int(submitted[1]) == int(record.submitted_at.timestamp())
        if never_restarted and not is_same_submission:
            return None  # it is a later job with the same ID

    fields = dict(_PLAIN_LINE.findall(shown))
    stdout = fields.get("StdOut", "")
    stderr = fields.get("StdErr", "")
    # Slurm 22.05 expands patterns escaped by a backslash, and so shows a wrong path.
    if not stdout.startswith("/") or "\\" in stdout + stderr:
        return None
    return LogPaths(
        stdout=_path(stdout, record), stderr=_path(stderr or stdout, record), source="scheduler"
    )


def _path(shown: str, record: JobRecord) -> Path:
    """Expand patterns that scontrol leaves, such as `%J` and `%4j` in 22.05; `%b` is literal."""
    return Path(fill_in(shown.replace("%b", "%%b"), record))


def fill_in(pattern: str, record: JobRecord) -> str:
    """Expand the path `pattern` for a job. A backslash anywhere makes the pattern literal."""
    if "\\" in pattern:
        return re.sub(r"\\(.)", r"\1", pattern)
    values = _values(record)

    def replacement(match: re.Match[str]) -> str:
        percent, width, letter = match.groups()
        if percent:
            return "%"
        value = values.get(letter)
        if isinstance(value, int):
            # The pattern is user input, so the width may be any number.
            digits = width.lstrip("0")
            return str(value).zfill(_MOST_DIGITS if len(digits) > 1 else int(digits or 0))
        return value if value is not None else match[0]

    return _PATTERN.sub(replacement, pattern)


def _values(record: JobRecord) -> dict[str, int | str]:
    """Return the value of each letter of a file name pattern."""
    task = _task_id(record)
    if task is None:
        array_id = record.raw_id
        task = _NO_TASK
    else:
        array_id = int(record.spool_id)
    first_host = ""
    if host := _FIRST_HOST.match(record.host):
        first_host = host[1] + (host[2] or "")
    return {
        "A": array_id,
        "a": task,
        "b": task % 10,
        "J": record.raw_id,
        "j": record.raw_id,
        "N": first_host,
        "n": 0,
        "s": "batch",
        "t": 0,
        "u": record.user,
        "x": record.name,
    }


def _task_id(record: JobRecord) -> int | None:
    _, _, task = record.job_id.partition("_")
    return int(task) if task.isascii() and task.isdigit() else None
