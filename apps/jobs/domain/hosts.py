"""Hosts as schedulers list them, and host details that job records lack.

The details come from the phases that the job reported, or from the list of hosts.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster, Host
from apps.clusters.schedulers.base import HostFacts, JobRecord, KnowsHosts, SchedulerError
from apps.clusters.schedulers.plausibility import AHEAD
from apps.core.domain.bulk import rows_where_any
from apps.jobs.domain.records.conversion import clean_text, hour_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.models import Job, JobPhase

log = logging.getLogger(__name__)

#: Maximum time between a listing of hosts and the end of a job that it describes.
_LISTED_WITHIN = timedelta(days=1)


def read_hosts(*, cluster: Cluster, at: datetime) -> int | None:
    """Store the hosts that a cluster's scheduler lists; return their number.

    Return None if the adapter cannot list hosts or fails, which is logged. Hosts that are no longer
    listed are kept with the time of their last listing.
    """
    try:
        scheduler = adapter_of(cluster)
        if not isinstance(scheduler, KnowsHosts):
            return None
        hosts = list(scheduler.hosts())
    except SchedulerError as error:
        log.warning("the hosts of cluster %s cannot be read: %s", cluster.name, error)
        return None
    except Exception:
        # A third-party adapter may raise anything, and must not stop the other clusters.
        log.exception("scheduler adapter %s failed", cluster.scheduler)
        return None
    return store_hosts(cluster=cluster, hosts=hosts, at=at)


@transaction.atomic
def store_hosts(*, cluster: Cluster, hosts: Iterable[HostFacts], at: datetime) -> int:
    """Store the hosts of a listing; return their number."""
    rows = {}
    for facts in hosts:
        rows[facts.name] = Host(
            cluster=cluster,
            name=clean_text(facts.name, 255),
            cpu_model=clean_text(facts.cpu_model, 255),
            address=clean_text(facts.address, 64),
            cores=facts.cores,
            memory_bytes=facts.memory_bytes,
            state=facts.state or "",
            state_words=clean_text(facts.state_words, 128),
            reason=clean_text(facts.reason, 500),
            booted_at=facts.booted_at,
            listed_at=at,
        )
    fields = ["cpu_model", "address", "cores", "memory_bytes", "listed_at"]
    fields += ["state", "state_words", "reason", "booted_at"]
    Host.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["cluster", "name"],
        update_fields=fields,
    )
    return len(rows)


class HostLookup:
    """Details of the hosts of new jobs, from reported phases and the list of hosts.

    Runs at most two queries for a batch.
    """

    def __init__(self, cluster: Cluster, records: Iterable[JobRecord]) -> None:
        jobs = set()
        hosts = set()
        for record in records:
            if record.cpu_model and record.host_address:
                continue
            hosts.add(record.host)
            if record.started_at and not record.cpu_model:
                jobs.add(clean_text(record.job_id, 64))

        self._reported: dict[str, list[tuple[datetime, int, str]]] = {}
        if jobs:
            facts = ("job_id", "started_at", "experiment_id", "cpu_model")
            reported = rows_where_any(JobPhase, facts, "job_id", list(jobs), cluster_id=cluster.pk)
            for job_id, started_at, experiment, cpu_model in sorted(reported):
                self._reported.setdefault(job_id, []).append((started_at, experiment, cpu_model))

        self._listed: dict[str, list[Any]] = {}
        names = {clean_text(host, 255) for host in hosts} - {""}
        if names:
            facts = ("name", "cpu_model", "address", "listed_at")
            listed = rows_where_any(Host, facts, "name", list(names), cluster_id=cluster.pk)
            self._listed = {name: values for name, *values in listed}

    def add_to(self, columns: dict[str, Sequence[Any]]) -> None:
        """Fill `cpu_model` and `host_address` of the jobs whose records lack them."""
        if self._reported:
            facts = (
                columns[name]
                for name in ("job_id", "started_at", "ended_at", "experiment_id", "cpu_model")
            )
            columns["cpu_model"] = [
                cpu_model or (self._cpu_model_reported(*rest) if rest[1] else "")
                for *rest, cpu_model in zip(*facts, strict=True)
            ]
        if self._listed:
            listed = list(map(self._listed_facts, columns["host"], columns["ended_at"]))
            for name, of_host in zip(
                ("cpu_model", "host_address"), zip(*listed, strict=True), strict=True
            ):
                columns[name] = [
                    own or other for own, other in zip(columns[name], of_host, strict=True)
                ]

    def _cpu_model_reported(
        self, job_id: str, began_at: datetime, ended_at: datetime, of_experiment: int | None
    ) -> str:
        """Return the newest CPU model that the job reported, for its own experiment if known."""
        newest = ""
        for started_at, experiment, cpu_model in self._reported.get(job_id, ()):
            own = of_experiment in (None, experiment)
            if cpu_model and own and began_at - AHEAD <= started_at < ended_at + AHEAD:
                newest = cpu_model
        return newest

    def _listed_facts(self, host: str, ended_at: datetime) -> tuple[str, str]:
        """Return the CPU model and address of a host listed within a day of `ended_at`."""
        cpu_model, address, listed_at = self._listed.get(host, ("", "", None))
        if listed_at and abs(ended_at - listed_at) < _LISTED_WITHIN:
            return (cpu_model, address)
        return ("", "")


def correct_cpu_model(*, phase: JobPhase) -> None:
    """Store a phase's CPU model with the attempts that have none, in the caller's transaction."""
    same = Job.objects.filter(
        cluster=phase.cluster_id, job_id=phase.job_id, experiment=phase.experiment_id
    )
    during = same.filter(
        started_at__lte=phase.started_at + AHEAD,
        ended_at__gt=phase.started_at - AHEAD,
        cpu_model="",
    )
    ends = list(during.values_list("ended_at", flat=True))
    if ends:
        during.update(cpu_model=phase.cpu_model)
        mark_dirty({hour_of(ended_at) for ended_at in ends})
