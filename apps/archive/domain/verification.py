"""Compare the archive with copies in the scheduler's accounting, and fill gaps from them."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import zip_longest

from apps.accounts.models import Principal
from apps.archive.domain.retention import kept_since
from apps.archive.domain.store.contents import CLOCK_TOLERANCE, DamagedContent, read_blob
from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import ArchivedJob
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import KeepsCopies, SchedulerError, StoredCopy
from apps.clusters.schedulers.environment import pack, texts_in, variables_in
from apps.core.domain.secrets.masking import Masker, replace_secrets, secrets_of, value_of
from apps.jobs.domain.collection.masking_rules import current_masker
from apps.jobs.models import Job
from capture.wire.entry import CapturedJob

_JOBS_A_BATCH = 200
_MOST_NAMES = 8
# Bytes that are not UTF-8, and characters of four bytes.
_NOT_KEPT = re.compile("[\udc80-\udcff\U00010000-\U0010ffff]")
CAVEAT = "from slurmdbd's copy, not from the spool"
#: Minimum time after a job's end before it is filled in: capture may still have it in its journal.
SETTLED_AFTER = timedelta(hours=1)


class CopyResult(StrEnum):
    """The result for a job; the value is its text."""

    ALIKE = "alike"
    NO_COPY = "not in accounting"
    HOLE = "accounting has no script"
    NO_ENVIRONMENT = "accounting has no environment"
    SCRIPT = "different script"
    ENCODING = "alike, except for characters that accounting cannot store"
    ENVIRONMENT = "different environment"
    NEWLINES = "alike, but accounting cannot tell values with newlines from several variables"
    DAMAGED = "damaged in the archive"
    MISSING = "not in the archive"
    BACKFILLED = "filled in from accounting"
    EXPIRED = "deleted by a retention rule"


@dataclass(frozen=True, slots=True)
class CopyFinding:
    """One result for a job. `detail` contains names and line numbers, never a value."""

    job_id: str
    submitted_at: datetime
    kind: CopyResult
    detail: str = ""


def check_copies(
    *,
    cluster: Cluster,
    since: datetime,
    job_ids: Collection[str] = (),
    backfill: bool = False,
    by: Principal,
    at: datetime,
) -> Iterator[CopyFinding]:
    """Yield the findings about jobs submitted since a time, or only about the jobs of `job_ids`.

    With `backfill`, jobs missing in the archive are stored from accounting if they ended long
    enough ago or are in `job_ids`. Raises `SchedulerError`, also if the scheduler keeps no copies.
    """
    scheduler = adapter_of(cluster)
    if not isinstance(scheduler, KeepsCopies):
        raise SchedulerError(f"{cluster.scheduler} keeps no copies of scripts to check against")
    masker = current_masker()
    kept = kept_since(cluster=cluster, at=at)
    archived = ArchivedJob.objects.filter(cluster=cluster, submitted_at__gte=since)
    collected = Job.objects.filter(cluster=cluster)
    ids = sorted(job_ids)
    if not ids:
        spool_ids = collected.filter(submitted_at__gte=since).values_list("spool_id", flat=True)
        ids = sorted({*archived.values_list("job_id", flat=True), *spool_ids.distinct()})
    for first in range(0, len(ids), _JOBS_A_BATCH):
        batch = ids[first : first + _JOBS_A_BATCH]
        rows = archived.filter(job_id__in=batch).select_related("script", "environment")
        copies = [
            copy
            for copy in scheduler.stored_copies(batch)
            if copy.submitted_at >= since - CLOCK_TOLERANCE
        ]
        pairs = _pairs(list(rows), copies)
        ended = collected.filter(spool_id__in=batch).values_list("spool_id", flat=True)
        recent = set(ended.filter(ended_at__gt=at - SETTLED_AFTER))
        settled = set(job_ids) or set(ended) - recent
        for archived_job, copy in pairs:
            if archived_job:
                yield from _differences(archived_job, copy, masker)
            elif copy and kept and since <= copy.submitted_at <= kept:
                yield CopyFinding(copy.spool_id, copy.submitted_at, CopyResult.EXPIRED)
            elif copy and copy.submitted_at >= since:
                filled = backfill and copy.script is not None and copy.spool_id in settled
                if filled:
                    store_jobs(jobs=[_captured(cluster, copy, masker, at)], by=by, at=at)
                    yield CopyFinding(copy.spool_id, copy.submitted_at, CopyResult.BACKFILLED)
                else:
                    detail = _why_missing(copy, backfill=backfill)
                    yield CopyFinding(copy.spool_id, copy.submitted_at, CopyResult.MISSING, detail)


def _why_missing(copy: StoredCopy, *, backfill: bool) -> str:
    """Return why a job that the archive does not have was not filled in; empty if unasked."""
    if copy.script is None:
        return "accounting has no script either"
    if backfill:
        return "not filled in: it ended less than an hour ago, or is not collected"
    return ""


def _pairs(
    archived_jobs: Sequence[ArchivedJob], copies: Sequence[StoredCopy]
) -> Iterator[tuple[ArchivedJob | None, StoredCopy | None]]:
    """Yield the archived job and the copy of each submission; None for a missing one."""
    left = list(copies)
    for archived_job in archived_jobs:
        own = [copy for copy in left if copy.spool_id == archived_job.job_id]
        nearest = min(
            own, key=lambda copy: abs(copy.submitted_at - archived_job.submitted_at), default=None
        )
        if nearest and abs(nearest.submitted_at - archived_job.submitted_at) <= CLOCK_TOLERANCE:
            left.remove(nearest)
            yield archived_job, nearest
        else:
            yield archived_job, None
    for copy in left:
        yield None, copy


def _differences(
    archived_job: ArchivedJob, copy: StoredCopy | None, masker: Masker
) -> Iterator[CopyFinding]:
    if copy is None:
        yield CopyFinding(archived_job.job_id, archived_job.submitted_at, CopyResult.NO_COPY)
        return
    try:
        script = read_blob(archived_job.script)
        environment = read_blob(archived_job.environment)
    except DamagedContent as error:
        yield CopyFinding(
            archived_job.job_id, archived_job.submitted_at, CopyResult.DAMAGED, f"it {error}"
        )
        return
    variables = tuple(variables_in(copy.environment or pack([])))
    secrets = secrets_of(variables, masker.mask(variables)[0])
    copied_script = None
    if copy.script is not None:
        copied_script = replace_secrets(copy.script, secrets)

    of_script = _compare_scripts(script, copied_script)
    of_environment = _compare_environments(environment, copy.environment, masker, secrets)
    results = [
        result for result in (of_script, of_environment) if result[0] is not CopyResult.ALIKE
    ]
    for kind, detail in results or [of_script]:
        yield CopyFinding(archived_job.job_id, archived_job.submitted_at, kind, detail)


def _compare_scripts(ours: bytes, theirs: bytes | None) -> tuple[CopyResult, str]:
    if theirs is None:
        return CopyResult.HOLE, ""
    if ours == theirs:
        return CopyResult.ALIKE, ""
    if _as_text(ours) == _as_text(theirs):
        return CopyResult.ENCODING, ""
    lines = zip(_as_text(ours).split(b"\n"), _as_text(theirs).split(b"\n"), strict=False)
    for number, (our_line, their_line) in enumerate(lines, start=1):
        if our_line != their_line:
            return CopyResult.SCRIPT, f"from line {number} on"
    return CopyResult.SCRIPT, "one continues where the other ends"


def _compare_environments(
    ours: bytes, theirs: bytes | None, masker: Masker, secrets: Mapping[bytes, bytes]
) -> tuple[CopyResult, str]:
    """Compare variable by variable, in order. For a masked value, compare its fingerprint."""
    if theirs is None:
        return CopyResult.NO_ENVIRONMENT, ""
    entries = [_as_text(entry) for entry in texts_in(ours)]
    text = _as_text(replace_secrets(b"\n".join(texts_in(theirs)), secrets)) + b"\n"
    position = 0
    for entry, following in zip_longest(entries, entries[1:]):
        end = _end_of_entry(text, position, entry, following, masker)
        if end is None:
            name = entry.partition(b"=")[0].decode(errors="replace")
            return CopyResult.ENVIRONMENT, f"from variable {name} on"
        position = end

    more = []
    for line in text[position:].split(b"\n"):
        if line:
            more.append(line.partition(b"=")[0].decode(errors="replace"))
    if more:
        return CopyResult.ENVIRONMENT, f"accounting has more: {', '.join(more[:_MOST_NAMES])}"
    if any(b"\n" in entry for entry in entries):
        return CopyResult.NEWLINES, ""
    if entries != texts_in(ours):
        return CopyResult.ENCODING, ""
    return CopyResult.ALIKE, ""


def _end_of_entry(
    text: bytes, start: int, entry: bytes, following: bytes | None, masker: Masker
) -> int | None:
    """Return where a variable that starts in `text` at `start` ends; None if another one does.

    A masked value ends before the name of the `following` variable, which is None at the end.
    """
    name, _, value = entry.partition(b"=")
    if value.startswith(b"<masked:") and text.startswith(name + b"=", start):
        end = len(text) - 1
        if following is not None:
            end = text.find(b"\n" + following.partition(b"=")[0] + b"=", start)
        if masker.fingerprint(text[start + len(name) + 1 : end]) == value:
            return end + 1
    if text.startswith(entry + b"\n", start):
        return start + len(entry) + 1
    return None


def _as_text(content: bytes) -> bytes:
    """Return content as slurmdbd's database keeps it: a question mark for what it cannot store."""
    return _NOT_KEPT.sub("?", content.decode("utf-8", "surrogateescape")).encode()


def _captured(cluster: Cluster, copy: StoredCopy, masker: Masker, at: datetime) -> CapturedJob:
    before = tuple(variables_in(copy.environment or pack([])))
    variables, masked_names = masker.mask(before)
    return CapturedJob(
        cluster=cluster.name,
        scheduler=cluster.scheduler,
        job_id=copy.spool_id,
        submitted_at=copy.submitted_at,
        captured_at=at,
        script=replace_secrets(copy.script or b"", secrets_of(before, variables)),
        environment=pack(variables),
        request_key=value_of(variables, b"OPSPORTAL_REQUEST")[:64],
        stage=value_of(variables, b"OPSPORTAL_STAGE")[:64],
        masked_names=masked_names,
        arguments=masker.mask_text(copy.arguments),
        user=copy.user,
        account=copy.account,
        name=copy.name,
        caveat=CAVEAT if copy.environment else f"{CAVEAT}, which has no environment",
    )
