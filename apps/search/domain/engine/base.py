"""What an engine of the search does."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from apps.accounts.models import User
from apps.core.errors import DomainError
from apps.search.domain.logs.kept_texts import KeptLog
from apps.search.domain.query.clauses import Query, Source
from apps.search.models import LogIndex

#: A search stops after this time, and its next page continues there.
READ_SECONDS = 0.2


class SearchRefused(DomainError):
    """A search is not possible, or too broad for a page; the message says what to do."""


class SearchUnavailable(DomainError):
    """The index does not answer, or only a part of it: try again later.

    The message is for users, `reason` for operators of the portal.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Who searches, which decides what can be found, and the time that `since:30d` refers to."""

    user: User
    at: datetime


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A text of a job that fulfils the query.

    `key` is the primary key of the job for a log, and of the archived job for a script or an
    environment; `at` is the end of the job or its submission.
    """

    at: datetime
    source: Source
    key: int

    @property
    def order(self) -> tuple[datetime, str, int]:
        """Hits come in descending order of this."""
        return self.at, self.source.value, self.key


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position between hits: all hits before it, in their order, were examined."""

    at: datetime
    source: Source
    key: int

    def __str__(self) -> str:
        """Return the cursor as a part of an address."""
        place = json.dumps([self.at.isoformat(), self.source.value, self.key])
        return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")

    @staticmethod
    def of(text: str) -> "Cursor | None":
        """Parse a cursor; None if the text is invalid."""
        try:
            place = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            at, source, key = place
            moment = datetime.fromisoformat(at).astimezone(UTC)
            if not isinstance(key, int) or abs(key) >= 1 << 63:
                return None
            return Cursor(moment, Source(source), key)
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None

    @staticmethod
    def after(hit: SearchHit) -> "Cursor":
        return Cursor(hit.at, hit.source, hit.key)


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits, newest first.

    `after` is where the next page continues, None at the end. `stopped` if time was over before the
    page was full: then everything newer than `after` was searched.
    """

    rows: tuple[SearchHit, ...]
    after: Cursor | None = None
    stopped: bool = False


class Engine(Protocol):
    """Finds jobs by their texts. PostgreSQL has the texts, so an index can always be made again.

    All functions but `search` raise `SearchUnavailable` if the index does not answer.
    """

    #: Where the index is, without secrets: `LogIndex.target`.
    name: str
    #: Version of what is stored of a log. An index of another version is rebuilt.
    layout: int

    #: Whether an index knows the experiments of jobs, and has to follow them.
    has_experiments: bool

    def store(self, logs: Sequence[KeptLog], *, only: LogIndex | None = None) -> Mapping[int, str]:
        """Replace the logs of these jobs in all indexes, or in one; safe to repeat.

        The entry of a log without texts is removed. Return why logs were refused, by job.
        """

    def forget(self, job_pks: Iterable[int]) -> set[int]:
        """Remove what is stored of these jobs, in the caller's transaction.

        Return the jobs for which that takes a worker, by `store`.
        """

    def search(
        self,
        query: Query,
        scope: SearchScope,
        *,
        after: Cursor | None = None,
        size: int,
        seconds: float = READ_SECONDS,
    ) -> Hits:
        """Return the newest hits after a cursor that the user may see, verified on the texts.

        Raises `SearchRefused` and `SearchUnavailable`.
        """

    def check(self) -> None:
        """Check that all of the index that searches use exists."""

    def differences(self, logs: Sequence[KeptLog]) -> Mapping[int, str]:
        """Return what is wrong in the index that searches use, of these logs, by job."""

    def jobs_after(self, job_pk: int, most: int) -> list[int]:
        """Return the next jobs in the index that searches use, by primary key."""

    def finish(self, index: LogIndex) -> None:
        """Make a full index ready, before it is put in use."""

    def clean_up(self) -> None:
        """Remove what is left of indexes that were replaced."""
