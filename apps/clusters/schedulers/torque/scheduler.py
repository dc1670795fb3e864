"""The Torque adapter: its parts put together behind the protocol of `base`."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apps.clusters.schedulers.base import CurrentJobs, JobRecord, LogPaths, SchedulerError
from apps.clusters.schedulers.commands import Commands, command_options
from apps.clusters.schedulers.torque.accounting import SETTLING, Accounting
from apps.clusters.schedulers.torque.logs import derived_paths, described_paths
from apps.clusters.schedulers.torque.queue import current_jobs
from apps.clusters.schedulers.torque.spool import TorqueSpool

_OF_QSTAT = ("bin", "server", "timeout_seconds")


class Torque:
    """One Torque server.

    Options: `accounting` (directory of its accounting files), `jobs` (its spool, where log paths are read),
    `time_zone` of the accounting files (as `Europe/Brussels`; the portal's host's own where it is not given); for
    `qstat`: `bin` (its directory), `server` (a name; else the default one), `timeout_seconds`.
    """

    name = "torque"

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raises `ValueError` for an option that is unknown, or no time zone or time limit."""
        unknown = options.keys() - {"accounting", "jobs", "time_zone", *_OF_QSTAT}
        if unknown:
            raise ValueError(f"unknown options of the torque adapter: {', '.join(sorted(unknown))}")
        self.cluster = cluster
        self._jobs = Path(options["jobs"]) if options.get("jobs") else None
        given = command_options(options, _OF_QSTAT)
        self._server = given.get("server", "")
        if self._server and not re.fullmatch(r"[A-Za-z0-9][\w.:-]*", self._server):
            raise ValueError(f"no name of a server: {self._server!r}")
        # Ended jobs are left out where the version can do that, and none of the queues.
        variables = {"PBS_QSTAT_NO_COMPLETE": "1"}
        limit = float(given.get("timeout_seconds", 60))
        self._commands = Commands(given.get("bin", ""), limit, inherits=("PBS_DEFAULT",), variables=variables)
        self._accounting = None
        if options.get("accounting"):
            self._accounting = Accounting(Path(options["accounting"]), _zone(options.get("time_zone", "")))

    def spool(self, directory: Path) -> TorqueSpool:
        return TorqueSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        """Yield every attempt that ended in [since, until), from the accounting files. Raises `SchedulerError`."""
        if self._accounting is None:
            raise SchedulerError(f"cluster {self.cluster}: the option `accounting` is not set")
        yield from self._accounting.finished_jobs(since=since, until=until, settled_before=datetime.now(UTC) - SETTLING)

    def current_jobs(self) -> Iterator[CurrentJobs]:
        return current_jobs(self._commands, self._server)

    def log_paths(self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
        """Read the paths in the job's description while it is there, else work them out. None for what never ran."""
        if record.started_at is None:
            return None
        described = described_paths(self._jobs, record) if self._jobs else None
        return described or derived_paths(record, script=script, environment=environment)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"no time zone: {name!r}") from error
