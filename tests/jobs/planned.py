"""A scheduler whose accounting the test writes."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord, LogPaths, SchedulerError


class Planned:
    """Answers with the records that a test has put into `records`;
    raises `fault` after `fault_after` of them.
    """

    name = "planned"
    records: list[JobRecord] = []
    asked: list[tuple[datetime, datetime]] = []
    fault: Exception | None = None
    fault_after = 0

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        if options.get("broken"):
            raise ValueError("option broken is set")
        self.cluster = cluster

    def spool(self, directory: Path) -> None:
        raise SchedulerError("has none")

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        self.asked.append((since, until))
        given = 0
        for record in self.records:
            if since <= record.ended_at < until:
                if self.fault and given >= self.fault_after:
                    raise self.fault
                given += 1
                yield record

    def log_paths(
        self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
    ) -> LogPaths | None:
        if not script:
            return None
        return LogPaths(Path("/data/out.log"), Path("/data/err.log"), "derived")
