"""Read the scripts and environments that slurmdbd keeps: `sacct --batch-script`, `--env-vars`.

sacct prints each one below a heading and escapes nothing, so a script can contain such a heading.
If there are more headings than jobs, the jobs are queried in smaller groups, down to single jobs.
"""

import logging
import os
import pwd
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from apps.clusters.schedulers.base import SchedulerError, StoredCopy
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.environment import name_and_value, pack
from apps.clusters.schedulers.slurm.accounting import Row, number_attempts, selector_of
from apps.clusters.schedulers.slurm.output_options import arguments_of_submission
from apps.clusters.schedulers.slurm.sacct import Sacct, read_time

_FIELDS = ["JobID", "JobIDRaw", "State", "Submit", "User", "Account", "JobName", "SubmitLine"]
_HEADING = re.compile(
    rb"^(?:Batch Script for|Environment used for) (\S+)(?!\S)[^\n]*\n-{80}\n", re.MULTILINE
)
_NONE = {b"NONE", b"NONE\n"}
# The first line of a variable or an exported bash function. Other lines continue the previous one.
_VARIABLE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*=|BASH_FUNC_[^=]*=")
_SPOOL_ID = re.compile(r"(\d+)_")
_JOBS_A_QUERY = 200

_NO_OPERATOR = (
    "accounting shows those of others to operators alone: sacctmgr modify user {} set "
    "adminlevel=Operator"
)

logger = logging.getLogger(__name__)


def stored_copies(sacct: Sacct, spool_ids: Collection[str]) -> Iterator[StoredCopy]:
    """Yield a copy of each submission with one of these IDs, with few commands.

    Raises `SchedulerError`.
    """
    numeric = sorted(
        {spool_id for spool_id in spool_ids if spool_id.isascii() and spool_id.isdigit()}, key=int
    )
    for first in range(0, len(numeric), _JOBS_A_QUERY):
        rows = _rows(sacct, numeric[first : first + _JOBS_A_QUERY])
        if not rows:
            check_rights(sacct.commands)
        # All tasks of an array share one script, so one task is enough, preferably one that
        # started.
        tasks: dict[tuple[str, str], Row] = {}
        for row in sorted(rows, key=lambda row: "[" in row["JobID"]):
            tasks.setdefault((_spool_id(row), row["Submit"]), row)
        yield from _copies(sacct, sorted({selector_of(row) for row in tasks.values()}))


def _rows(sacct: Sacct, selectors: Sequence[str]) -> list[Row]:
    return list(sacct.rows(_FIELDS, "--allocations", f"--jobs={','.join(selectors)}"))


def _copies(sacct: Sacct, selectors: Sequence[str]) -> Iterator[StoredCopy]:
    """Yield the copies of a group.

    If the output is ambiguous, each half of the group is queried again; an ambiguous single job is
    skipped.
    """
    if not selectors:
        return
    rows = _rows(sacct, selectors)
    scripts = _texts(sacct, "--batch-script", selectors, rows)
    environments = _texts(sacct, "--env-vars", selectors, rows)
    if scripts is not None and environments is not None:
        yield from _latest_attempts(rows, scripts, environments)
    elif len(selectors) > 1:
        middle = len(selectors) // 2
        yield from _copies(sacct, selectors[:middle])
        yield from _copies(sacct, selectors[middle:])
    else:
        logger.error("sacct: the copies of job %s are ambiguous and were skipped", selectors[0])


def _texts(
    sacct: Sacct, option: str, selectors: Sequence[str], rows: Sequence[Row]
) -> list[bytes | None] | None:
    """Return the text of each row, or None for no text; None if headings and rows do not match."""
    output = sacct.commands.output(
        "sacct", "--allusers", "--duplicates", option, f"--jobs={','.join(selectors)}"
    )
    # sacct prints a heading even for jobs without text.
    if rows and not output.strip():
        raise SchedulerError(
            f"sacct {option} prints nothing of jobs that it knows: {_NO_OPERATOR.format(_user())}"
        )
    headings = list(_HEADING.finditer(output))
    # Everything after the first heading is the text.
    if len(rows) == 1:
        del headings[1:]
    if [heading[1].decode(errors="replace") for heading in headings] != [
        row["JobID"] for row in rows
    ]:
        return None
    ends = [*(heading.start() for heading in headings[1:]), len(output)]
    texts = []
    for heading, end in zip(headings, ends, strict=True):
        texts.append(output[heading.end() : end].removesuffix(b"\n"))
    return [None if text in _NONE else text for text in texts]


def check_rights(commands: Commands) -> None:
    """Raise `SchedulerError` if PrivateData may hide jobs from the current user."""
    user = _user()
    try:
        slurm_user = re.search(
            r"^SlurmUser\s*=\s*([^\s(]+)", commands.run("scontrol", "show", "config"), re.MULTILINE
        )
        level = commands.run(
            "sacctmgr",
            "--noheader",
            "--parsable2",
            "show",
            "user",
            f"name={user}",
            "format=adminlevel",
        )
    except SchedulerError:
        # Rights cannot be checked, so they are not reported as the reason.
        return
    if user not in {"root", slurm_user and slurm_user[1]} and level.strip() not in {
        "Operator",
        "Administrator",
    }:
        raise SchedulerError(f"sacct shows none of these jobs: {_NO_OPERATOR.format(user)}")


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _latest_attempts(
    rows: Sequence[Row], scripts: Sequence[bytes | None], environments: Sequence[bytes | None]
) -> Iterator[StoredCopy]:
    """Yield one copy per submission: attempts share it, and the first attempt may have none."""
    attempts = number_attempts(rows)
    copies: dict[object, StoredCopy] = {}
    for row, script, environment in zip(rows, scripts, environments, strict=True):
        is_interactive = PurePosixPath(row["SubmitLine"].split(" ")[0]).name in ("salloc", "srun")
        if not read_time(row["Submit"]) or is_interactive:
            continue
        submitted_at = attempts[row["JobID"], row["Submit"]].submitted_at
        copy = StoredCopy(
            spool_id=_spool_id(row),
            submitted_at=submitted_at,
            script=script,
            environment=None if environment is None else pack(_variables(environment)),
            user=row["User"],
            account=row["Account"],
            name=row["JobName"],
            arguments=arguments_of_submission(row["SubmitLine"], name=row["JobName"]),
        )
        earlier = copies.get((copy.spool_id, submitted_at))
        if earlier:
            copy = replace(
                copy,
                script=copy.script or earlier.script,
                environment=copy.environment or earlier.environment,
            )
        copies[copy.spool_id, submitted_at] = copy
    yield from copies.values()


def _variables(text: bytes) -> list[tuple[bytes, bytes]]:
    """Group lines into variables.

    A line of a value that looks like a variable is taken for one.
    """
    entries: list[list[bytes]] = []
    for line in text.removesuffix(b"\n").split(b"\n"):
        if entries and not _VARIABLE.match(line):
            entries[-1].append(line)
        else:
            entries.append([line])
    return [name_and_value(b"\n".join(lines)) for lines in entries]


def _spool_id(row: Row) -> str:
    array = _SPOOL_ID.match(row["JobID"])
    return array[1] if array else row["JobIDRaw"]
