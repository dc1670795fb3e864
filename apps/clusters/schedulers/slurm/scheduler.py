"""The Slurm adapter."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.clusters.schedulers.base import (
    BatchJob,
    CurrentJobs,
    Flagged,
    HostFacts,
    JobRecord,
    LogPaths,
    OwnedJob,
    StoredCopy,
    Submission,
)
from apps.clusters.schedulers.commands import CommandScheduler
from apps.clusters.schedulers.slurm import accounting, nodes, submission
from apps.clusters.schedulers.slurm.copies import stored_copies
from apps.clusters.schedulers.slurm.log_paths import log_paths
from apps.clusters.schedulers.slurm.output_options import arguments_of_submission
from apps.clusters.schedulers.slurm.queue import current_jobs, known_submissions
from apps.clusters.schedulers.slurm.sacct import Sacct
from apps.clusters.schedulers.slurm.spool import SlurmSpool

# The longest time that accounting takes to complete a row.
SETTLING = timedelta(minutes=10)


class Slurm(CommandScheduler):
    """One Slurm cluster.

    Options, all optional:

    * `conf`: the path of slurm.conf.
    * `bin`: the directory of the commands; `timeout_seconds`: the limit of one command.
    * `cluster_name`: Slurm's ClusterName, if it differs from the name in the portal.
    * `cpu_models`: CPU models by node feature, such as `rome=AMD EPYC 7702, icelake=Xeon Gold
      6330`.
    * `owner_command`: the command to submit as the owner of a job, such as
      `/usr/bin/sudo -n -u {user} /opt/opsportal/current/bin/submit-as-owner`.
    """

    name = "slurm"
    known_options = frozenset({"conf", "cluster_name", "cpu_models", "owner_command"})

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raise `ValueError` for an unknown or invalid option."""
        super().__init__(cluster, options)
        self._own_name = self._options.get("cluster_name", cluster)
        # Request times as seconds since 1970 and complete array expressions, whatever the caller's
        # settings.
        self._commands = self._commands_with(
            inherits=("SLURM_CONF", "SLURM_JWT"),
            SLURM_TIME_FORMAT="%s",
            SLURM_BITSTR_LEN="0",
            SLURM_CONF=self._options.get("conf", ""),
        )
        self._sacct = Sacct(self._commands)
        self._cpu_models = nodes.read_cpu_models(self._options.get("cpu_models", ""))
        self._owner_command = submission.read_owner_command(self._options.get("owner_command", ""))

    def spool(self, directory: Path) -> SlurmSpool:
        return SlurmSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord | Flagged]:
        """Yield every attempt that ended in [since, until), from sacct. Raises `SchedulerError`."""
        settled_before = datetime.now(UTC) - SETTLING
        return accounting.finished_jobs(
            self._sacct,
            cluster=self._own_name,
            since=since.astimezone(UTC),
            until=until.astimezone(UTC),
            settled_before=settled_before,
        )

    def log_paths(
        self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
    ) -> LogPaths | None:
        """Return the paths from slurmctld, accounting or derivation; None if interactive."""
        return log_paths(self._commands, record, script=script, environment=environment)

    def script_arguments(self, *, submit_line: str, name: str) -> str:
        """Return the arguments joined by spaces, because accounting drops the quotes."""
        return arguments_of_submission(submit_line, name=name)

    def submissions(self) -> Iterator[Submission]:
        return known_submissions(self._commands)

    def current_jobs(self) -> Iterator[CurrentJobs]:
        return current_jobs(self._commands)

    def hosts(self) -> Iterator[HostFacts]:
        return nodes.hosts(self._commands, self._cpu_models)

    def stored_copies(self, spool_ids: Collection[str]) -> Iterator[StoredCopy]:
        """Yield slurmdbd's copies, if enabled in AccountingStoreFlags. Raises `SchedulerError`."""
        return stored_copies(self._sacct, spool_ids)

    def submit(self, job: BatchJob) -> str:
        return submission.submit(self._commands, job)

    @property
    def submits_as_owner(self) -> bool:
        return bool(self._owner_command)

    def submit_as_owner(self, job: OwnedJob) -> str:
        return submission.submit_as_owner(self._commands, self._owner_command, job)

    def find_submitted(self, name: str) -> str | None:
        """Return the ID of the job with this name, from slurmctld, else from accounting.

        Raises `SchedulerError` unless both respond or one knows the job.
        """
        return submission.find_submitted(self._commands, name)

    def cancel(self, spool_id: str) -> None:
        submission.control(self._commands, "scancel", "--quiet", spool_id=spool_id)

    def hold(self, spool_id: str) -> None:
        submission.control(self._commands, "scontrol", "hold", spool_id=spool_id)

    def release(self, spool_id: str) -> None:
        submission.control(self._commands, "scontrol", "release", spool_id=spool_id)
