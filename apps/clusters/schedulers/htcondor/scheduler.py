"""The HTCondor adapter: its parts put together behind the protocol of `base`."""

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path

from apps.clusters.schedulers.base import CurrentJobs, JobRecord, LogPaths, SchedulerError
from apps.clusters.schedulers.commands import Commands, command_options
from apps.clusters.schedulers.htcondor.history import ads_in_history, ads_of_jobs
from apps.clusters.schedulers.htcondor.queue import current_jobs
from apps.clusters.schedulers.htcondor.records import BadAd, read_record
from apps.clusters.schedulers.htcondor.spool import HTCondorSpool

logger = logging.getLogger(__name__)

_OF_CONDOR_Q = ("bin", "conf", "schedd", "pool", "timeout_seconds")
#: Of one answer of condor_q, which is read as a whole: of about a million jobs.
MOST_BYTES = 1 << 28


class HTCondor:
    """The jobs of one schedd.

    Options: `history` (its HISTORY file, or the directory of that), `per_job_history` (its PER_JOB_HISTORY_DIR); one
    is enough, and with both a job found in both is one. For `condor_q`: `bin` (its directory), `conf`
    (CONDOR_CONFIG), `schedd` and `pool` (names; else those of the host), `timeout_seconds`.
    """

    name = "htcondor"
    #: Users choose their `AccountingGroup`; it does not prove that they belong to an experiment.
    accounts_are_enforced = False

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raises `ValueError` for an option that is unknown, or no time limit or name."""
        unknown = options.keys() - {"history", "per_job_history", *_OF_CONDOR_Q}
        if unknown:
            raise ValueError(f"unknown options of the htcondor adapter: {', '.join(sorted(unknown))}")
        self.cluster = cluster
        self._history = options.get("history", "")
        self._per_job_history = options.get("per_job_history", "")
        given = command_options(options, _OF_CONDOR_Q)
        self._schedd, self._pool = given.get("schedd", ""), given.get("pool", "")
        if any(name.startswith("-") for name in (self._schedd, self._pool)):
            raise ValueError("options schedd and pool are names")
        self._commands = Commands(
            given.get("bin", ""),
            float(given.get("timeout_seconds", 60)),
            MOST_BYTES,
            inherits=("CONDOR_", "_CONDOR_", "X509_", "BEARER_TOKEN", "KRB5"),
            variables={"CONDOR_CONFIG": given["conf"]} if "conf" in given else {},
        )

    def spool(self, directory: Path) -> HTCondorSpool:
        return HTCondorSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        """Yield the last attempt of every job that ended in [since, until) and left the queue, by their ends."""
        found: dict[tuple[str, datetime, int], JobRecord] = {}
        if not self._history and not self._per_job_history:
            raise SchedulerError(f"cluster {self.cluster}: neither option `history` nor `per_job_history` is set")
        ads = chain(
            ads_in_history(Path(self._history), since=since, until=until) if self._history else (),
            ads_of_jobs(Path(self._per_job_history), since=since) if self._per_job_history else (),
        )
        for ad in ads:
            try:
                record = read_record(ad)
            except BadAd as error:
                logger.error("history: left out: %s", error)
                continue
            if since <= record.ended_at < until:
                found[record.job_id, record.submitted_at, record.attempt] = record
        yield from sorted(found.values(), key=lambda record: (record.ended_at, record.raw_id, record.job_id))

    def current_jobs(self) -> Iterator[CurrentJobs]:
        return current_jobs(self._commands, schedd=self._schedd, pool=self._pool)

    def log_paths(self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
        """Say where the output lies: the ad knows, with all macros filled in. None for a job that never started."""
        if not record.stdout_path or record.started_at is None:
            return None
        return LogPaths(Path(record.stdout_path), Path(record.stderr_path or record.stdout_path), "accounting")
