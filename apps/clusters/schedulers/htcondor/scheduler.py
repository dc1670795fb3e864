"""The HTCondor adapter."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path

from apps.clusters.schedulers.base import CurrentJobs, Flagged, JobRecord, LogPaths, SchedulerError
from apps.clusters.schedulers.commands import CommandScheduler
from apps.clusters.schedulers.htcondor.history import ads_in_history, ads_of_jobs
from apps.clusters.schedulers.htcondor.queue import current_jobs
from apps.clusters.schedulers.htcondor.records import read_record
from apps.clusters.schedulers.htcondor.spool import HTCondorSpool

#: Maximum output of condor_q: enough for about a million jobs.
MOST_BYTES = 1 << 28


class HTCondor(CommandScheduler):
    """The jobs of one schedd.

    Options:

    * `history`: its HISTORY file, or the directory of that.
    * `per_job_history`: its PER_JOB_HISTORY_DIR. One of the two is enough; with both, no job is
      counted twice.
    * `bin`: the directory of `condor_q`; `conf`: its CONDOR_CONFIG; `timeout_seconds`.
    * `schedd`, `pool`: names for `condor_q`; default: as the host is configured.
    * `cpu_model_attribute`: the machine attribute with the CPU model, if job ads have it as
      `MachineAttr…0`.
    """

    name = "htcondor"
    known_options = frozenset(
        {"history", "per_job_history", "conf", "schedd", "pool", "cpu_model_attribute"}
    )
    #: Users choose their `AccountingGroup`, so it does not prove that they belong to an experiment.
    accounts_are_enforced = False

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raise `ValueError`, also for an invalid name."""
        super().__init__(cluster, options)
        self._schedd = self._options.get("schedd", "")
        self._pool = self._options.get("pool", "")
        if any(name.startswith("-") for name in (self._schedd, self._pool)):
            raise ValueError("options schedd and pool must be names")
        self._commands = self._commands_with(
            inherits=("CONDOR_", "_CONDOR_", "X509_", "BEARER_TOKEN", "KRB5"),
            most_bytes=MOST_BYTES,
            CONDOR_CONFIG=self._options.get("conf", ""),
        )

    def spool(self, directory: Path) -> HTCondorSpool:
        return HTCondorSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord | Flagged]:
        """Yield the last attempt of every job that ended in [since, until) and left the queue.

        Ads that cannot be parsed come first; the others are ordered by their end.
        """
        history = self._options.get("history")
        per_job = self._options.get("per_job_history")
        if not history and not per_job:
            raise SchedulerError(
                f"cluster {self.cluster}: neither option `history` nor `per_job_history` is set"
            )

        attempts: dict[tuple[datetime, int, str, datetime, int], JobRecord | Flagged] = {}
        ads = chain(
            ads_in_history(Path(history), since=since, until=until) if history else (),
            ads_of_jobs(Path(per_job), since=since) if per_job else (),
        )
        for ad in ads:
            read = read_record(ad, cpu_model_attribute=self._options.get("cpu_model_attribute", ""))
            record = read.record if isinstance(read, Flagged) else read
            if record is None:
                yield read
            elif since <= record.ended_at < until:
                key = (
                    record.ended_at,
                    record.raw_id,
                    record.job_id,
                    record.submitted_at,
                    record.attempt,
                )
                attempts[key] = read
        for key in sorted(attempts):
            yield attempts[key]

    def current_jobs(self) -> Iterator[CurrentJobs | Flagged]:
        return current_jobs(self._commands, schedd=self._schedd, pool=self._pool)

    def log_paths(
        self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
    ) -> LogPaths | None:
        """Return the paths in the ad, with all macros expanded; None if the job never started."""
        return record.known_paths() if record.started_at else None
