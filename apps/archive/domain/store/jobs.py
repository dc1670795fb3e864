"""Store captured jobs. Storing the same job again changes nothing."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Max
from psycopg.types.json import Jsonb

from apps.accounts.models import Experiment, Principal
from apps.archive.domain.store import compression
from apps.archive.domain.store.conflicts import CapturedContents, hash_arguments, mark_conflicts
from apps.archive.domain.store.contents import DamagedContent, read_blob
from apps.archive.enums import BlobKind
from apps.archive.models import ArchivedJob, Blob, Dictionary
from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Cluster
from apps.core.domain import bulk
from apps.core.domain.events import publish
from apps.core.domain.locks import lock_for_this_transaction
from apps.jobs.domain.records.jobs import jobs_in_spool
from capture.wire.entry import CapturedJob

#: Dictionaries are trained once there are this many contents, and again when their number has grown
#: by the factor GROWTH.
TRAIN_AT = 400
GROWTH = 10
_SAMPLES = 2_000
_SAMPLE_BYTES = 64 * 1024
_SAMPLES_BYTES = 3 * 1024 * 1024

Key = tuple[str, datetime]


@transaction.atomic
def store_jobs(*, jobs: Sequence[CapturedJob], by: Principal, at: datetime) -> int:
    """Store captured jobs of any clusters; return how many were new.

    Clusters that are not known yet are created. Publishes `archive.stored` with the new jobs that
    may have to be linked to job records: those that name a request, and those that accounting
    already has.
    """
    hashed_jobs = [_Hashed(job) for job in jobs]
    # Compress before taking the lock, for which other workers wait.
    packed = _packed(_contents(hashed_jobs))
    # No other worker may store the same jobs meanwhile.
    lock_for_this_transaction("archive.store")

    jobs_by_cluster: dict[str, list[_Hashed]] = {}
    for hashed in hashed_jobs:
        jobs_by_cluster.setdefault(hashed.job.cluster, []).append(hashed)
    stored = 0
    for name, of_cluster in jobs_by_cluster.items():
        cluster = ensure_cluster(name=name, scheduler=of_cluster[0].job.scheduler, by=by, at=at)
        new, captured_again = _new_jobs(cluster, of_cluster)
        if new:
            _insert_jobs(cluster, new, packed)
        captures = [hashed.capture for hashed in captured_again]
        mark_conflicts(cluster=cluster, captures=captures, by=by, at=at)
        if new:
            stored += len(new)
            _publish_stored(cluster, new, by, at)
    return stored


def _insert_jobs(
    cluster: Cluster,
    jobs: Sequence["_Hashed"],
    packed: Mapping[bytes, "_PackedContent"],
) -> None:
    """Insert new jobs of a cluster, and their contents where these are not stored yet."""
    contents = _store_contents(jobs, packed)
    experiments = _experiments({hashed.job.request_key for hashed in jobs} - {""})
    rows = [_job_row(cluster, hashed, contents, experiments) for hashed in jobs]
    columns = list(rows[0])
    bulk.copy_rows(ArchivedJob, columns, (tuple(row.values()) for row in rows))


def _publish_stored(
    cluster: Cluster, jobs: Iterable["_Hashed"], by: Principal, at: datetime
) -> None:
    """Publish `archive.stored` with the jobs that may have to be linked, if there are any."""
    job_ids = set()
    without_request = []
    for hashed in jobs:
        if hashed.job.request_key:
            job_ids.add(hashed.job.job_id)
        else:
            without_request.append(hashed.job.job_id)
    collected = jobs_in_spool(cluster_id=cluster.pk, spool_ids=without_request)
    job_ids.update(collected.values_list("spool_id", flat=True))
    if job_ids:
        data = {"job_ids": sorted(job_ids)}
        publish(kind="archive.stored", target=cluster, by=by, at=at, data=data)


@transaction.atomic
def train_dictionaries(*, at: datetime) -> list[Dictionary]:
    """Train a dictionary for each kind of content that has become frequent enough.

    Return the new dictionaries. Stored contents stay as they are and readable; later contents use
    the newest dictionary.
    """
    newest = Blob.objects.aggregate(newest=Max("pk"))["newest"] or 0
    last = Dictionary.objects.aggregate(last=Max("newest_content"))["last"]
    if newest < (TRAIN_AT if last is None else last * GROWTH):
        return []
    trained = []
    for kind in BlobKind:
        if data := compression.train_dictionary_on(_samples(kind, newest)):
            dictionary = Dictionary(kind=kind, data=data, trained_at=at, newest_content=newest)
            dictionary.save()
            trained.append(dictionary)
    return trained


def _new_jobs(
    cluster: Cluster, jobs: Sequence["_Hashed"]
) -> tuple[list["_Hashed"], list["_Hashed"]]:
    """Return the jobs to store, and those whose ID was captured before."""
    by_key: dict[Key, _Hashed] = {}
    captures = Counter(hashed.job.job_id for hashed in jobs)
    for hashed in jobs:
        by_key.setdefault((hashed.job.job_id, hashed.job.submitted_at), hashed)
    for job_id, submitted_at in bulk.rows_where_any(
        ArchivedJob, ["job_id", "submitted_at"], "job_id", list(captures), cluster_id=cluster.pk
    ):
        by_key.pop((job_id, submitted_at), None)
        captures[job_id] += 1
    captured_again = [hashed for hashed in jobs if captures[hashed.job.job_id] > 1]
    return list(by_key.values()), captured_again


class _Hashed:
    """A job with the hashes of its contents, computed once."""

    __slots__ = ("description", "environment", "job", "script")

    def __init__(self, job: CapturedJob) -> None:
        self.job = job
        self.script = _sha256(job.script)
        self.environment = _sha256(job.environment)
        self.description = None
        if job.description:
            self.description = _sha256(job.description)

    @property
    def capture(self) -> CapturedContents:
        job = self.job
        return CapturedContents(
            job.job_id,
            job.submitted_at,
            self.script,
            self.environment,
            hash_arguments(job.arguments),
            job.sender,
        )

    def contents(self) -> Iterator[tuple[bytes, tuple[BlobKind, bytes]]]:
        yield self.script, (BlobKind.SCRIPT, self.job.script)
        yield self.environment, (BlobKind.ENVIRONMENT, self.job.environment)
        if self.description:
            yield self.description, (BlobKind.DESCRIPTION, self.job.description)


class _PackedContent(NamedTuple):
    """A compressed content: columns of `Blob`. `size_bytes` is its size before."""

    kind: str
    size_bytes: int
    data: bytes
    dictionary_id: int | None


def _contents(jobs: Sequence[_Hashed]) -> dict[bytes, tuple[BlobKind, bytes]]:
    """Return the contents of jobs by hash."""
    contents: dict[bytes, tuple[BlobKind, bytes]] = {}
    for hashed in jobs:
        contents.update(hashed.contents())
    return contents


def _stored_keys(contents: Iterable[bytes]) -> dict[bytes, int]:
    """Return the primary keys of stored contents by hash."""
    keys = {}
    for sha256, key in bulk.rows_where_any(Blob, ["sha256", "id"], "sha256", list(contents)):
        keys[bytes(sha256)] = key
    return keys


def _packed(
    contents: Mapping[bytes, tuple[BlobKind, bytes]],
) -> dict[bytes, "_PackedContent"]:
    """Compress the contents that are not stored yet; return them by hash."""
    known = _stored_keys(contents)
    newest_dictionaries = dict(Dictionary.objects.order_by("pk").values_list("kind", "pk"))
    packed = {}
    for sha256, (kind, content) in contents.items():
        if sha256 not in known:
            dictionary_pk = newest_dictionaries.get(kind)
            packed[sha256] = _PackedContent(
                kind=kind.value,
                size_bytes=len(content),
                data=_compressor(dictionary_pk).compress(content),
                dictionary_id=dictionary_pk,
            )
    return packed


def _store_contents(
    jobs: Sequence[_Hashed], packed: Mapping[bytes, "_PackedContent"]
) -> dict[bytes, int]:
    """Store missing contents; return the primary keys of all contents by hash."""
    contents = _contents(jobs)
    known = _stored_keys(contents)
    missing = [sha256 for sha256 in contents if sha256 not in known]
    if not missing:
        return known

    # Contents that were stored when the others were packed, and deleted since.
    expired = {sha256: contents[sha256] for sha256 in missing if sha256 not in packed}
    if expired:
        packed = {**packed, **_packed(expired)}
    new_keys = dict(zip(missing, bulk.next_keys(Blob, len(missing)), strict=True))
    columns = ["id", "sha256", *_PackedContent._fields]
    rows = ((key, sha256, *packed[sha256]) for sha256, key in new_keys.items())
    bulk.copy_rows(Blob, columns, rows)
    return known | new_keys


def _job_row(
    cluster: Cluster,
    hashed: _Hashed,
    contents: Mapping[bytes, int],
    experiments: Mapping[str, Experiment],
) -> dict[str, Any]:
    job = hashed.job
    experiment = experiments.get(job.request_key)
    return {
        "cluster_id": cluster.pk,
        "job_id": job.job_id,
        "submitted_at": job.submitted_at,
        "script_id": contents[hashed.script],
        "environment_id": contents[hashed.environment],
        "description_id": contents[hashed.description] if hashed.description else None,
        "script_bytes": len(job.script),
        "environment_bytes": len(job.environment),
        "captured_at": job.captured_at,
        "request_key": job.request_key,
        "stage": job.stage,
        "experiment_id": experiment.pk if experiment else None,
        "masked_names": Jsonb(list(job.masked_names)),
        "user": job.user[:64],
        "account": job.account[:64],
        "name": job.name[:200],
        "arguments": job.arguments,
        "caveat": job.caveat[:200],
        "sender": job.sender,
    }


def _experiments(request_keys: set[str]) -> dict[str, Experiment]:
    """Return the experiments of requests by request key, which starts with the experiment's key."""
    if not request_keys:
        return {}

    by_key = {experiment.key.casefold(): experiment for experiment in Experiment.objects.all()}
    experiments = {}
    for request_key in request_keys:
        experiment = by_key.get(request_key.rpartition("-")[0].casefold())
        if experiment:
            experiments[request_key] = experiment
    return experiments


@lru_cache(maxsize=6)
def _compressor(dictionary_pk: int | None) -> compression.Compressor:
    """Return a compressor; cached, because dictionaries never change and take time to prepare."""
    if dictionary_pk is None:
        return compression.Compressor(None)
    return compression.Compressor(
        compression.load_dictionary(bytes(Dictionary.objects.get(pk=dictionary_pk).data))
    )


def _samples(kind: BlobKind, newest: int) -> list[bytes]:
    """Return some of the newest contents of a kind."""
    blobs = Blob.objects.filter(
        kind=kind, size_bytes__lte=_SAMPLE_BYTES, pk__gt=newest - 4 * _SAMPLES
    )
    samples: list[bytes] = []
    size = 0
    for blob in blobs.order_by("sha256")[:_SAMPLES].iterator(chunk_size=100):
        with suppress(DamagedContent):  # `archive verify` reports it; no reason to refuse new jobs
            samples.append(read_blob(blob))
            size += blob.size_bytes
        if size > _SAMPLES_BYTES:
            break
    return samples


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
