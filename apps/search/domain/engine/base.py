"""What an engine of the search does."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from apps.accounts.models import User
from apps.core.errors import DomainError
from apps.search.domain.logs.kept_texts import KeptLog
from apps.search.domain.query.clauses import Query, Source

#: A search stops after this time, and its next page goes on there.
READ_SECONDS = 0.2


class SearchRefused(DomainError):
    """A search is not possible, or too broad for a page; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Who searches, which decides what can be found, and the time that `since:30d` refers to."""

    user: User
    at: datetime


@dataclass(frozen=True, slots=True)
class Hit:
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
    """A place between hits: all that come before it in the order of hits were looked at."""

    at: datetime
    source: Source
    key: int

    def __str__(self) -> str:
        """Return the cursor as a part of an address."""
        place = json.dumps([self.at.isoformat(), self.source.value, self.key])
        return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")

    @staticmethod
    def of(text: str) -> "Cursor | None":
        """Return the cursor that was made this text; None if there was none."""
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
    def after(hit: Hit) -> "Cursor":
        return Cursor(hit.at, hit.source, hit.key)


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits, newest first.

    `after` is where the next page goes on, None at the end. `stopped` if time was over before the
    page was full: then everything newer than `after` was searched.
    """

    rows: tuple[Hit, ...]
    after: Cursor | None = None
    stopped: bool = False


class Engine(Protocol):
    """Finds jobs by their texts. PostgreSQL has the texts, so an index can always be made again."""

    def store(self, logs: Sequence[KeptLog]) -> None:
        """Replace what the index has of the logs of these jobs."""

    def search(
        self,
        query: Query,
        scope: Scope,
        *,
        after: Cursor | None = None,
        size: int,
        seconds: float = READ_SECONDS,
    ) -> Hits:
        """Return the newest hits after a cursor that the user may see, verified on the texts.

        Raises `SearchRefused`.
        """
