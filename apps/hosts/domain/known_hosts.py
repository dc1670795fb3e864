"""The hosts of a cluster, as its scheduler lists them or as its jobs show them."""

import re
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Q

from apps.clusters.models import Cluster, Host
from apps.jobs.domain.records.jobs import matches_host, short_host
from apps.jobs.models import SHORT_HOST, Job

#: How long a host counts as listed after the last listing that has it.
LISTED_WITHIN = timedelta(days=1)
#: Without a listing, the hosts of a cluster are those of the jobs that ended in this time.
SEEN_WITHIN = timedelta(days=1)
#: Names that schedulers accept as one host; brackets and commas would name several.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")


def short_name(host: str) -> str:
    """Return the name of a host without its domain."""
    return short_host(host.strip())


def is_host_name(host: str) -> bool:
    """Return whether a text is the short name of a single host."""
    return _NAME.fullmatch(host) is not None


def listed_hosts(cluster: Cluster, *, at: datetime) -> dict[str, str]:
    """Return the hosts that the scheduler lists, by short name; none if it cannot list them.

    Hosts that a later listing lacks are left out.
    """
    hosts = Host.objects.filter(cluster=cluster)
    newest = hosts.order_by("-listed_at").values_list("listed_at", flat=True).first()
    if newest is None or newest < at - LISTED_WITHIN:
        return {}
    names = hosts.filter(listed_at=newest).values_list("name", flat=True)
    return {short_name(name): name for name in names}


def full_name(cluster: Cluster, host: str, *, at: datetime) -> str:
    """Return the name under which the scheduler lists a host, given by its short name.

    Without a listing that is the short name.
    """
    hosts = Host.objects.filter(cluster=cluster, listed_at__gte=at - LISTED_WITHIN)
    names = hosts.filter(Q(name=host) | Q(name__startswith=f"{host}.")).order_by("-listed_at")
    return names.values_list("name", flat=True).first() or host


def known_hosts(cluster: Cluster, *, at: datetime) -> Collection[str]:
    """Return the short names of a cluster's hosts.

    They are those that its scheduler lists, or else those on which jobs ended in the last day.
    """
    return listed_hosts(cluster, at=at).keys() or hosts_of_jobs(cluster, at=at)


def hosts_of_jobs(cluster: Cluster, *, at: datetime) -> set[str]:
    """Return the short names of the hosts on which jobs of a cluster ended in the last day."""
    jobs = Job.objects.filter(cluster=cluster, ended_at__gt=at - SEEN_WITHIN, ended_at__lte=at)
    return set(jobs.exclude(host="").order_by().values_list(SHORT_HOST, flat=True).distinct())


def has_host(cluster: Cluster, host: str, *, at: datetime) -> bool:
    """Return whether a cluster has a host of this short name.

    Without a listing, a host is one on which a job of the cluster has run.
    """
    if listed := listed_hosts(cluster, at=at):
        return host in listed
    return Job.objects.filter(matches_host(host), cluster=cluster).exists()
