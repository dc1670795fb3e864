"""Links from pages of lower apps to the hosts that are excluded from new jobs."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.lookups import Exact
from django.urls import reverse
from django.utils.http import urlencode

from apps.accounts.models import Principal
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import FailureGroup
from apps.hosts.domain.exclusions import count_by_cluster, list_exclusions, open_exclusions
from apps.hosts.domain.probes.states import current_states
from apps.hosts.permissions import may_exclude_hosts
from apps.jobs.models import SHORT_HOST, Job

#: Older failures of a host say nothing about it any more.
REMEMBERED = timedelta(days=30)
#: A host works again once this many jobs that started after its last failure have completed.
COMPLETED_AGAIN = 3


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


def _groups_of_hosts(at: datetime) -> QuerySet[Any, Any]:
    """Return the failure groups of hosts, each with what became of its host since."""
    same_host = {"cluster": OuterRef("cluster"), "host": OuterRef("host")}
    since_then = {
        "started_at__gte": OuterRef("first_seen_at"),
        "ended_at__gte": OuterRef("last_seen_at"),
    }
    in_effect = open_exclusions(at).order_by().filter(**same_host)
    ended = list_exclusions().order_by().filter(**same_host, **since_then, ended_at__lte=at)
    completed = Job.objects.filter(
        Exact(SHORT_HOST, OuterRef("host")),
        cluster=OuterRef("cluster"),
        state=JobState.COMPLETED,
        started_at__gt=OuterRef("last_seen_at"),
    )
    groups = FailureGroup.objects.filter(kind=GroupKind.HOST, last_seen_at__gte=at - REMEMBERED)
    return groups.annotate(
        is_excluded=Exists(in_effect),
        has_returned=Exists(ended),
        works_again=Exists(completed.values("pk")[COMPLETED_AGAIN - 1 : COMPLETED_AGAIN]),
    )


def hosts_that_work_again(at: datetime, *, since: datetime) -> set[tuple[str, str]]:
    """Return cluster and host of failure groups on which jobs complete again, in one query.

    Groups without a failure since a time are left out: they do not explain later failures.
    """
    groups = _groups_of_hosts(at).filter(works_again=True, last_seen_at__gte=since)
    return set(groups.values_list("cluster__name", "host"))


def steps_of_host_groups(at: datetime) -> dict[int, str]:
    """Return what to do about failure groups of hosts that need not be drained, by primary key.

    They are excluded from new jobs; or were, and have not failed since they get jobs again; or
    several jobs that started after the last failure have completed.
    """
    steps = {}
    for group in _groups_of_hosts(at).only("pk"):
        if group.is_excluded:
            steps[group.pk] = "excluded from new jobs; retry elsewhere"
        elif group.has_returned:
            steps[group.pk] = "the host was excluded and has returned; no failure since"
        elif group.works_again:
            steps[group.pk] = "jobs complete there again; retry"
    return steps


def link_exclusion_of(
    group: FailureGroup, user: Principal, at: datetime, *, works_again: bool
) -> list[tuple[str, str]]:
    """Return the link from the failure group of a host to its exclusion, or to the form for one.

    A host that works again need not be excluded.
    """
    if group.kind != GroupKind.HOST or group.cluster is None:
        return []
    exclusion = open_exclusions(at).filter(cluster=group.cluster, host=group.host).first()
    if exclusion is not None:
        return [("Excluded from new jobs", exclusion.get_absolute_url())]
    if works_again or not may_exclude_hosts(user):
        return []
    values: dict[str, str | int] = {
        "cluster": group.cluster.name,
        "host": group.host,
        "group": group.pk,
    }
    return [("Exclude from new jobs…", f"{reverse('hosts:exclude')}?{urlencode(values)}")]
