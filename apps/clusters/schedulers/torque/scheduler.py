"""The Torque adapter: its parts put together behind the protocol of `base`."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apps.clusters.schedulers.base import JobRecord, LogPaths, SchedulerError

from .accounting import SETTLING, Accounting
from .logs import described_paths, worked_out_paths
from .spool import TorqueSpool


class Torque:
    """One Torque server.

    Options: `accounting` (directory of its accounting files), `jobs` (its spool, where log paths are read),
    `time_zone` of the accounting files (as `Europe/Brussels`; the portal's host's own where it is not given).
    """

    name = "torque"

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raises `ValueError` for an option that is unknown, or no time zone."""
        unknown = options.keys() - {"accounting", "jobs", "time_zone"}
        if unknown:
            raise ValueError(f"unknown options of the torque adapter: {', '.join(sorted(unknown))}")
        self.cluster = cluster
        self._jobs = Path(options["jobs"]) if options.get("jobs") else None
        self._accounting = None
        if options.get("accounting"):
            self._accounting = Accounting(Path(options["accounting"]), _zone(options.get("time_zone", "")))

    def spool(self, directory: Path) -> TorqueSpool:
        """Return the spool at `directory`, `$TORQUE_HOME/server_priv/jobs`."""
        return TorqueSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        """Yield every attempt that ended in [since, until), from the accounting files. Raises `SchedulerError`."""
        if self._accounting is None:
            raise SchedulerError(f"cluster {self.cluster}: the option `accounting` is not set")
        yield from self._accounting.finished_jobs(since=since, until=until, settled_before=datetime.now(UTC) - SETTLING)

    def log_paths(self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
        """Read the paths in the job's description while it is there, else work them out. None for what never ran."""
        if record.started_at is None:
            return None
        described = described_paths(self._jobs, record) if self._jobs else None
        return described or worked_out_paths(record, script=script, environment=environment)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"no time zone: {name!r}") from error
