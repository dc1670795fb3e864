"""Exclude hosts on which nearly every job fails, but never many at once.

The rule is that of failure groups of hosts (`apps.diagnosis.domain.groups.broken_hosts`); its
figures are the evidence. Fewer failures are enough where probes confirm them. If more hosts fail
within an hour than may be excluded, their cause is central: nothing is excluded, and people are
notified once.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError, SubmitsAsOwner
from apps.core.domain.events import publish
from apps.diagnosis.domain.groups.broken_hosts import (
    FailingHost,
    StartedAfter,
    find_failing_hosts,
    find_suspects,
    select_broken_hosts,
)
from apps.diagnosis.domain.groups.triage import HOST_WITHIN
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.hosts.domain.exclusions import (
    ExclusionEvidence,
    default_expiry,
    end_exclusion,
    lock_cluster,
    open_exclusions,
    store_exclusion,
)
from apps.hosts.domain.known_hosts import is_host_name, known_hosts
from apps.hosts.domain.probes.suspects import bad_by_probes, probe_suspects
from apps.hosts.enums import EndKind
from apps.hosts.models import CentralCause, HostExclusion
from apps.production.enums import PORTAL
from apps.statusboard.domain.incidents.incidents import open_incident_as_portal, open_incidents
from apps.statusboard.domain.maintenance.announcements import post_announcement_as_portal
from apps.statusboard.enums import State
from apps.statusboard.models import Incident, Service

#: Hosts whose last jobs failed within this time fail at the same time.
SAME_TIME = timedelta(hours=1)
#: How long the announcement of a central cause is shown.
ANNOUNCED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class BrokenHost:
    """A host to exclude, and the reason that people read."""

    failing: FailingHost
    reason: str


def exclude_failing_hosts(*, at: datetime) -> int:
    """Exclude the hosts on which nearly every job fails; return how many.

    Only clusters to which the portal submits count. May be called again at any time, also by two
    workers at once.
    """
    if not settings.HOST_EXCLUSION_PERCENT:
        _end_causes_besides([], at)
        return 0
    started_after = _starts_that_count(at)
    failing = _recent_by_cluster(find_failing_hosts(at=at, started_after=started_after), at)
    suspects = _recent_by_cluster(find_suspects(at=at, started_after=started_after), at)
    clusters = _clusters_with_submission()
    _end_causes_besides(clusters, at)
    excluded = 0
    for cluster in clusters:
        excluded += _follow_cluster(
            cluster, failing.get(cluster.pk, []), suspects.get(cluster.pk, []), at
        )
    return excluded


def _recent_by_cluster(
    hosts: Iterable[FailingHost], at: datetime
) -> Mapping[int, list[FailingHost]]:
    """Return the hosts that failed a job within `SAME_TIME`, by cluster."""
    hosts_by_cluster: dict[int, list[FailingHost]] = {}
    for host in hosts:
        if host.last_ended_at > at - SAME_TIME and is_host_name(host.host):
            hosts_by_cluster.setdefault(host.cluster_id, []).append(host)
    return hosts_by_cluster


def most_excluded(hosts: int) -> int:
    """Return how many of a cluster's hosts may be excluded when the portal excludes one.

    That is HOST_EXCLUSION_PERCENT of them, rounded down, but at least one of several.
    """
    share = math.floor(hosts * settings.HOST_EXCLUSION_PERCENT / 100)
    least = 1 if hosts > 1 and settings.HOST_EXCLUSION_PERCENT else 0
    return min(max(share, least), max(hosts - 1, 0))


def _clusters_with_submission() -> list[Cluster]:
    """Return the clusters to which the portal submits jobs, its own jobs or the jobs of others."""
    clusters = []
    for cluster in Cluster.objects.select_related("service").order_by("pk"):
        if cluster.submits or _submits_as_owner(cluster):
            clusters.append(cluster)
    return clusters


def _submits_as_owner(cluster: Cluster) -> bool:
    try:
        adapter = adapter_of(cluster)
    except SchedulerError:
        return False
    return isinstance(adapter, SubmitsAsOwner) and adapter.submits_as_owner


def _starts_that_count(at: datetime) -> StartedAfter:
    """Return a function that returns after which time the jobs of a host count as evidence.

    That is the end of its last exclusion, or of a central cause: earlier failures were known then.
    """
    exclusions = HostExclusion.objects.filter(ended_at__gt=at - HOST_WITHIN).order_by()
    ends_of_hosts = {}
    for cluster, host, ended_at in exclusions.values_list("cluster", "host").annotate(
        Max("ended_at")
    ):
        ends_of_hosts[cluster, host] = ended_at
    causes = CentralCause.objects.filter(ended_at__gt=at - HOST_WITHIN).order_by()
    ends_of_causes = dict(causes.values_list("cluster").annotate(Max("ended_at")))

    def started_after(cluster_id: int, host: str) -> datetime | None:
        ends = [ends_of_hosts.get((cluster_id, host)), ends_of_causes.get(cluster_id)]
        return max((end for end in ends if end), default=None)

    return started_after


def _follow_cluster(
    cluster: Cluster, failing: Sequence[FailingHost], suspects: Sequence[FailingHost], at: datetime
) -> int:
    """Note or end a central cause of a cluster; else exclude hosts, and return how many."""
    cause = CentralCause.objects.filter(cluster=cluster, ended_at=None).first()
    if not failing and not suspects and cause is None:
        return 0
    hosts = {*known_hosts(cluster, at=at), *(host.host for host in failing)}
    most = most_excluded(len(hosts))
    # A stage whose jobs fail everywhere is no cause that hosts have in common.
    failing_in_all = [host for host in failing if not host.of_kinds]
    if len(failing_in_all) > most:
        if cause is None:
            _note_central_cause(cluster, failing_in_all, len(hosts), at)
        return 0
    if cause is not None:
        _end_central_cause(cause, at)
        return 0  # only jobs that start from now on count as evidence

    excluded = set(open_exclusions(at).filter(cluster=cluster).values_list("host", flat=True))
    if len(excluded) >= most:
        return 0
    broken = {}
    failing = [host for host in failing if host.host not in excluded]
    for host in select_broken_hosts(failing, at=at):
        broken[host.host] = BrokenHost(host, _reason(host))

    suspects = [host for host in suspects if host.host not in excluded]
    if suspects and cluster.submits:
        for host, probes in bad_by_probes(cluster, suspects, at=at):
            broken.setdefault(host.host, BrokenHost(host, _reason_by_probes(host, probes)))
        unproven = [host for host in suspects if host.host not in broken]
        probe_suspects(cluster, unproven, hosts - excluded, most=most, at=at)
    if not broken:
        return 0
    return _exclude(cluster, broken, most, at)


@transaction.atomic
def _exclude(cluster: Cluster, broken: Mapping[str, BrokenHost], most: int, at: datetime) -> int:
    """Exclude hosts, by name, until `most` of the cluster are excluded; return how many."""
    # Of two workers the second waits here, and then sees what the first has stored.
    lock_cluster(cluster)
    if CentralCause.objects.filter(cluster=cluster, ended_at=None).exists():
        return 0
    already = set(open_exclusions(at).filter(cluster=cluster).values_list("host", flat=True))
    most_new = most - len(already)
    started_after = _starts_that_count(at)
    groups = FailureGroup.objects.filter(kind=GroupKind.HOST, cluster=cluster)
    group_by_host = {group.host: group for group in groups.filter(host__in=broken)}
    excluded = 0
    for host in broken.values():
        failing = host.failing
        counts_from = started_after(cluster.pk, failing.host)
        # Another worker or a person may have been faster: then these failures no longer count.
        is_known = counts_from is not None and counts_from >= failing.first_ended_at
        if failing.host in already or is_known or excluded >= most_new:
            continue
        store_exclusion(
            cluster=cluster,
            host=failing.host,
            reason=host.reason,
            by=PORTAL,
            at=at,
            expires_at=default_expiry(at),
            evidence=ExclusionEvidence(
                failing.failed,
                failing.ended,
                failing.first_ended_at,
                failing.last_ended_at,
                group_by_host.get(failing.host),
            ),
            automatic=True,
        )
        excluded += 1
    return excluded


def _reason(failing: FailingHost) -> str:
    if not failing.of_kinds:
        return (
            f"{failing.failed} of {failing.ended} jobs failed, of several stages or experiments, "
            "and other hosts are fine."
        )
    stages = sorted({stage or "no stage" for _, stage in failing.jobs_by_kind})
    return (
        f"{failing.failed} of {failing.ended} jobs of {', '.join(stages)[:200]} failed, and other "
        "hosts run them well."
    )


def _reason_by_probes(failing: FailingHost, probes: Sequence[str]) -> str:
    return (
        f"{failing.failed} of {failing.ended} jobs failed, and probes are bad there "
        f"({', '.join(probes)[:200]}), while those of other hosts are good."
    )


@transaction.atomic
def _note_central_cause(
    cluster: Cluster, failing: Collection[FailingHost], hosts: int, at: datetime
) -> None:
    """Store that too many hosts fail, tell people, and return what was just excluded."""
    lock_cluster(cluster)
    if CentralCause.objects.filter(cluster=cluster, ended_at=None).exists():
        return
    cause = CentralCause(
        cluster=cluster, failing_hosts=len(failing), known_hosts=hosts, started_at=at
    )
    title = f"{cluster}: nearly every job fails on {len(failing)} of {hosts} hosts"
    text = (
        f"More than {settings.HOST_EXCLUSION_PERCENT:g} % of the hosts failed within an hour, so "
        "the cause is not a single host. The portal excludes none of them."
    )
    incident = _known_incident(cluster, failing)
    if incident is None and cluster.service is not None:
        incident = open_incident_as_portal(
            service=cluster.service, state=State.DEGRADED, title=title, by=PORTAL, at=at, text=text
        )
    if incident is None:
        cause.announcement = post_announcement_as_portal(
            title=title, body=text, by=PORTAL, at=at, ends_at=at + ANNOUNCED
        )
    cause.incident = incident
    cause.save()
    publish(
        kind="host.central_cause",
        target=cause,
        by=PORTAL,
        at=at,
        data={"failing": len(failing), "known": hosts},
    )

    recent = HostExclusion.objects.filter(
        cluster=cluster, automatic=True, ended_at=None, started_at__gt=at - SAME_TIME
    )
    for exclusion in recent.select_for_update(of=("self",)).select_related("cluster"):
        end_exclusion(exclusion, EndKind.CENTRAL, by=PORTAL, at=at, reason=title)


def _known_incident(cluster: Cluster, failing: Collection[FailingHost]) -> Incident | None:
    """Return an open incident of the cluster, or of a service that failed most of these jobs."""
    if cluster.service is not None:
        if incident := open_incidents([cluster.service]).first():
            return incident
    jobs: list[int] = []
    for host in failing:
        jobs.extend(host.failed_jobs)
    verdicts = Verdict.objects.filter(job__in=jobs).exclude(service="")
    slugs = verdicts.order_by().values_list("service", flat=True).distinct()
    return open_incidents(Service.objects.filter(slug__in=list(slugs))).first()


def _end_causes_besides(clusters: Collection[Cluster], at: datetime) -> None:
    """End the central causes of clusters that are no longer checked."""
    for cause in CentralCause.objects.filter(ended_at=None).exclude(cluster__in=clusters):
        _end_central_cause(cause, at)


@transaction.atomic
def _end_central_cause(cause: CentralCause, at: datetime) -> None:
    if CentralCause.objects.filter(pk=cause.pk, ended_at=None).update(ended_at=at):
        publish(kind="host.central_cause_ended", target=cause, by=PORTAL, at=at)
