"""The sink that every portal has: the script store in its own database."""

from collections.abc import Callable, Sequence

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, close_old_connections, connection

from apps.archive.capture.entry import CapturedJob
from apps.archive.sinks.base import SinkRefused, SinkUnavailable


class StoreSink:
    """Hands jobs to `store`, a service that keeps them in one transaction."""

    name = "store"

    def __init__(self, store: Callable[[Sequence[CapturedJob]], object]) -> None:
        self._store = store

    def write(self, jobs: Sequence[CapturedJob]) -> None:
        """Keep them all, or none. A connection that failed is made anew the next time."""
        close_old_connections()
        try:
            self._store(jobs)
        except (DataError, IntegrityError) as error:
            raise SinkRefused(str(error).strip()) from error
        except (DatabaseError, InterfaceError) as error:
            connection.close()
            raise SinkUnavailable(str(error).strip() or type(error).__name__) from error

    def close(self) -> None:
        connection.close()
