"""Compare the stored logs with the index that searches use."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from django.db import transaction

from apps.search.domain.engine.base import Engine
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.logs.kept_texts import kept_of, newest_before
from apps.search.models import LogToIndex

#: Logs, and jobs in the index, that are compared at once.
BATCH = 100
JOBS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Compared:
    """How many logs, or jobs in the index, were compared, and what is wrong, by job."""

    count: int
    wrong: Mapping[int, str]


def compare_index() -> Iterator[Compared]:
    """Yield batch by batch what differs; logs that wait to be indexed do not.

    Raises `SearchUnavailable`.
    """
    engine = engine_in_use()
    yield from _kept_logs(engine)
    yield from _indexed_jobs(engine)


def _kept_logs(engine: Engine) -> Iterator[Compared]:
    """Compare each kept log with the index."""
    key: int | None = None
    while True:
        with transaction.atomic():
            batch = newest_before(key, BATCH)
            if not batch:
                return
            wrong = engine.differences([log for _, log in batch])
            wrong = _without_waiting(wrong)
        yield Compared(len(batch), wrong)
        key = min(key for key, _ in batch)


def _indexed_jobs(engine: Engine) -> Iterator[Compared]:
    """Find jobs in the index of which no log is kept."""
    last = 0
    while job_pks := engine.jobs_after(last, JOBS_AT_ONCE):
        gone = set(job_pks) - kept_of(job_pks)
        wrong = dict.fromkeys(sorted(gone), "is in the index, but no log is kept")
        yield Compared(0, _without_waiting(wrong))
        last = job_pks[-1]


def _without_waiting(wrong: Mapping[int, str]) -> dict[int, str]:
    waiting = _waiting(wrong)
    return {job_pk: reason for job_pk, reason in wrong.items() if job_pk not in waiting}


def _waiting(job_pks: Collection[int]) -> set[int]:
    rows = LogToIndex.objects.filter(job__in=job_pks)
    return set(rows.values_list("job_id", flat=True))
