"""Scripts and environments of many jobs as one streamed tar archive."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import chain

from apps.accounts.models import User
from apps.archive.domain.store.contents import DamagedContent, read_blob
from apps.archive.models import ArchivedJob, Blob
from apps.archive.permissions import sees_environment
from apps.core.domain.exports.tables import tsv
from apps.core.domain.exports.tar import TarMember, write_tar
from apps.core.errors import DomainError

MOST_JOBS = 1_000
MOST_BYTES = 500_000_000
_AT_ONCE = 25
_BYTES_AT_ONCE = 4_000_000
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


class BundleTooLarge(DomainError):
    """The selected jobs are too large for one tar archive."""


def check_size(jobs: Sequence[ArchivedJob]) -> None:
    """Raise `BundleTooLarge` if these jobs are too large for one tar archive."""
    descriptions = [job.description_id for job in jobs if job.description_id]
    sizes = _sizes_of(descriptions)
    described = sum(sizes.get(key, 0) for key in descriptions)
    if described + sum(job.script_bytes + job.environment_bytes for job in jobs) > MOST_BYTES:
        raise BundleTooLarge(
            f"These are more than {MOST_BYTES // 1_000_000} MB: choose fewer jobs."
        )


def _sizes_of(keys: Collection[int]) -> dict[int, int]:
    return dict(Blob.objects.filter(pk__in=keys).values_list("pk", "size_bytes"))


def tar_of(jobs: Sequence[ArchivedJob], *, user: User) -> Iterator[bytes]:
    """Return the chunks of a tar archive with a directory for each job, and `jobs.tsv`.

    `jobs.tsv` describes the jobs. Environments are included if the user may see them. A damaged
    content is left out and named in `jobs.tsv`. Few contents are in memory at a time, however
    slowly the client reads.
    """
    return write_tar(_members(jobs, user))


def _members(jobs: Sequence[ArchivedJob], user: User) -> Iterator[TarMember]:
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "damaged")]
    for job, contents in _with_contents(jobs, user):
        directory = directory_of(job)
        damaged = []
        submitted_at = int(job.submitted_at.timestamp())
        for kind, blob in contents.items():
            try:
                content = read_blob(blob)
            except DamagedContent:
                damaged.append(kind)
            else:
                yield TarMember(f"{directory}/{kind}", content, modified_at=submitted_at)
        rows.append(
            (
                directory,
                job.cluster.name,
                job.job_id,
                job.submitted_at.astimezone(UTC).isoformat(),
                job.user,
                job.account,
                job.name,
                job.request_key,
                job.stage,
                job.state,
                job.caveat,
                " ".join(damaged),
            )
        )
    yield TarMember("jobs.tsv", tsv(rows).encode())


def directory_of(job: ArchivedJob) -> str:
    """Return a name that is safe in every file system and unique to each submission of a job ID."""
    at = job.submitted_at.astimezone(UTC)
    return f"{safe_name(job.cluster.name)}/{safe_name(job.job_id)}.{at:%Y%m%dT%H%M%S.%f}"


def safe_name(name: str) -> str:
    """Return a name that consists of ASCII letters, digits, `_`, `-` and inner points."""
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_"
        for letter in name
    )
    return kept.strip(".") or "_"


def _with_contents(
    jobs: Sequence[ArchivedJob], user: User
) -> Iterator[tuple[ArchivedJob, dict[str, Blob]]]:
    """Yield each job with its contents by name; the contents of several jobs are read at once."""
    keys = {job.pk: _keys(job, user) for job in jobs}
    sizes = _sizes_of(set(chain.from_iterable(of_job.values() for of_job in keys.values())))
    bytes_of = {}
    for pk, of_job in keys.items():
        bytes_of[pk] = sum(sizes.get(key, 0) for key in of_job.values())

    for part in _parts(jobs, bytes_of):
        blobs = Blob.objects.in_bulk(
            set(chain.from_iterable(keys[job.pk].values() for job in part))
        )
        for job in part:
            yield job, {kind: blobs[key] for kind, key in keys[job.pk].items() if key in blobs}
        del blobs  # free the memory before the next ones are read


def _parts(jobs: Sequence[ArchivedJob], bytes_of: Mapping[int, int]) -> Iterator[list[ArchivedJob]]:
    """Divide jobs into parts of at most 25 jobs and 4 MB; a single job may be larger."""
    part: list[ArchivedJob] = []
    part_bytes = 0
    for job in jobs:
        is_full = len(part) == _AT_ONCE or part_bytes + bytes_of[job.pk] > _BYTES_AT_ONCE
        if part and is_full:
            yield part
            part = []
            part_bytes = 0
        part.append(job)
        part_bytes += bytes_of[job.pk]
    yield part


def _keys(job: ArchivedJob, user: User) -> dict[str, int]:
    keys = {"script": job.script_id}
    if sees_environment(user, job):
        keys["environment"] = job.environment_id
        if job.description_id:
            keys["description"] = job.description_id
    return keys
