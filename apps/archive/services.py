"""Keeping captured jobs. Storing the same job again changes nothing."""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from django.db import transaction

from apps.accounts.models import Experiment
from apps.archive import compression
from apps.archive.capture.entry import CapturedJob
from apps.archive.enums import BlobKind
from apps.archive.models import ArchivedJob, Blob, Dictionary
from apps.archive.selectors import DamagedContent, archived_jobs_for, read_blob
from apps.clusters.models import Cluster
from apps.clusters.services import ensure_cluster
from apps.core.services import publish
from apps.jobs.models import Job
from apps.jobs.selectors import jobs_in_spool
from apps.jobs.services import attach_origin

#: A dictionary is trained when there are so many contents of a kind, and again when there are typical ones in plenty.
TRAIN_AT = (500, 20_000)
_SAMPLES = 2_000
_SAMPLE_BYTES = 64 * 1024

Key = tuple[str, datetime]


@transaction.atomic
def store_jobs(*, jobs: Sequence[CapturedJob], by: object, at: datetime) -> int:
    """Keep captured jobs of any clusters; return how many were new. Clusters not known yet are made.

    Publishes `archive.stored` with the new jobs that may have to be tied to jobs of accounting: those that name a
    request, and those that are in accounting already.
    """
    stored = 0
    for name in dict.fromkeys(job.cluster for job in jobs):
        of_cluster = [job for job in jobs if job.cluster == name]
        cluster = ensure_cluster(name=name, scheduler=of_cluster[0].scheduler, by=by, at=at)
        new = _new_jobs(cluster, of_cluster)
        _store_rows(cluster, new, contents=_store_contents(new))
        stored += len(new)
        told = {job.job_id for job in new if job.request_key}
        rest = [job.job_id for job in new if not job.request_key]
        told.update(jobs_in_spool(cluster_id=cluster.pk, spool_ids=rest).values_list("spool_id", flat=True))
        if told:
            publish(kind="archive.stored", target=cluster, by=by, at=at, data={"job_ids": sorted(told)})
    return stored


@transaction.atomic
def link_jobs(*, jobs: Iterable[Job], at: datetime) -> int:
    """Tie jobs of accounting to what was captured of them; return for how many there is something.

    Request and stage of the environment go to the job; the job's experiment goes to the archive, where accounting's
    word is worth more than the environment's.
    """
    captured = archived_jobs_for(jobs)
    origins = {pk: (row.request_key, row.stage) for pk, row in captured.items() if row.request_key}
    attach_origin(origins=origins, at=at)
    experiments = dict(Job.objects.filter(pk__in=captured).values_list("pk", "experiment_id"))
    changed = {}
    for pk, row in captured.items():
        if experiments.get(pk) not in (None, row.experiment_id):
            row.experiment_id = experiments[pk]
            changed[row.pk] = row
    ArchivedJob.objects.bulk_update(changed.values(), ["experiment"], batch_size=1000)
    return len(captured)


@transaction.atomic
def train_dictionaries(*, at: datetime) -> list[Dictionary]:
    """Train a dictionary for each kind of content that has become frequent enough; return the new ones.

    What is stored already stays as it is and readable; what comes later takes the newest dictionary.
    """
    trained = []
    for kind in BlobKind:
        done = Dictionary.objects.filter(kind=kind).count()
        if done < len(TRAIN_AT) and _has_contents(kind, TRAIN_AT[done]):
            data = compression.train(_samples(kind))
            if data:
                trained.append(Dictionary.objects.create(kind=kind, data=data, trained_at=at))
    return trained


def _new_jobs(cluster: Cluster, jobs: Sequence[CapturedJob]) -> list[CapturedJob]:
    by_key: dict[Key, CapturedJob] = {}
    for job in jobs:
        by_key.setdefault((job.job_id, job.submitted_at), job)
    known = ArchivedJob.objects.filter(cluster=cluster, job_id__in={job_id for job_id, _ in by_key})
    for key in known.values_list("job_id", "submitted_at"):
        by_key.pop(key, None)
    return list(by_key.values())


def _store_contents(jobs: Sequence[CapturedJob]) -> dict[bytes, int]:
    """Store what is not there yet, in the order of the hashes, so that two captures at once cannot block each other.

    Return the contents' primary keys by their hashes.
    """
    contents: dict[bytes, tuple[BlobKind, bytes]] = {}
    for job in jobs:
        contents[_sha256(job.script)] = (BlobKind.SCRIPT, job.script)
        contents[_sha256(job.environment)] = (BlobKind.ENVIRONMENT, job.environment)
        if job.description:
            contents[_sha256(job.description)] = (BlobKind.DESCRIPTION, job.description)
    known = _blob_ids(contents)
    missing = sorted(contents.keys() - known.keys())
    if not missing:
        return known
    packers = {kind: _compressor(kind) for kind in BlobKind}
    rows = []
    for sha256 in missing:
        kind, content = contents[sha256]
        dictionary, compressor = packers[kind]
        data = compressor.compress(content)
        rows.append(Blob(sha256=sha256, kind=kind, size_bytes=len(content), data=data, dictionary=dictionary))
    Blob.objects.bulk_create(rows, ignore_conflicts=True)
    return known | _blob_ids(missing)


def _blob_ids(hashes: Iterable[bytes]) -> dict[bytes, int]:
    found = Blob.objects.filter(sha256__in=list(hashes)).values_list("sha256", "pk")
    return {bytes(sha256): pk for sha256, pk in found}


def _store_rows(cluster: Cluster, jobs: Sequence[CapturedJob], *, contents: dict[bytes, int]) -> None:
    experiments = _experiments({job.request_key for job in jobs if job.request_key})
    rows = [
        ArchivedJob(
            cluster=cluster,
            job_id=job.job_id,
            submitted_at=job.submitted_at,
            script_id=contents[_sha256(job.script)],
            environment_id=contents[_sha256(job.environment)],
            description_id=contents[_sha256(job.description)] if job.description else None,
            script_bytes=len(job.script),
            environment_bytes=len(job.environment),
            captured_at=job.captured_at,
            request_key=job.request_key,
            stage=job.stage,
            experiment=experiments.get(job.request_key),
            masked_names=list(job.masked_names),
            user=job.user[:64],
            account=job.account[:64],
            name=job.name[:200],
            arguments=job.arguments,
            caveat=job.caveat[:200],
        )
        for job in jobs
    ]
    ArchivedJob.objects.bulk_create(rows, ignore_conflicts=True)


def _experiments(request_keys: set[str]) -> dict[str, Experiment]:
    """Return the experiment of each request, by the experiment's key with which the request's begins."""
    by_key = {experiment.key.casefold(): experiment for experiment in Experiment.objects.all()} if request_keys else {}
    found = {key: by_key.get(key.rpartition("-")[0].casefold()) for key in request_keys}
    return {key: experiment for key, experiment in found.items() if experiment}


def _compressor(kind: BlobKind) -> tuple[Dictionary | None, compression.Compressor]:
    dictionary = Dictionary.objects.filter(kind=kind).order_by("-pk").first()
    return dictionary, compression.Compressor(compression.dictionary(bytes(dictionary.data)) if dictionary else None)


def _has_contents(kind: BlobKind, count: int) -> bool:
    return Blob.objects.filter(kind=kind)[count - 1 : count].exists()


def _samples(kind: BlobKind) -> list[bytes]:
    blobs = Blob.objects.filter(kind=kind, size_bytes__lte=_SAMPLE_BYTES)
    samples = []
    for blob in blobs.order_by("sha256")[:_SAMPLES]:
        with suppress(DamagedContent):  # told by `archive verify`; no reason to refuse new jobs
            samples.append(read_blob(blob))
    return samples


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
