"""Captures of one submission that differ: an error of capture, or a forgery.

No later capture replaces the first one. A user with permission may choose the right capture. The
choice is valid until another capture is chosen, the choice is undone, or a capture with other
content arrives.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import Principal, User
from apps.archive.domain.store.contents import CLOCK_TOLERANCE
from apps.archive.models import ArchivedJob, name_sender
from apps.archive.permissions import may_choose_capture
from apps.clusters.models import Cluster
from apps.core.domain.events import publish
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.models import Event

#: Maximum number of senders named in the text of a conflict.
_MOST_SENDERS = 3
#: Captures kept only as hashes, per stored capture; any more count as new each time they arrive.
MOST_UNSTORED = 20
_FIELDS = [
    "conflict",
    "conflict_version",
    "unstored_captures",
    "chosen_by",
    "chosen_at",
    "chosen_reason",
]


class CapturedContents(NamedTuple):
    """The contents that would run again, as SHA-256, and the sender.

    `arguments` is empty if none are known.
    """

    job_id: str
    submitted_at: datetime
    script: bytes
    environment: bytes
    arguments: bytes
    sender: str | None
    archived_job: ArchivedJob | None = None


def hash_arguments(arguments: str) -> bytes:
    """Return the SHA-256 of a job's arguments; empty if there are none."""
    if not arguments:
        return b""
    return hashlib.sha256(arguments.encode()).digest()


def mark_conflicts(
    *, cluster: Cluster, captures: Sequence[CapturedContents], by: Principal, at: datetime
) -> None:
    """Mark stored jobs whose captures differ, given new captures of them.

    The caller holds the lock for storing. Submissions with one ID less than the clock tolerance
    apart count as one. A capture with unknown content ends the choice of another one. Publishes
    `archive.conflict`.
    """
    if not captures:
        return
    archived_jobs = _archived_jobs(cluster.pk, {capture.job_id for capture in captures})
    changed: list[ArchivedJob] = []
    job_ids: set[str] = set()
    for same in _submissions([*map(_stored, archived_jobs), *captures]):
        changed_rows, is_news = _mark(same, at)
        changed += changed_rows
        if is_news:
            job_ids.add(same[0].job_id)
    if changed:
        ArchivedJob.objects.bulk_update(changed, _FIELDS, batch_size=1000)
    if job_ids:
        publish(
            kind="archive.conflict", target=cluster, by=by, at=at, data={"job_ids": sorted(job_ids)}
        )


def _mark(captures: Sequence[CapturedContents], at: datetime) -> tuple[list[ArchivedJob], bool]:
    """Mark the stored captures of one submission if they differ, without saving them.

    Return the changed ones, and whether the conflict is new or ends a choice.
    """
    stored = [capture.archived_job for capture in captures if capture.archived_job]
    marked = [archived_job for archived_job in stored if archived_job.conflict]
    conflict = marked[0].conflict if marked else _difference(captures)
    if not conflict:
        return [], False

    has_new_content = _has_new_content(captures)
    version = max(archived_job.conflict_version for archived_job in stored)
    if has_new_content:
        version += 1
    outdated = []
    for archived_job in stored:
        if (archived_job.conflict, archived_job.conflict_version) != (conflict, version):
            outdated.append(archived_job)

    is_news = False
    if has_new_content:
        chosen = [archived_job for archived_job in stored if archived_job.chosen_at]
        _keep_hashes(captures, at=at)
        if chosen:
            conflict = _difference([*captures, *_unstored(stored)]) or conflict
        is_news = bool(chosen) or len(marked) < len(stored)
        _set_choice(chosen, by="", reason="", at=None)
    for archived_job in outdated:
        archived_job.conflict = conflict
        archived_job.conflict_version = version
    return outdated, is_news


def captures_of(job: ArchivedJob) -> list[ArchivedJob]:
    """Return the stored captures of a job's submission, including the job, in order of storage."""
    archived_jobs = _archived_jobs(job.cluster_id, {job.job_id}).select_related(
        "script", "environment", "cluster", "experiment"
    )
    for same in _submissions([_stored(archived_job) for archived_job in archived_jobs]):
        stored = [capture.archived_job for capture in same if capture.archived_job]
        if job in stored:
            return sorted(stored, key=attrgetter("pk"))
    return []


def unstored_captures(jobs: Iterable[ArchivedJob]) -> list[dict[str, Any]]:
    """Return the captures of these jobs whose contents are not stored.

    They consist of hashes, `sender_name` and `received_at`.
    """
    captures = []
    for job in jobs:
        for capture in job.unstored_captures:
            sender_name = name_sender(capture["sender"])
            received_at = datetime.fromisoformat(capture["received_at"])
            captures.append(capture | {"sender_name": sender_name, "received_at": received_at})
    return captures


@transaction.atomic
def choose_capture(
    *, job: ArchivedJob, conflict_version: int, reason: str, by: User, at: datetime
) -> ArchivedJob:
    """Choose one of several captures that differ, in place of any other; return it.

    `conflict_version` is the version that the user has seen. Raises `NotAllowed`, `InvalidFields`,
    `InvalidTransition` if there is no conflict, and `StaleState` if another capture has arrived or
    another choice was made since.
    """
    captures, chosen = _locked_captures(job, conflict_version, by)
    if chosen.chosen_at:
        raise InvalidTransition("This capture is in use already.")
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter why this capture is the right one."]})

    _set_choice(captures, by="", reason="", at=None)
    _set_choice([chosen], by=str(by), reason=reason.strip(), at=at)
    _save_choice(captures)
    publish(kind="archive.capture_chosen", target=chosen, by=by, at=at, reason=reason.strip())
    return chosen


@transaction.atomic
def undo_capture_choice(
    *, job: ArchivedJob, conflict_version: int, reason: str, by: User, at: datetime
) -> ArchivedJob:
    """Undo the choice of a capture, so that none is used; return the job.

    Raises the exceptions of `choose_capture`, and `InvalidTransition` if none is chosen.
    """
    captures, current = _locked_captures(job, conflict_version, by)
    chosen = [capture for capture in captures if capture.chosen_at]
    if not chosen:
        raise InvalidTransition("No capture of this job is chosen.")
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter why the choice was wrong."]})

    _set_choice(captures, by="", reason="", at=None)
    _save_choice(captures)
    for capture in chosen:
        publish(kind="archive.choice_undone", target=capture, by=by, at=at, reason=reason.strip())
    return current


def choice_events(captures: Iterable[ArchivedJob]) -> QuerySet[Event]:
    """Return the events in which captures of a job were chosen or a choice undone, newest first."""
    return Event.objects.filter(
        kind__in=["archive.capture_chosen", "archive.choice_undone"],
        target_type=ArchivedJob._meta.label_lower,
        target_id__in=[str(capture.pk) for capture in captures],
    ).order_by("-pk")


def _locked_captures(
    job: ArchivedJob, conflict_version: int, by: User
) -> tuple[list[ArchivedJob], ArchivedJob]:
    """Return the captures of a job, and the job among them; lock the archive against new ones.

    Raises `NotAllowed`, `InvalidTransition` if there is no conflict, and `StaleState`.
    """
    lock_for_this_transaction("archive.store")
    captures = captures_of(job)
    if not all(may_choose_capture(by, capture) for capture in captures):
        raise NotAllowed(
            "Only approvers and admins of the experiments of all captures can choose one."
        )
    current = next((capture for capture in captures if capture.pk == job.pk), None)
    if current is None or not current.conflict:
        raise InvalidTransition("This job has no captures that differ.")
    if current.conflict_version != conflict_version:
        raise StaleState(
            "Another capture has arrived, or another user has changed the choice. Nothing was "
            "changed. Check the captures."
        )
    return captures, current


def _save_choice(captures: Sequence[ArchivedJob]) -> None:
    for capture in captures:
        capture.conflict_version += 1
    ArchivedJob.objects.bulk_update(captures, _FIELDS, batch_size=1000)


def _set_choice(
    archived_jobs: Sequence[ArchivedJob], *, by: str, reason: str, at: datetime | None
) -> None:
    for archived_job in archived_jobs:
        archived_job.chosen_by = by[:150]
        archived_job.chosen_reason = reason[:200]
        archived_job.chosen_at = at


def _archived_jobs(cluster_id: int, job_ids: Collection[str]) -> QuerySet[ArchivedJob]:
    archived_jobs = ArchivedJob.objects.filter(cluster=cluster_id, job_id__in=job_ids)
    return archived_jobs.select_related("script", "environment").defer(
        "script__data", "environment__data"
    )


def _stored(archived_job: ArchivedJob) -> CapturedContents:
    script = bytes(archived_job.script.sha256)
    environment = bytes(archived_job.environment.sha256)
    arguments = hash_arguments(archived_job.arguments)
    return CapturedContents(
        archived_job.job_id,
        archived_job.submitted_at,
        script,
        environment,
        arguments,
        archived_job.sender,
        archived_job,
    )


def _unstored(archived_jobs: Sequence[ArchivedJob]) -> list[CapturedContents]:
    """Return the captures that archived jobs keep only as hashes."""
    captures = []
    for archived_job in archived_jobs:
        for hashes in archived_job.unstored_captures:
            capture = CapturedContents(
                job_id=archived_job.job_id,
                submitted_at=archived_job.submitted_at,
                script=bytes.fromhex(hashes["script_sha256"]),
                environment=bytes.fromhex(hashes["environment_sha256"]),
                arguments=bytes.fromhex(hashes["arguments_sha256"]),
                sender=hashes["sender"],
            )
            captures.append(capture)
    return captures


def _has_new_content(captures: Sequence[CapturedContents]) -> bool:
    """Return whether a capture has content that its conflict lacks, or several are chosen."""
    known: list[CapturedContents] = []
    chosen = 0
    for capture in captures:
        archived_job = capture.archived_job
        if archived_job is not None and archived_job.conflict:
            known += [capture, *_unstored([archived_job])]
            if archived_job.chosen_at:
                chosen += 1
    return chosen > 1 or not all(_is_known(capture, known) for capture in captures)


def _is_known(capture: CapturedContents, known: Sequence[CapturedContents]) -> bool:
    """Return whether a known capture has the same content.

    Arguments are compared only if both captures have them.
    """
    for other in known:
        has_same_files = (capture.script, capture.environment) == (other.script, other.environment)
        are_comparable = bool(capture.arguments and other.arguments)
        if has_same_files and (not are_comparable or capture.arguments == other.arguments):
            return True
    return False


def _keep_hashes(captures: Sequence[CapturedContents], *, at: datetime) -> None:
    """Record captures whose contents are not stored because the first one with the key is."""
    stored = {}
    for capture in captures:
        if capture.archived_job:
            stored[capture.submitted_at] = capture
    for capture in captures:
        first = stored[capture.submitted_at]
        archived_job = first.archived_job
        if (
            archived_job is None
            or _is_known(capture, [first, *_unstored([archived_job])])
            or len(archived_job.unstored_captures) >= MOST_UNSTORED
        ):
            continue
        hashes = {
            "sender": capture.sender,
            "script_sha256": capture.script.hex(),
            "environment_sha256": capture.environment.hex(),
            "arguments_sha256": capture.arguments.hex(),
            "received_at": at.isoformat(),
        }
        archived_job.unstored_captures = [*archived_job.unstored_captures, hashes]


def _submissions(captures: Sequence[CapturedContents]) -> Iterator[list[CapturedContents]]:
    """Yield the captures of each submission: those with one ID and no gap beyond the tolerance."""
    in_order = sorted(captures, key=attrgetter("job_id", "submitted_at"))
    for _, of_id in groupby(in_order, key=attrgetter("job_id")):
        same: list[CapturedContents] = []
        for capture in of_id:
            if same and capture.submitted_at - same[-1].submitted_at > CLOCK_TOLERANCE:
                yield same
                same = []
            same.append(capture)
        yield same


def _difference(captures: Sequence[CapturedContents]) -> str:
    """Return how captures of one submission differ; "" if they do not.

    Capture beside the portal has access to its database and could forge anything, so captures sent
    only by it are not compared: the ID was reused. A capture without arguments is compared without
    them, since accounting adds them later to the stored one.
    """
    if all(capture.sender == "" for capture in captures):
        return ""
    different = []
    for part in ("script", "environment", "arguments"):
        values = {getattr(capture, part) for capture in captures} - {b""}
        if len(values) > 1:
            different.append(part)
    if not different:
        return ""
    senders = sorted({name_sender(capture.sender) for capture in captures})
    more = ["others"] if len(senders) > _MOST_SENDERS else []
    named = ", ".join(senders[:_MOST_SENDERS] + more)
    return f"Captures of this job differ in {' and '.join(different)}. Sent by: {named}."
