"""Scripts and environments of many jobs as one tar, streamed."""

import io
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC

from apps.accounts.models import User
from apps.archive.domain.store.contents import DamagedContent, read_blob
from apps.archive.models import ArchivedJob, Blob
from apps.archive.permissions import sees_environment
from apps.core.domain.tables import tsv
from apps.core.errors import DomainError

MOST_JOBS = 1_000
MOST_BYTES = 500_000_000
_AT_ONCE = 25
_COLUMNS = (
    "directory",
    "cluster",
    "job",
    "submitted",
    "user",
    "account",
    "name",
    "request",
    "stage",
    "state",
    "caveat",
)


class TooLarge(DomainError):
    """There are too many jobs, or too many bytes, for one tar."""


def check_size(jobs: Sequence[ArchivedJob]) -> None:
    """Raise `TooLarge` for what is too much for one tar."""
    if sum(job.script_bytes + job.environment_bytes for job in jobs) > MOST_BYTES:
        raise TooLarge(f"These are more than {MOST_BYTES // 1_000_000} MB: choose fewer jobs.")


def tar_of(jobs: Sequence[ArchivedJob], *, user: User) -> Iterator[bytes]:
    """Yield a tar of a directory for each job, and `jobs.tsv` with what is known of them.

    Environments are in it where the user may see them. A damaged content is left out, and `jobs.tsv` says so.
    """
    buffer = io.BytesIO()
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "damaged")]
    with tarfile.open(mode="w|", fileobj=buffer) as tar:
        for job, contents in _with_contents(jobs, user):
            damaged = []
            for kind, blob in contents.items():
                try:
                    _add(tar, f"{directory_of(job)}/{kind}", read_blob(blob), job)
                except DamagedContent:
                    damaged.append(kind)
                yield _taken(buffer)
            rows.append((*_facts(job), " ".join(damaged)))
        _add(tar, "jobs.tsv", tsv(rows).encode(), None)
    yield _taken(buffer)


def directory_of(job: ArchivedJob) -> str:
    """Return a name that is safe in every file system; two submissions of one job id have two."""
    at = job.submitted_at.astimezone(UTC)
    return f"{safe_name(job.cluster.name)}/{safe_name(job.job_id)}.{at:%Y%m%dT%H%M%S.%f}"


def safe_name(name: str) -> str:
    """Return a name with nothing in it but ASCII letters, digits, `_`, `-` and inner points."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.strip(".") or "_"


def _with_contents(jobs: Sequence[ArchivedJob], user: User) -> Iterator[tuple[ArchivedJob, dict[str, Blob]]]:
    """Yield each job with its contents by name, those of some jobs read at once."""
    for first in range(0, len(jobs), _AT_ONCE):
        part = jobs[first : first + _AT_ONCE]
        keys = {job.pk: _keys(job, user) for job in part}
        blobs = Blob.objects.in_bulk({key for of_job in keys.values() for key in of_job.values()})
        for job in part:
            yield job, {kind: blobs[key] for kind, key in keys[job.pk].items() if key in blobs}


def _keys(job: ArchivedJob, user: User) -> dict[str, int]:
    keys = {"script": job.script_id}
    if sees_environment(user, job):
        keys["environment"] = job.environment_id
        if job.description_id:
            keys["description"] = job.description_id
    return keys


def _add(tar: tarfile.TarFile, name: str, content: bytes, job: ArchivedJob | None) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    entry.mtime = int(job.submitted_at.timestamp()) if job else 0
    tar.addfile(entry, io.BytesIO(content))


def _facts(job: ArchivedJob) -> tuple[str, ...]:
    at = job.submitted_at.astimezone(UTC).isoformat()
    facts = (directory_of(job), job.cluster.name, job.job_id, at, job.user, job.account, job.name)
    return (*facts, job.request_key, job.stage, job.state, job.caveat)


def _taken(buffer: io.BytesIO) -> bytes:
    """Return what a tar has written since the last time."""
    taken = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return taken
