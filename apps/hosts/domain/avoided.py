"""The hosts that new jobs avoid, as the scheduler names them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from apps.clusters.models import Cluster
from apps.hosts.domain.exclusions import open_exclusions
from apps.hosts.domain.known_hosts import hosts_of_jobs, listed_hosts, short_name


@dataclass(frozen=True, slots=True)
class AvoidedHosts:
    """The excluded hosts that a submission avoids, sorted.

    `all_excluded` means that no other host would be left, so that it avoids none of them.
    """

    names: tuple[str, ...] = ()
    all_excluded: bool = False


def hosts_to_avoid(
    cluster: Cluster, *, at: datetime, besides: Collection[str] = ()
) -> AvoidedHosts:
    """Return the excluded hosts of a cluster that jobs submitted now must avoid.

    `besides` are hosts that the jobs avoid anyway. A host that the scheduler no longer lists is
    left out, because a scheduler refuses jobs that name an unknown host.
    """
    excluded = set(open_exclusions(at).filter(cluster=cluster).values_list("host", flat=True))
    if not excluded:
        return AvoidedHosts()
    avoided = excluded | {short_name(host) for host in besides}
    listed = listed_hosts(cluster, at=at)
    known = set(listed) or hosts_of_jobs(cluster, at=at)
    if known and known <= avoided:
        return AvoidedHosts(all_excluded=True)
    names = []
    for host in excluded:
        if not listed:
            names.append(host)
        elif host in listed:
            names.append(listed[host])
    return AvoidedHosts(names=tuple(sorted(names)))
