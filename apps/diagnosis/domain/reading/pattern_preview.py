"""Preview the matches of a pattern in stored excerpts of failed and successful jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.expressions.runs import TooCostly, expression_run
from apps.diagnosis.domain.reading.log_windows import block_of
from apps.diagnosis.engine.evidence.catalogue import first_lines, text_of
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.models import LogExcerpt
from apps.jobs.models import Job

EXCERPTS = 1_000
LINES = 8
LINES_PER_EXCERPT = 2
SECONDS = 3.0
#: Excerpts of successful jobs are rare: the search covers this many of the newest excerpts.
RECENT = 50_000


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """A line that the pattern matches."""

    job: Job
    stream: str
    offset: int
    text: str


@dataclass(slots=True)
class ExcerptMatches:
    """Excerpts of failed, or of successful, jobs: number searched, number that match, and lines."""

    searched: int = 0
    matched: int = 0
    lines: list[PreviewLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Preview:
    """Matches of a pattern in the newest excerpts that the user may see.

    `cut_short` if there was not enough time for all excerpts.
    """

    failed: ExcerptMatches
    successful: ExcerptMatches
    cut_short: bool


def preview_pattern(*, regex: str, experiment: str, user: User) -> Preview:
    """Search the newest excerpts of both sides for a valid pattern, for at most three seconds.

    Raises `TooCostly` if the search cannot start.
    """
    failed = ExcerptMatches()
    successful = ExcerptMatches()
    cut_short = False
    with expression_run(user.pk, seconds=SECONDS) as run:
        try:
            for side, succeeded in ((failed, False), (successful, True)):
                for excerpt in _excerpts(user, experiment, succeeded):
                    lines = run.call(
                        first_lines, regex, clean(block_of(excerpt).data), LINES_PER_EXCERPT
                    )
                    _add(side, excerpt, lines)
        except TooCostly:
            cut_short = True
    return Preview(failed, successful, cut_short)


def _add(side: ExcerptMatches, excerpt: LogExcerpt, lines: Sequence[tuple[int, bytes]]) -> None:
    """Count an excerpt, and add the first lines that match in it."""
    side.searched += 1
    side.matched += bool(lines)
    for start, line in lines[: LINES - len(side.lines)]:
        offset = excerpt.first_offset + start
        text = text_of(line[:400])
        side.lines.append(PreviewLine(excerpt.harvest.job, excerpt.stream, offset, text))


def _excerpts(user: User, experiment: str, succeeded: bool) -> Iterator[LogExcerpt]:
    newest = LogExcerpt.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    jobs: QuerySet[Job] = Job.objects.visible_to(user)
    if experiment:
        jobs = jobs.filter(experiment__key__iexact=experiment)
    excerpts = LogExcerpt.objects.filter(pk__gt=newest - RECENT, harvest__job__in=jobs).order_by(
        "-pk"
    )
    of_side = excerpts.filter(harvest__job__state=JobState.COMPLETED)
    if not succeeded:
        of_side = excerpts.exclude(harvest__job__state=JobState.COMPLETED)
    return of_side.select_related("harvest__job__cluster")[:EXCERPTS].iterator(chunk_size=50)
