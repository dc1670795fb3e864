"""The sink `store:`, the portal's own database."""

from collections.abc import Mapping, Sequence
from typing import Self

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, connection
from django.utils import timezone

from apps.archive.domain.store.jobs import store_jobs, train_dictionaries
from apps.archive.sinks.base import SinkRefused, SinkUnavailable, SinkURL
from capture.wire.entry import CapturedJob


class StoreSink:
    """Stores each batch in one transaction."""

    name = "store"

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """Return the sink; `store:` has no other parts and no options."""
        url.only()
        return cls()

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Store all jobs, or none. A failed connection is reopened by the next call."""
        at = timezone.now()
        try:
            store_jobs(jobs=jobs, by="capture", at=at)
            train_dictionaries(at=at)
        except (DataError, IntegrityError) as error:
            raise SinkRefused(str(error).strip()) from error
        except (DatabaseError, InterfaceError) as error:
            connection.close()
            raise SinkUnavailable(str(error).strip() or type(error).__name__) from error
        return {}

    def close(self) -> None:
        connection.close()
