"""Clusters and their scheduler adapters."""

import shlex
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from apps.accounts.models import Principal
from apps.clusters.models import Cluster, Site
from apps.clusters.schedulers.base import Scheduler, SchedulerError
from apps.clusters.schedulers.options import LOG_OPTIONS, LOG_OWNERS, LOG_RIGHTS, LOG_URL
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.domain.events import publish
from apps.core.domain.plugins import UnknownPlugin

#: The command that takes a host out of service, by scheduler. Running jobs finish.
_DRAIN = {
    "slurm": "scontrol update NodeName={host} State=DRAIN Reason={reason}",
    "torque": "pbsnodes -o -N {reason} {host}",
    "htcondor": "condor_drain -graceful {host}",
}


def drain_command(cluster: Cluster, host: str, *, reason: str) -> str:
    """Return the shell command that drains a host; "" if the scheduler has none."""
    command = _DRAIN.get(cluster.scheduler, "")
    return command.format(host=shlex.quote(host), reason=shlex.quote(reason))


@transaction.atomic
def ensure_cluster(
    *, name: str, scheduler: str, by: Principal, at: datetime, options: dict[str, str] | None = None
) -> Cluster:
    """Return the cluster of this name, creating it with this scheduler if necessary."""
    cluster, created = Cluster.objects.get_or_create(
        name=name, defaults={"scheduler": scheduler, "options": options or {}}
    )
    if created:
        publish(kind="cluster.created", target=cluster, by=by, at=at, new=scheduler)
    return cluster


def sites_named(names: Iterable[str]) -> dict[str, int]:
    """Return the primary keys of sites by name, creating missing sites."""
    site_names = set(names)
    keys = dict(Site.objects.filter(name__in=site_names).values_list("name", "pk"))
    for name in sorted(site_names - keys.keys()):
        site, _ = Site.objects.get_or_create(name=name)
        keys[name] = site.pk
    return keys


def adapter_of(cluster: Cluster) -> Scheduler:
    """Return the cluster's scheduler adapter.

    Raises `SchedulerError` if the scheduler is unknown or its options are invalid.
    """
    options = {name: value for name, value in cluster.options.items() if name not in LOG_OPTIONS}
    try:
        return SCHEDULERS.get(cluster.scheduler)(cluster.name, options)
    except UnknownPlugin as error:
        raise SchedulerError(str(error)) from error
    except (ValueError, TypeError, LookupError) as error:
        raise SchedulerError(f"options of cluster {cluster.name}: {error}") from error


def log_owners_of(cluster: Cluster) -> tuple[str, ...]:
    """Return the accounts, by name or uid, that may own the logs of any job of the cluster."""
    names = str(cluster.options.get(LOG_OWNERS, "")).split(",")
    return tuple(name.strip() for name in names if name.strip())


def log_url_of(cluster: Cluster) -> str:
    """Return the URL template of job logs, with fields such as {job_id}; "" if logs are files."""
    return str(cluster.options.get(LOG_URL, ""))


def checks_log_rights(cluster: Cluster) -> bool:
    """Return whether a job's user must be allowed to read a log before the portal shows it."""
    return cluster.options.get(LOG_RIGHTS) is True
