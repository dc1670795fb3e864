"""Captures of one submission that differ: an error of capture, or a forgery. None replaces the first one."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from apps.accounts.models import Principal
from apps.archive.domain.store.contents import CLOCK_TOLERANCE
from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster
from apps.core.domain.events import publish

#: Names of the senders in the text of a conflict.
_MOST_SENDERS = 3
_SENDERS = {"": "capture with the portal’s database", None: "unknown"}


class Capture(NamedTuple):
    """What would run again, and who sent it. `script` and `environment` are hashes."""

    job_id: str
    submitted_at: datetime
    script: bytes
    environment: bytes
    arguments: str
    sender: str | None
    row: ArchivedJob | None = None


def mark_conflicts(*, cluster: Cluster, captures: Sequence[Capture], by: Principal, at: datetime) -> None:
    """Mark stored jobs whose captures differ, given new captures of them. Under the lock of storing.

    Submissions with one ID that are less than the clock tolerance apart count as one. Publishes `archive.conflict`.
    """
    if not captures:
        return
    rows = ArchivedJob.objects.filter(cluster=cluster, job_id__in={capture.job_id for capture in captures})
    rows = rows.select_related("script", "environment").defer("script__data", "environment__data")
    marked: list[ArchivedJob] = []
    for same in _submissions([*map(_stored, rows), *captures]):
        stored = [capture.row for capture in same if capture.row]
        known = next((row.conflict for row in stored if row.conflict), "")
        conflict = known or _difference(same)
        unmarked = [row for row in stored if row.conflict != conflict]
        for row in unmarked:
            row.conflict = conflict
        marked += unmarked
    if marked:
        ArchivedJob.objects.bulk_update(marked, ["conflict"], batch_size=1000)
        job_ids = sorted({row.job_id for row in marked})
        publish(kind="archive.conflict", target=cluster, by=by, at=at, data={"job_ids": job_ids})


def _stored(row: ArchivedJob) -> Capture:
    script, environment = bytes(row.script.sha256), bytes(row.environment.sha256)
    return Capture(row.job_id, row.submitted_at, script, environment, row.arguments, row.sender, row)


def _submissions(captures: Sequence[Capture]) -> Iterator[list[Capture]]:
    """Yield the captures of each submission: those of one ID with no longer gaps than the tolerance."""
    in_order = sorted(captures, key=attrgetter("job_id", "submitted_at"))
    for _, of_id in groupby(in_order, key=attrgetter("job_id")):
        same: list[Capture] = []
        for capture in of_id:
            if same and capture.submitted_at - same[-1].submitted_at > CLOCK_TOLERANCE:
                yield same
                same = []
            same.append(capture)
        yield same


def _difference(captures: Sequence[Capture]) -> str:
    """Return how captures of one submission differ; empty if they do not.

    Capture that has the portal's database can forge whatever it likes: where all are its own, an ID was used again.
    A capture without arguments is compared without them: accounting adds them later to what is stored.
    """
    if all(capture.sender == "" for capture in captures):
        return ""
    parts = ("script", "environment", "arguments")
    values = {part: {getattr(capture, part) for capture in captures} - {""} for part in parts}
    different = [part for part in parts if len(values[part]) > 1]
    if not different:
        return ""
    senders = sorted({_SENDERS.get(capture.sender) or str(capture.sender) for capture in captures})
    more = ["others"] if len(senders) > _MOST_SENDERS else []
    named = ", ".join(senders[:_MOST_SENDERS] + more)
    return f"Captures of this job differ in {' and '.join(different)}. Sent by: {named}."
