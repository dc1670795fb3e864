"""Links from pages of lower apps to the hosts that are excluded from new jobs."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, Q
from django.urls import reverse
from django.utils.http import urlencode

from apps.accounts.models import Principal
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import FailureGroup
from apps.hosts.domain.exclusions import count_by_cluster, list_exclusions, open_exclusions
from apps.hosts.domain.probes.states import current_states
from apps.hosts.permissions import may_exclude_hosts


def link_excluded_hosts(at: datetime) -> list[tuple[str, str]]:
    """Return a text and an address for each cluster with excluded hosts, for the status board."""
    links = []
    for cluster, hosts in count_by_cluster(at):
        plural = "" if hosts == 1 else "s"
        address = f"{reverse('hosts:exclusions')}?{urlencode({'cluster': cluster})}"
        links.append((f"{hosts:,} host{plural} of {cluster}", address))
    return links


def has_measured_states(at: datetime) -> bool:
    """Return whether probes measured anything lately."""
    return current_states(at).exists()


@dataclass(frozen=True)
class GroupsOfHosts:
    """The failure groups, by primary key, of hosts that get no new jobs, and of those that were
    excluded, get jobs again, and have not failed since.
    """

    excluded: frozenset[int]
    returned: frozenset[int]


def groups_of_excluded_hosts(at: datetime) -> GroupsOfHosts:
    """Return the failure groups of hosts that are or were excluded, in one query."""
    same_host = {"cluster": OuterRef("cluster"), "host": OuterRef("host")}
    since_then = {
        "started_at__gte": OuterRef("first_seen_at"),
        "ended_at__gte": OuterRef("last_seen_at"),
    }
    in_effect = open_exclusions(at).order_by().filter(**same_host)
    ended = list_exclusions().order_by().filter(**same_host, **since_then, ended_at__lte=at)
    groups = FailureGroup.objects.filter(kind=GroupKind.HOST)
    groups = groups.annotate(is_excluded=Exists(in_effect), has_returned=Exists(ended))
    marked = dict(
        groups.filter(Q(is_excluded=True) | Q(has_returned=True)).values_list("pk", "is_excluded")
    )
    excluded = frozenset(pk for pk, is_excluded in marked.items() if is_excluded)
    return GroupsOfHosts(excluded, frozenset(marked) - excluded)


def link_exclusion_of(group: FailureGroup, user: Principal, at: datetime) -> list[tuple[str, str]]:
    """Return the link from the failure group of a host to its exclusion, or to the form for one."""
    if group.kind != GroupKind.HOST or group.cluster is None:
        return []
    exclusion = open_exclusions(at).filter(cluster=group.cluster, host=group.host).first()
    if exclusion is not None:
        return [("Excluded from new jobs", exclusion.get_absolute_url())]
    if not may_exclude_hosts(user):
        return []
    values: dict[str, str | int] = {
        "cluster": group.cluster.name,
        "host": group.host,
        "group": group.pk,
    }
    return [("Exclude from new jobs…", f"{reverse('hosts:exclude')}?{urlencode(values)}")]
