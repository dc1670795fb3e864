"""Where a log line occurs: the jobs that wrote it, and their failure groups."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.diagnosis.domain.reading.line_hits import ShownLine, line_hits
from apps.diagnosis.engine.evidence.novelty import LINE_BYTES, VARIES, Templates
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.records.jobs import jobs_for_list
from apps.jobs.models import Job
from apps.search.domain.query.clauses import Field, FieldValue, Phrase, Query, Source
from apps.search.domain.where_else import Occurrences, newest_jobs
from apps.search.models import LONGEST_TEXT, LineTemplate, signed

PAGE_SIZE = 20
_HASH = re.compile(r"[0-9a-f]{16}")
#: Between the pieces of a phrase: what varies, bytes that are no text, and several blanks.
_GAPS = re.compile(r"[ \t]*[*\ufffd][ \t*\ufffd]*|[ \t]{2,}|\t")
#: The failure groups of this many of the newest failed jobs are counted.
GROUPED = 500
MOST_GROUPS = 5


@dataclass(frozen=True, slots=True)
class JobHit:
    """A job that wrote the line, and the lines around it; none if its log is not kept."""

    job: Job
    lines: Sequence[ShownLine]


def hash_line(line: str) -> int:
    """Return the hash of the template of a line; 0 for a line without words."""
    text = line.splitlines()[0] if line.strip() else ""
    return Templates().hash_of(clean(text.encode()).strip(b"\n")[:LINE_BYTES])


def parse_line_hash(digits: str) -> int | None:
    """Return the hash that 16 hexadecimal digits stand for; None for other texts."""
    return int(digits, 16) if _HASH.fullmatch(digits) else None


def find_template_text(digits: str, *, user: User) -> str:
    """Return the line with a hash, given as 16 hexadecimal digits, with `*` for what varies.

    Empty for other texts, and if no job whose logs the user may see wrote it.
    """
    line_hash = parse_line_hash(digits)
    if line_hash is None:
        return ""
    rows = LineTemplate.objects.visible_to(user).filter(hash=signed(line_hash))
    return rows.values_list("text", flat=True).first() or ""


def search_for(text: str, example: str = "") -> Query:
    """Return the search for the text of a line, given its template and if possible an example.

    Templates have one blank where a line may have several, which a phrase would not find: from the
    example it is known where.
    """
    if example:
        text = VARIES.sub(b"*", example.encode()).decode(errors="replace")
    pieces = []
    for piece in _GAPS.split(text[:LONGEST_TEXT]):
        if piece.strip():
            pieces.append(piece)
    phrase = Phrase(tuple(pieces))
    return Query((phrase, FieldValue(Field.IN, Source.LOG)) if pieces else ())


def job_hits(
    occurrences: Occurrences,
    line_hash: int,
    *,
    user: User,
    failed: bool | None = None,
    before: tuple[datetime, int] | None = None,
) -> tuple[list[JobHit], tuple[datetime, int] | None]:
    """Return the newest jobs with the line that a user may see, and where the next page starts."""
    newest = newest_jobs(occurrences, limit=PAGE_SIZE + 1, failed=failed, before=before)
    on_page = newest[:PAGE_SIZE]
    jobs = jobs_for_list(user).in_bulk([key for _, key in on_page])
    lines = line_hits(jobs, line_hash)
    hits = []
    for _, key in on_page:
        if key in jobs:
            hits.append(JobHit(jobs[key], lines.get(key, [])))
    return hits, on_page[-1] if len(newest) > PAGE_SIZE else None


def groups_of(occurrences: Occurrences, *, user: User) -> list[tuple[FailureGroup, int]]:
    """Return the failure groups of the newest failed jobs with the line, most jobs first."""
    keys = [key for _, key in newest_jobs(occurrences, limit=GROUPED, failed=True)]
    verdicts = Verdict.objects.visible_to(user).filter(job__in=keys).exclude(group=None)
    counts = Counter(verdicts.values_list("group", flat=True))
    most = counts.most_common(MOST_GROUPS)
    groups = FailureGroup.objects.defer("profile").in_bulk([key for key, _ in most])
    return [(groups[key], jobs) for key, jobs in most]
