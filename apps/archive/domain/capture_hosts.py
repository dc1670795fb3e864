"""Hosts that capture without the portal's database: their tokens, and taking the jobs and reports that they send."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import DataError, IntegrityError, transaction

from apps.accounts.models import Principal
from apps.archive.domain.intake import accept_batch
from apps.archive.domain.store.jobs import store_jobs, train_dictionaries
from apps.archive.models import CaptureHost
from apps.archive.wire.batches import pack
from apps.archive.wire.entry import CapturedJob
from apps.archive.wire.report import CaptureReport
from apps.core.domain.events import publish
from apps.core.domain.health import beat_capture
from apps.core.domain.tokens import hash_of, new_token
from apps.core.errors import NotAllowed

_NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # PostgreSQL cannot store it
_LENGTHS = {"job_id": 64, "request_key": 64, "stage": 64, "scheduler": 32}


@transaction.atomic
def create_capture_host(*, name: str, clusters: Sequence[str], by: Principal, at: datetime) -> tuple[CaptureHost, str]:
    """Make a host that may send jobs of these clusters; return it with its token. Raises `ValidationError`."""
    host = CaptureHost(name=name, clusters=list(clusters))
    host.full_clean()
    host.save()
    publish(kind="capture_host.created", target=host, by=by, at=at, data={"clusters": host.clusters})
    return host, add_host_token(host=host, by=by, at=at)


@transaction.atomic
def change_capture_host(*, host: CaptureHost, by: Principal, at: datetime) -> None:
    """Keep the clusters of a host that were changed. Raises `ValidationError`."""
    host.full_clean()
    host.save(update_fields=["clusters"])
    publish(kind="capture_host.changed", target=host, by=by, at=at, data={"clusters": host.clusters})


@transaction.atomic
def add_host_token(*, host: CaptureHost, by: Principal, at: datetime, revoke_others: bool = False) -> str:
    """Give a host one more token, or one instead of all others; return it: only its hash is kept."""
    token = new_token()
    row = CaptureHost.objects.select_for_update(no_key=True).get(pk=host.pk)
    row.token_hashes = [hash_of(token), *([] if revoke_others else row.token_hashes)]
    row.save(update_fields=["token_hashes"])
    publish(kind="capture_host.token_added", target=row, by=by, at=at, data={"revoked_others": revoke_others})
    return token


@transaction.atomic
def revoke_host_tokens(*, host: CaptureHost, by: Principal, at: datetime) -> None:
    CaptureHost.objects.filter(pk=host.pk).update(token_hashes=[])
    publish(kind="capture_host.tokens_revoked", target=host, by=by, at=at)


def host_of(token: str) -> CaptureHost | None:
    return CaptureHost.objects.filter(token_hashes__contains=[hash_of(token)]).first()


@transaction.atomic
def receive_jobs(*, host: CaptureHost, jobs: Sequence[CapturedJob], at: datetime) -> dict[int, str]:
    """Keep jobs that a host has sent, all in one transaction; return the reasons for those not kept, by index.

    Raises `NotAllowed` where one is of a cluster that is not the host's. Jobs that are here already change nothing.
    """
    _check_clusters(host, {job.cluster for job in jobs})
    refused = {index: reason for index, job in enumerate(jobs) if (reason := _unfit(job))}
    fit = {index: job for index, job in enumerate(jobs) if index not in refused}
    if _stored(host, list(fit.values()), at):
        refused |= {index: why for index, job in fit.items() if (why := _stored(host, [job], at))}
    train_dictionaries(at=at)
    CaptureHost.objects.filter(pk=host.pk).update(heard_at=at)
    return refused


@transaction.atomic
def receive_batch(
    *, host: CaptureHost, cluster: str, journal: UUID, sequence: int, jobs: Sequence[CapturedJob], at: datetime
) -> bool:
    """Keep jobs that a host has sent for the workers; return whether they are new. See `insert_batch`.

    Raises `IntakeFull`, and `NotAllowed` where one is of a cluster that is not the host's.
    """
    _check_clusters(host, {cluster, *(job.cluster for job in jobs)})
    CaptureHost.objects.filter(pk=host.pk).update(heard_at=at)
    return accept_batch(
        cluster=cluster,
        host=host.name,
        journal=journal,
        sequence=sequence,
        jobs=len(jobs),
        size_bytes=sum(job.size_bytes for job in jobs),
        captured_at=min(job.captured_at for job in jobs),
        data=pack(jobs),
    )


@transaction.atomic
def receive_report(*, host: CaptureHost, cluster: str, report: CaptureReport, at: datetime) -> None:
    """Show on the health page what a capture says of itself. Raises `NotAllowed` for a cluster of others."""
    _check_clusters(host, {cluster})
    beat_capture(cluster=cluster, host=host.name, at=at, detail=report.as_detail())
    CaptureHost.objects.filter(pk=host.pk).update(heard_at=at)


def _check_clusters(host: CaptureHost, clusters: set[str]) -> None:
    if foreign := clusters - set(host.clusters):
        allowed = ", ".join(host.clusters)
        raise NotAllowed(f"The token of {host} is valid for {allowed}, not for {min(foreign)[:64]!r}.")


def _stored(host: CaptureHost, jobs: Sequence[CapturedJob], at: datetime) -> str:
    """Store jobs, all or none. Returns why they cannot be stored, or an empty text."""
    try:
        store_jobs(jobs=jobs, by=f"capture host {host}", at=at)
    except (DataError, IntegrityError) as error:
        return str(error).strip() or type(error).__name__
    return ""


def _unfit(job: CapturedJob) -> str:
    texts: Mapping[str, str] = {
        name: getattr(job, name) for name in (*_LENGTHS, "arguments", "user", "account", "name", "caveat")
    }
    if not job.job_id:
        return "it has no job id"
    for name, text in [*texts.items(), *(("masked_names", masked) for masked in job.masked_names)]:
        if _NOT_TEXT.search(text):
            return f"its {name} holds what is no text"
        if len(text) > _LENGTHS.get(name, len(text)):
            return f"its {name} is longer than {_LENGTHS[name]} characters"
    return ""
