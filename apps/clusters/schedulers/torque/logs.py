"""Find output paths of a Torque job: from its `.JB` while it exists, else derived as qsub does."""

import getopt
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord, LogPaths, SpoolError
from apps.clusters.schedulers.files import opened_directory, read_file
from apps.clusters.schedulers.torque.description import BadDescription, read_description

_JOB_ID = re.compile(r"(?P<number>[0-9]+)(?:\[(?P<task>[0-9]+)\])?(?P<server>.*)", re.DOTALL)
_OPTIONS_OF_QSUB = "a:A:b:c:C:d:D:e:EfF:hIj:k:K:l:L:m:M:nN:o:p:P:q:r:S:t:T:u:v:VwW:xXz"
_HOST = re.compile(r"[^/:]*:(?=[/~$])")
# Limits of the search for directives: shlex and getopt take quadratic time per line.
_MOST_BYTES, _LONGEST_LINE = (
    40_000,
    2_000,
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def described_paths(jobs: Path, record: JobRecord) -> LogPaths | None:
    """Return the paths in the `.JB` of a job or task in the spool `jobs`; None without a `.JB`."""
    match = _JOB_ID.fullmatch(record.job_id)
    if not match:
        return None

    number = match["number"]
    task = match["task"]
    if task:
        name = f"{number}-{task}{match['server']}.JB"
    else:
        name = f"{record.job_id}.JB"
    for names in ((), (number[-1],)):
        try:
            with opened_directory(jobs, *names) as directory:
                content, _ = read_file(directory, jobs.joinpath(*names, name))
            attributes = read_description(content).attributes
        except (SpoolError, BadDescription):
            continue

        stdout = attributes.get("Output_Path", "")
        stderr = attributes.get("Error_Path", "")
        if stdout:
            out = _filled(record, stdout, "OU", {})
            return _joined(
                out,
                _filled(record, stderr, "ER", {}),
                attributes.get("Join_Path", "n"),
                "scheduler",
            )
    return None


def derived_paths(
    record: JobRecord, *, script: bytes, environment: Mapping[str, str]
) -> LogPaths | None:
    """Derive the paths from directives of the script; the command line is unknown."""
    start = environment.get("PBS_O_INITDIR") or environment.get("PBS_O_WORKDIR", "")
    match = _JOB_ID.fullmatch(record.job_id)
    if not start or not match or not script:
        return None

    options = directives(script)
    number = match["number"]
    task = match["task"]
    name = record.name.removesuffix(f"-{task}") if task else record.name
    end = f"-{task}" if task else ""
    stdout = _absolute(start, options.get("-o") or f"{name}.o{number}") + end
    stderr = _absolute(start, options.get("-e") or f"{name}.e{number}") + end
    out = _filled(record, stdout, "OU", environment)
    return _joined(
        out, _filled(record, stderr, "ER", environment), options.get("-j", "n"), "derived"
    )


def directives(script: bytes) -> dict[str, str]:
    """Return the qsub options in `#PBS` lines before the first command; skip invalid lines."""
    options: dict[str, str] = {}
    for line in script[:_MOST_BYTES].decode("utf-8", "replace").splitlines():
        if line.startswith("#PBS") and len(line) <= _LONGEST_LINE:
            try:
                arguments = shlex.split(line[4:], comments=True)
                options |= getopt.gnu_getopt(arguments, _OPTIONS_OF_QSUB)[0]
            except (ValueError, getopt.GetoptError):
                continue
        elif line.strip() and not line.startswith(("#", ":")):
            break
    return options


def _joined(stdout: str, stderr: str, joined: str, source: str) -> LogPaths:
    """Return the paths of both streams, joined as requested: `oe` to stdout, `eo` to stderr."""
    match joined[:2]:
        case "oe":
            return LogPaths(Path(stdout), Path(stdout), source)
        case "eo":
            return LogPaths(Path(stderr), Path(stderr), source)
    return LogPaths(Path(stdout), Path(stderr or stdout), source)


def _filled(record: JobRecord, path: str, suffix: str, environment: Mapping[str, str]) -> str:
    """Return a path without host and with variables expanded.

    A directory gets Torque's default file name.
    """
    task = re.search(r"\[([0-9]+)\]", record.job_id)
    known = {
        "HOME": environment.get("PBS_O_HOME", ""),
        "PBS_JOBID": record.job_id,
        "PBS_ARRAYID": task[1] if task else "",
        "PBS_JOBNAME": record.name,
        "USER": record.user,
    }
    filled = _VARIABLE.sub(
        lambda match: known.get(match[1] or match[2]) or match[0], _without_host(path)
    )
    if not filled.endswith("/"):
        return filled
    return f"{filled}{record.job_id}.{suffix}"


def _absolute(start: str, path: str) -> str:
    path = _without_host(path)
    return path if path.startswith(("/", "$", "~")) else f"{start}/{path}"


def _without_host(path: str) -> str:
    host = _HOST.match(path)
    return path[host.end() :] if host else path
