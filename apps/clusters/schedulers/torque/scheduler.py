"""The Torque adapter."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apps.clusters.schedulers.base import CurrentJobs, Flagged, JobRecord, LogPaths, SchedulerError
from apps.clusters.schedulers.commands import CommandScheduler
from apps.clusters.schedulers.torque.accounting import SETTLING, Accounting
from apps.clusters.schedulers.torque.logs import derived_paths, described_paths
from apps.clusters.schedulers.torque.queue import current_jobs
from apps.clusters.schedulers.torque.spool import TorqueSpool


class Torque(CommandScheduler):
    """One Torque server.

    Options:

    * `accounting`: the directory of its accounting files.
    * `jobs`: its spool, for log paths.
    * `time_zone`: that of the accounting files, such as `Europe/Brussels`; default: that of this
      host.
    * `bin`: the directory of `qstat`; `timeout_seconds`: the limit of one command.
    * `server`: a name for `qstat`; default: the default server.
    """

    name = "torque"
    known_options = frozenset({"accounting", "jobs", "time_zone", "server"})

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raise `ValueError`, also for an invalid time zone or server name."""
        super().__init__(cluster, options)
        self._server = self._options.get("server", "")
        directory = self._options.get("accounting")
        if self._server and not re.fullmatch(r"[A-Za-z0-9][\w.:-]*", self._server):
            raise ValueError(f"invalid server name: {self._server!r}")
        # Exclude finished jobs if this version of Torque can; the parser ignores them otherwise.
        self._commands = self._commands_with(inherits=("PBS_DEFAULT",), PBS_QSTAT_NO_COMPLETE="1")
        zone = _zone(self._options.get("time_zone", ""))
        self._accounting = None
        if directory:
            self._accounting = Accounting(Path(directory), zone)

    def spool(self, directory: Path) -> TorqueSpool:
        return TorqueSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord | Flagged]:
        """Yield every attempt that ended in [since, until), from the accounting files.

        Raises `SchedulerError`.
        """
        if self._accounting is None:
            raise SchedulerError(f"cluster {self.cluster}: the option `accounting` is not set")
        yield from self._accounting.finished_jobs(
            since=since, until=until, settled_before=datetime.now(UTC) - SETTLING
        )

    def current_jobs(self) -> Iterator[CurrentJobs]:
        return current_jobs(self._commands, self._server)

    def log_paths(
        self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
    ) -> LogPaths | None:
        """Return the paths from the job's description while it exists, else derived paths.

        Return None if the job never ran.
        """
        if record.started_at is None:
            return None
        jobs = self._options.get("jobs")
        described = described_paths(Path(jobs), record) if jobs else None
        return described or derived_paths(record, script=script, environment=environment)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"invalid time zone: {name!r}") from error
