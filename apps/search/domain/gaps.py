"""What a search leaves out."""

from django.conf import settings

from apps.archive.domain.search.word_index import jobs_waiting
from apps.jobs.models import ArchivedMonth
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.indexing.new_logs import logs_waiting
from apps.search.domain.logs.index_state import serving_index
from apps.search.domain.query.clauses import Field, Query, Source

#: Scripts that are not indexed yet are counted up to here.
MOST_WAITING = 1_000


def not_searched(query: Query) -> list[str]:
    """Return what a search leaves out, as sentences."""
    gaps = []
    if Source.LOG in query.sources:
        index = serving_index(engine_in_use().name)
        if index is None or not index.complete:
            indexed = 0 if index is None else index.indexed
            gaps.append(
                "Older logs are still being indexed, newest first, and are missing here "
                f"({indexed:,} were added so far)."
            )
        if waiting := logs_waiting(at_most=MOST_WAITING):
            gaps.append(f"Not indexed yet: {_count(waiting)} of the newest logs.")
        if settings.LOG_EXCERPT_DAYS:
            gaps.append(
                "Of logs, the last 64 kB of each failed job and of samples of completed jobs are "
                f"searched, for {settings.LOG_EXCERPT_DAYS} days."
            )
        dropped = ArchivedMonth.objects.exclude(dropped_at=None).order_by("-month").first()
        if dropped is not None and not query.of(Field.SINCE):
            gaps.append(f"Job records up to {dropped.month:%B %Y} are archived and not searched.")
    if Source.SCRIPT in query.sources and (waiting := jobs_waiting(at_most=MOST_WAITING)):
        gaps.append(f"{_count(waiting)} newest scripts are not indexed yet.")
    return gaps


def _count(waiting: int) -> str:
    return f"{waiting:,} or more" if waiting == MOST_WAITING else f"{waiting:,}"
