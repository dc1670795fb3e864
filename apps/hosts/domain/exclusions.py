"""Exclude hosts from new jobs, extend an exclusion, return a host, and end what expired."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, QuerySet

from apps.accounts.models import Principal
from apps.clusters.models import Cluster
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.diagnosis.models import FailureGroup
from apps.hosts.domain.known_hosts import has_host, is_host_name, short_name
from apps.hosts.enums import EndKind
from apps.hosts.models import CentralCause, HostExclusion, HostExclusionQuerySet
from apps.hosts.permissions import require_host_role
from apps.production.domain.reasons import checked_reason, reason_problems
from apps.production.enums import PORTAL

#: Longest time for which a host can be excluded without another decision.
MOST_DAYS = 90


@dataclass(frozen=True, slots=True)
class ExclusionEvidence:
    """The evidence against a host: its ended and failed jobs, and their failure group."""

    failed: int
    ended: int
    since: datetime
    until: datetime
    group: FailureGroup | None


def default_expiry(at: datetime) -> datetime:
    """Return when an exclusion that starts now expires, unless someone chooses another time."""
    return at + timedelta(hours=settings.HOST_EXCLUSION_HOURS)


@transaction.atomic
def exclude_host(
    *,
    cluster: Cluster,
    host: str,
    reason: str,
    by: Principal,
    at: datetime,
    expires_at: datetime | None = None,
    group: FailureGroup | None = None,
) -> HostExclusion:
    """Exclude a host from new jobs until `expires_at`, by default for HOST_EXCLUSION_HOURS.

    `host` may have its domain. `group` is the failure group that led to it. Raises `NotAllowed`,
    `InvalidFields`, and `StaleState` if the host is already excluded.
    """
    require_host_role(by, "exclude hosts")
    name = short_name(host)
    expires_at = expires_at or default_expiry(at)
    problems = reason_problems(reason) | _expiry_problems(expires_at, at)
    if not is_host_name(name):
        problems["host"] = ["Enter the name of one host."]
    elif not has_host(cluster, name, at=at):
        problems["host"] = [f"{cluster} has no host {name}, and none of its jobs ran on one."]
    if problems:
        raise InvalidFields(problems)

    lock_cluster(cluster)
    if open_exclusions(at).filter(cluster=cluster, host=name).exists():
        raise StaleState(f"{name} of {cluster} is already excluded.")
    evidence = None
    if group is not None:
        evidence = _evidence_of(group, cluster, name)
    return store_exclusion(
        cluster=cluster,
        host=name,
        reason=reason.strip(),
        by=by,
        at=at,
        expires_at=expires_at,
        evidence=evidence,
    )


def _as_text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _expiry_problems(expires_at: datetime, at: datetime) -> dict[str, list[str]]:
    if expires_at <= at:
        return {"expires_at": ["Choose a time in the future."]}
    if expires_at > at + timedelta(days=MOST_DAYS):
        return {"expires_at": [f"Choose a time within {MOST_DAYS} days."]}
    return {}


def _evidence_of(group: FailureGroup, cluster: Cluster, host: str) -> ExclusionEvidence | None:
    """Return the evidence of an exclusion by hand; None if the group is not about this host."""
    if group.cluster_id != cluster.pk or group.host != host:
        return None
    failed = group.verdicts.count()
    return ExclusionEvidence(failed, 0, group.first_seen_at, group.last_seen_at, group)


def lock_cluster(cluster: Cluster) -> None:
    """Let one transaction at a time decide about the hosts of a cluster."""
    Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)


def store_exclusion(
    *,
    cluster: Cluster,
    host: str,
    reason: str,
    by: Principal,
    at: datetime,
    expires_at: datetime,
    evidence: ExclusionEvidence | None,
    automatic: bool = False,
) -> HostExclusion:
    """Store an exclusion, in the transaction of the caller, which holds `lock_cluster`."""
    overdue = HostExclusion.objects.filter(cluster=cluster, host=host, ended_at=None)
    for exclusion in overdue.filter(expires_at__lte=at).select_for_update(of=("self",)):
        _end_expired(exclusion, at)

    exclusion = HostExclusion(
        cluster=cluster,
        host=host,
        reason=reason,
        automatic=automatic,
        by=str(by)[:150],
        started_at=at,
        expires_at=expires_at,
    )
    if evidence:
        exclusion.failed_jobs = evidence.failed
        exclusion.ended_jobs = evidence.ended or None
        exclusion.evidence_from = evidence.since
        exclusion.evidence_until = evidence.until
        exclusion.group = evidence.group
    exclusion.save()
    data = {"cluster": cluster.name, "host": host, "until": _as_text(expires_at)}
    publish(kind="host.excluded", target=exclusion, by=by, at=at, reason=reason, data=data)
    return exclusion


@transaction.atomic
def extend_exclusion(
    *,
    exclusion: HostExclusion,
    expires_at: datetime,
    by: Principal,
    at: datetime,
    reason: str = "",
) -> HostExclusion:
    """Let an open exclusion expire at another time, later or earlier.

    Raises `NotAllowed`, `InvalidFields`, and `StaleState` if it has ended.
    """
    require_host_role(by, "extend exclusions of hosts")
    problems = reason_problems(reason, needed=False) | _expiry_problems(expires_at, at)
    if problems:
        raise InvalidFields(problems)
    locked = _locked_open(exclusion, at)
    old = locked.expires_at
    locked.expires_at = expires_at
    locked.save(update_fields=["expires_at"])
    publish(
        kind="host.extended",
        target=locked,
        by=by,
        at=at,
        old=_as_text(old),
        new=_as_text(expires_at),
        reason=reason.strip(),
        data={"cluster": locked.cluster.name, "host": locked.host},
    )
    return locked


@transaction.atomic
def return_host(
    *, exclusion: HostExclusion, by: Principal, at: datetime, reason: str
) -> HostExclusion:
    """Let a host get new jobs again.

    The jobs that started before do not exclude it again. Raises `NotAllowed`, `InvalidFields`, and
    `StaleState` if the exclusion has ended.
    """
    require_host_role(by, "return hosts")
    checked_reason(reason)
    locked = _locked_open(exclusion, at)
    end_exclusion(locked, EndKind.RETURNED, by=by, at=at, reason=reason.strip())
    return locked


def _locked_open(exclusion: HostExclusion, at: datetime) -> HostExclusion:
    """Lock an exclusion and return it as it is stored. Raises `StaleState` if it has ended."""
    exclusions = HostExclusion.objects.select_for_update(of=("self",)).select_related("cluster")
    locked = exclusions.get(pk=exclusion.pk)
    if not locked.is_in_effect(at):
        raise StaleState(f"The exclusion of {locked} has already ended.")
    return locked


def end_exclusion(
    exclusion: HostExclusion, end: EndKind, *, by: Principal, at: datetime, reason: str
) -> None:
    """End a locked exclusion, in the transaction of the caller."""
    exclusion.ended_at = at
    exclusion.ended_as = end
    exclusion.ended_by = str(by)[:150]
    exclusion.end_reason = reason
    exclusion.save(update_fields=["ended_at", "ended_as", "ended_by", "end_reason"])
    kind = "host.expired" if end == EndKind.EXPIRED else "host.returned"
    data = {"cluster": exclusion.cluster.name, "host": exclusion.host, "as": end.value}
    publish(kind=kind, target=exclusion, by=by, at=at, reason=reason, data=data)


def _end_expired(exclusion: HostExclusion, at: datetime) -> None:
    end_exclusion(exclusion, EndKind.EXPIRED, by=PORTAL, at=at, reason="")


def end_expired_exclusions(*, at: datetime) -> int:
    """End the open exclusions that have expired; return how many."""
    expired = HostExclusion.objects.filter(ended_at=None, expires_at__lte=at)
    ended = 0
    for pk in expired.values_list("pk", flat=True):
        with transaction.atomic():
            locked = expired.select_for_update(of=("self",), skip_locked=True)
            exclusion = locked.select_related("cluster").filter(pk=pk).first()
            if exclusion is not None:
                _end_expired(exclusion, at)
                ended += 1
    return ended


def open_exclusions(at: datetime) -> HostExclusionQuerySet:
    """Return the exclusions in effect at `at`, newest first."""
    return list_exclusions().in_effect(at)


def list_exclusions() -> HostExclusionQuerySet:
    """Return all exclusions, newest first. All users may see which hosts get no jobs."""
    return HostExclusion.objects.select_related("cluster", "group")


def exclusions_of(host: str) -> QuerySet[HostExclusion]:
    """Return all exclusions of a host, given with or without its domain, newest first."""
    return list_exclusions().filter(host=short_name(host))


def open_central_causes() -> QuerySet[CentralCause]:
    """Return the clusters on which too many hosts fail to exclude any, newest first."""
    causes = CentralCause.objects.filter(ended_at=None)
    return causes.select_related("cluster", "incident", "announcement")


def count_by_cluster(at: datetime) -> list[tuple[str, int]]:
    """Return the clusters with excluded hosts, and the number of these, by name."""
    counts = open_exclusions(at).order_by("cluster__name").values_list("cluster__name")
    return list(counts.annotate(hosts=Count("pk")))
