"""Capture hosts: their tokens, and the jobs and reports received from them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.accounts.models import Principal
from apps.archive.domain.intake import accept_batch
from apps.archive.models import CaptureHost
from apps.core.domain.events import publish
from apps.core.domain.health import beat_capture
from apps.core.domain.tokens import hash_of, new_token
from apps.core.errors import NotAllowed
from capture.wire.batches import pack, states_its_size
from capture.wire.entry import CapturedJob
from capture.wire.report import CaptureReport


@transaction.atomic
def create_capture_host(
    *,
    name: str,
    clusters: Sequence[str],
    by: Principal,
    at: datetime,
    trusted: bool = False,
    beside_portal: bool = False,
) -> tuple[CaptureHost, str]:
    """Create a host that may send jobs of these clusters; return it with its token.

    Raises `ValidationError`.
    """
    host = CaptureHost(
        name=name, clusters=list(clusters), trusted=trusted, beside_portal=beside_portal
    )
    host.full_clean()
    host.save()
    data = {"clusters": host.clusters, "trusted": host.trusted}
    publish(kind="capture_host.created", target=host, by=by, at=at, data=data)
    return host, add_host_token(host=host, by=by, at=at)


@transaction.atomic
def change_capture_host(*, host: CaptureHost, by: Principal, at: datetime) -> None:
    """Save changed clusters and trust of a host. Raises `ValidationError`."""
    host.full_clean()
    host.save(update_fields=["clusters", "trusted"])
    data = {"clusters": host.clusters, "trusted": host.trusted}
    publish(kind="capture_host.changed", target=host, by=by, at=at, data=data)


@transaction.atomic
def add_host_token(
    *, host: CaptureHost, by: Principal, at: datetime, revoke_others: bool = False
) -> str:
    """Add a token to a host, or replace all others by it; return it.

    Only its hash is stored.
    """
    token = new_token()
    locked = CaptureHost.objects.select_for_update(no_key=True).get(pk=host.pk)
    locked.token_hashes = [hash_of(token), *([] if revoke_others else locked.token_hashes)]
    locked.save(update_fields=["token_hashes"])
    publish(
        kind="capture_host.token_added",
        target=locked,
        by=by,
        at=at,
        data={"revoked_others": revoke_others},
    )
    return token


@transaction.atomic
def add_token_beside_portal(*, name: str, cluster: str, by: Principal, at: datetime) -> str:
    """Return a new token for capture beside the portal, on a machine of this name.

    The host is trusted, since the caller has access to the portal's database, until an admin
    withdraws that. Another host of the same name is not changed. Raises `ValidationError`.
    """
    names = [name, f"{name}-portal"]
    hosts = CaptureHost.objects.select_for_update(no_key=True).filter(name__in=names)
    known = {host.name: host for host in hosts}
    for host in known.values():
        if host.beside_portal:
            if cluster not in host.clusters:
                host.clusters.append(cluster)
                change_capture_host(host=host, by=by, at=at)
            return add_host_token(host=host, by=by, at=at)

    _, token = create_capture_host(
        name=names[1] if name in known else name,
        clusters=[cluster],
        trusted=True,
        beside_portal=True,
        by=by,
        at=at,
    )
    return token


@transaction.atomic
def revoke_host_tokens(
    *, host: CaptureHost, by: Principal, at: datetime, keep_newest: bool = False
) -> None:
    """Revoke the tokens of a host: all of them, or all but the one that was added last."""
    row = CaptureHost.objects.select_for_update(no_key=True).get(pk=host.pk)
    row.token_hashes = row.token_hashes[:1] if keep_newest else []
    row.save(update_fields=["token_hashes"])
    data = {"kept_newest": keep_newest}
    publish(kind="capture_host.tokens_revoked", target=row, by=by, at=at, data=data)


def trusted_hosts() -> frozenset[str]:
    """Return the senders whose captures may be run again as the owners of the jobs.

    The empty sender stands for capture beside the portal.
    """
    names = CaptureHost.objects.filter(trusted=True).values_list("name", flat=True)
    return frozenset({"", *names})


def host_of(token: str) -> CaptureHost | None:
    return CaptureHost.objects.filter(token_hashes__contains=[hash_of(token)]).first()


@transaction.atomic
def receive_batch(
    *,
    host: CaptureHost,
    cluster: str,
    journal: UUID,
    sequence: int,
    jobs: Sequence[CapturedJob],
    content: bytes,
    at: datetime,
) -> bool:
    """Store jobs that a host has sent, for the workers; return whether they are new.

    Each job gets the host as its sender, whatever the batch says; jobs of a trusted host beside the
    portal get an empty one. `content` is the batch as it came. It is stored unchanged if its jobs
    have that sender: packing them again would cost as much as checking them. See `accept_batch`.
    Raises `IntakeFull`, and `NotAllowed` if a job is from a cluster that is not the host's.
    """
    _check_clusters(host, {cluster, *(job.cluster for job in jobs)})
    CaptureHost.objects.filter(pk=host.pk).update(heard_at=at)
    sender = "" if host.beside_portal and host.trusted else host.name
    is_marked = all(job.sender == sender for job in jobs)
    if not (is_marked and states_its_size(content)):
        content = pack(replace(job, sender=sender) for job in jobs)
    return accept_batch(
        cluster=cluster,
        host=host.name,
        journal=journal,
        sequence=sequence,
        jobs=len(jobs),
        size_bytes=sum(job.size_bytes for job in jobs),
        captured_at=min(job.captured_at for job in jobs),
        data=content,
    )


@transaction.atomic
def receive_report(*, host: CaptureHost, cluster: str, report: CaptureReport, at: datetime) -> None:
    """Show the report of a capture on the health page.

    Raises `NotAllowed` for a cluster that is not the host's.
    """
    _check_clusters(host, {cluster})
    beat_capture(cluster=cluster, host=host.name, at=at, detail=report.as_detail())
    CaptureHost.objects.filter(pk=host.pk).update(heard_at=at)


def _check_clusters(host: CaptureHost, clusters: set[str]) -> None:
    if foreign := clusters - set(host.clusters):
        allowed = ", ".join(host.clusters)
        raise NotAllowed(
            f"The token of {host} is valid for {allowed}, not for {min(foreign)[:64]!r}."
        )
