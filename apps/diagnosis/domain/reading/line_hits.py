"""Find a line in the kept ends of logs, with the lines around it."""

from collections.abc import Collection
from dataclasses import dataclass

from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.evidence.novelty import Templates
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.models import LogExcerpt
from apps.jobs.models import Job

#: Lines shown before and after the line.
AROUND = 1
SHOWN_BYTES = 300


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line of a log: offset in bytes, number if known, and text; `is_hit` if it is the line."""

    stream: str
    offset: int
    number: int | None
    text: str
    is_hit: bool


def line_hits(job_pks: Collection[int], line_hash: int) -> dict[int, list[ShownLine]]:
    """Return for each job the first line in its kept logs whose template has this hash.

    Jobs whose logs are not kept are left out. One query.
    """
    hits: dict[int, list[ShownLine]] = {}
    excerpts = LogExcerpt.objects.filter(harvest__job__in=job_pks).select_related("harvest")
    templates = Templates()
    for excerpt in excerpts.order_by("harvest", "stream"):
        if excerpt.harvest.job_id in hits:
            continue
        if shown := _lines_around_hit(excerpt, line_hash, templates):
            hits[excerpt.harvest.job_id] = shown
    return hits


def _lines_around_hit(excerpt: LogExcerpt, line_hash: int, templates: Templates) -> list[ShownLine]:
    data = excerpt.data
    lines = clean(data).split(b"\n")
    matching = (n for n, line in enumerate(lines) if templates.hash_of(line) == line_hash)
    row = next(matching, None)
    if row is None:
        return []

    offsets = [excerpt.first_offset]
    for raw in data.split(b"\n"):
        offsets.append(offsets[-1] + len(raw) + 1)
    first = excerpt.first_line_number
    shown = []
    for near in range(max(0, row - AROUND), min(len(lines), row + AROUND + 1)):
        shown.append(
            ShownLine(
                stream=excerpt.stream,
                offset=offsets[near],
                number=None if first is None else first + near,
                text=text_of(lines[near].strip()[:SHOWN_BYTES]),
                is_hit=near == row,
            )
        )
    return shown


def line_hash_at(job: Job, stream: str, offset: int) -> int | None:
    """Return the hash of the line at this byte of a kept log; None if it is not kept."""
    excerpt = LogExcerpt.objects.filter(harvest__job=job, stream=stream).first()
    start = offset - excerpt.first_offset if excerpt else -1
    if excerpt is None or start < 0:
        return None
    line = clean(excerpt.data[start:].partition(b"\n")[0])
    return Templates().hash_of(line) or None
