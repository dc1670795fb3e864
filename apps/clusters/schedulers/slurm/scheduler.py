"""The Slurm adapter: its parts put together behind the protocol of `base`."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

from apps.clusters.schedulers.base import (
    BatchJob,
    CurrentJobs,
    JobRecord,
    LogPaths,
    SchedulerError,
    StoredCopy,
    Submission,
)
from apps.clusters.schedulers.commands import Commands, command_options
from apps.clusters.schedulers.slurm import accounting, submission
from apps.clusters.schedulers.slurm.controller import paths_known_to_controller
from apps.clusters.schedulers.slurm.copies import stored_copies
from apps.clusters.schedulers.slurm.output_paths import arguments_of_submission, requested_output
from apps.clusters.schedulers.slurm.patterns import default_output, fill_in
from apps.clusters.schedulers.slurm.queue import current_jobs, known_submissions
from apps.clusters.schedulers.slurm.sacct import Sacct
from apps.clusters.schedulers.slurm.spool import SlurmSpool

logger = logging.getLogger(__name__)

_OPTIONS = ("conf", "bin", "timeout_seconds")
SETTLING = timedelta(minutes=10)  # how long accounting may take to complete a row


class Slurm:
    """One Slurm cluster.

    Options, all optional: `conf` (path of slurm.conf), `bin` (directory of the commands), `timeout_seconds` of one
    command.
    """

    name = "slurm"

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raises `ValueError` for an option that is unknown or no number."""
        unknown = options.keys() - set(_OPTIONS)
        if unknown:
            raise ValueError(f"unknown options of the slurm adapter: {', '.join(sorted(unknown))}")
        self.cluster = cluster
        given = command_options(options, _OPTIONS)
        # Whatever the caller's own settings are: times as seconds since 1970, whole array expressions.
        variables = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
        self._commands = Commands(
            given.get("bin", ""),
            float(given.get("timeout_seconds", 60)),
            inherits=("SLURM_CONF",),
            variables=variables | ({"SLURM_CONF": given["conf"]} if "conf" in given else {}),
        )
        self._sacct = Sacct(self._commands)

    def spool(self, directory: Path) -> SlurmSpool:
        """Return the spool at `directory`, slurmctld's StateSaveLocation."""
        return SlurmSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        """Yield every attempt that ended in [since, until), by sacct. Raises `SchedulerError`."""
        settled_before = datetime.now(UTC) - SETTLING
        return accounting.finished_jobs(
            self._sacct, since=since.astimezone(UTC), until=until.astimezone(UTC), settled_before=settled_before
        )

    def log_paths(self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
        """Ask slurmctld, then accounting; else work it out from the submission. None for an interactive job."""
        record = _with_script(record)
        try:
            known = paths_known_to_controller(self._commands, record)
        except SchedulerError as error:
            logger.warning("log paths of job %s: %s", record.job_id, error)
            known = None
        return known or _paths_in_accounting(record) or work_out_paths(record, script=script, environment=environment)

    def script_arguments(self, *, submit_line: str, name: str) -> str:
        """Read them off sbatch's command, words joined by spaces: accounting has lost their quotes."""
        return arguments_of_submission(submit_line, name=name)

    def submissions(self) -> Iterator[Submission]:
        """Yield every job that slurmctld knows. Raises `SchedulerError`."""
        return known_submissions(self._commands)

    def current_jobs(self) -> Iterator[CurrentJobs]:
        """Yield what waits and runs, by squeue. Raises `SchedulerError`."""
        return current_jobs(self._commands)

    def stored_copies(self, spool_ids: Collection[str]) -> Iterator[StoredCopy]:
        """Yield slurmdbd's copies, where AccountingStoreFlags has it keep them. Raises `SchedulerError`."""
        return stored_copies(self._sacct, spool_ids)

    def submit(self, job: BatchJob) -> str:
        """Submit by sbatch. Raises `SubmissionRefused`, `SchedulerError`."""
        return submission.submit(self._commands, job)

    def find_submitted(self, name: str) -> str | None:
        """Ask slurmctld, then accounting. Raises `SchedulerError` unless both answer, or one knows the job."""
        return submission.find_submitted(self._commands, name)

    def cancel(self, spool_id: str) -> None:
        """Cancel by scancel. Raises `SchedulerError`."""
        submission.cancel(self._commands, spool_id)

    def hold(self, spool_id: str) -> None:
        """Hold by scontrol. Raises `SchedulerError`."""
        submission.hold(self._commands, spool_id)

    def release(self, spool_id: str) -> None:
        """Release by scontrol. Raises `SchedulerError`."""
        submission.release(self._commands, spool_id)


def _with_script(record: JobRecord) -> JobRecord:
    """Return the component of a heterogeneous job that runs the script, and so writes its output: the first."""
    leader, plus, offset = record.job_id.partition("+")
    return (
        replace(record, job_id=f"{leader}+0", raw_id=int(leader), spool_id=leader) if plus and offset != "0" else record
    )


def work_out_paths(record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
    """Work out the paths of a batch job as sbatch and slurmstepd do."""
    program = PurePosixPath(record.submit_line.split(" ")[0]).name
    if not record.work_dir or program in ("salloc", "srun"):
        return None
    asked = requested_output(record.submit_line, environment, script)
    stdout = fill_in(asked.stdout or default_output(record), record)
    stderr = fill_in(asked.stderr, record) if asked.stderr else stdout
    return LogPaths(stdout=Path(record.work_dir, stdout), stderr=Path(record.work_dir, stderr), source="derived")


def _paths_in_accounting(record: JobRecord) -> LogPaths | None:
    if not record.stdout_path:
        return None
    stdout, stderr = record.stdout_path, record.stderr_path or record.stdout_path
    return LogPaths(stdout=Path(record.work_dir, stdout), stderr=Path(record.work_dir, stderr), source="accounting")
