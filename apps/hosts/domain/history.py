"""When a host was up, drained, down or rebooted: spans of the states that schedulers list.

A worker lists the hosts of a cluster every 15 minutes. A look that fails stores nothing, so that a
span stays open, with the time at which it was last seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, QuerySet

from apps.clusters.models import Cluster, Host
from apps.core.domain.locks import lock_for_this_transaction
from apps.hosts.domain.known_hosts import short_name
from apps.hosts.models import HostSpan

#: Spans that ended longer ago are deleted.
KEPT = timedelta(days=400)
#: The state of a host is unknown this long after the last look; looks come every 15 minutes.
UNKNOWN_AFTER = timedelta(hours=1)
#: The scheduler reckons the time of a boot from the uptime, so that it varies by seconds.
_SAME_BOOT = timedelta(minutes=2)
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a host that a scheduler reported; `booted_at` is None if not reported."""

    state: str
    words: str = ""
    reason: str = ""
    booted_at: datetime | None = None


def follow_host_states() -> int:
    """Store the newest look at each cluster's hosts; return how many spans began."""
    newest = Host.objects.exclude(state="").order_by().values("cluster")
    looked_at = dict(newest.annotate(at=Max("listed_at")).values_list("cluster", "at"))
    begun = 0
    for cluster in Cluster.objects.in_bulk(list(looked_at)).values():
        at = looked_at[cluster.pk]
        if not _was_seen(cluster, at):
            begun += store_looks(cluster=cluster, looks=_looks_of(cluster, at), at=at)
    return begun


def _was_seen(cluster: Cluster, at: datetime) -> bool:
    return HostSpan.objects.filter(cluster=cluster, until=None, seen_at__gte=at).exists()


def _looks_of(cluster: Cluster, at: datetime) -> Mapping[str, Look]:
    hosts = Host.objects.filter(cluster=cluster, listed_at=at).exclude(state="").order_by("name")
    looks = {}
    for host in hosts:
        looks[short_name(host.name)] = Look(
            host.state, host.state_words, host.reason, host.booted_at
        )
    return looks


@transaction.atomic
def store_looks(*, cluster: Cluster, looks: Mapping[str, Look], at: datetime) -> int:
    """Open and close the spans of hosts, by short name, as a look at `at` says.

    Return how many spans began. A look that is not newer than the last one changes nothing. The
    spans of hosts that it does not have stay as they are.
    """
    lock_for_this_transaction(f"host spans of {cluster.pk}")
    if _was_seen(cluster, at):
        return 0
    spans = {span.host: span for span in HostSpan.objects.filter(cluster=cluster, until=None)}
    same = []
    ended = []
    begun = []
    learned = []
    for host, look in looks.items():
        span = spans.get(host)
        if span is not None and _continues(span, look):
            same.append(span.pk)
            if span.booted_at is None and look.booted_at is not None:
                span.booted_at = look.booted_at
                learned.append(span)
            continue
        if span is not None:
            ended.append(span.pk)
        begun.append(_span(cluster, host, look, at, before=span))
    HostSpan.objects.filter(pk__in=same).update(seen_at=at)
    HostSpan.objects.bulk_update(learned, ["booted_at"], batch_size=_BATCH)
    HostSpan.objects.filter(pk__in=ended).update(until=at)
    HostSpan.objects.bulk_create(begun, batch_size=_BATCH)
    return len(begun)


def _continues(span: HostSpan, look: Look) -> bool:
    is_alike = (span.state, span.reason) == (look.state, look.reason)
    return is_alike and not _is_new_boot(span, look)


def _is_new_boot(span: HostSpan | None, look: Look) -> bool:
    if span is None or span.booted_at is None or look.booted_at is None:
        return False
    return look.booted_at > span.booted_at + _SAME_BOOT


def _span(
    cluster: Cluster, host: str, look: Look, at: datetime, *, before: HostSpan | None
) -> HostSpan:
    """Return a new span. Without a reported boot time, it keeps the one of the previous span."""
    rebooted = _is_new_boot(before, look)
    booted_at = look.booted_at
    if before is not None and before.booted_at is not None and not rebooted:
        booted_at = before.booted_at
    return HostSpan(
        cluster=cluster,
        host=host,
        state=look.state,
        words=look.words,
        reason=look.reason,
        booted_at=booted_at,
        rebooted=rebooted,
        since=at,
        seen_at=at,
    )


def host_spans() -> QuerySet[HostSpan]:
    """Return all spans with their clusters, newest first."""
    return HostSpan.objects.select_related("cluster").order_by("-since", "-pk")


def forget_host_spans(*, at: datetime) -> int:
    """Delete spans that ended longer ago than `KEPT`; return their number."""
    deleted, _ = HostSpan.objects.filter(until__lt=at - KEPT).delete()
    return deleted
