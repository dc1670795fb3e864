"""The portal's database, in plain SQL without Django: batches, reports and masking rules.

`tests/archive/test_portals.py` tests both ways to the portal by one contract, against the portal's
tables.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

from apps.core.domain.masking import Rule
from capture.journal.journal import JournaledBatch
from capture.portals.base import BatchRefused, PortalAway, Sender
from capture.portals.broker import Broker
from capture.wire.batches import moment_of
from capture.wire.intake import IntakeFull, insert_batch

_STATEMENT_SECONDS = 120
_REPORT = """
    INSERT INTO core_heartbeat (name, at, detail) VALUES (%s, now(), %s)
    ON CONFLICT (name) DO UPDATE SET at = excluded.at, detail = excluded.detail
"""
_RULES = (
    "SELECT applies_to, pattern FROM jobs_maskingrule WHERE enabled ORDER BY applies_to, pattern"
)


_UNDELIVERED = (
    "SELECT count(*) FROM archive_intakebatch WHERE journal = %s"  # one goes when every sink has it
)


class DatabasePortal:
    """Writes to the database of `conninfo` on a connection that is kept,
    and wakes the workers of the broker's URL.
    """

    def __init__(self, conninfo: str, sender: Sender, *, broker: str, most_bytes: int) -> None:
        self._conninfo = conninfo
        self._sender = sender
        self._broker = Broker(broker)
        self._most_bytes = most_bytes
        self._connection: psycopg.Connection[Any] | None = None

    def take(self, batch: JournaledBatch) -> None:
        sender = self._sender
        with self._asking() as database, database.transaction(), database.cursor() as cursor:
            insert_batch(
                cursor,
                cluster=sender.cluster,
                host=sender.host,
                journal=UUID(batch.journal),
                sequence=batch.last,
                jobs=batch.jobs,
                size_bytes=batch.size_bytes,
                captured_at=moment_of(batch.captured_at),
                data=batch.content,
                most_bytes=self._most_bytes,
                sinks=sender.sinks,
            )
        self._broker.wake()

    def report(self, detail: Mapping[str, Any]) -> None:
        cluster, host = self._sender.cluster, self._sender.host
        with self._asking() as database:
            known = json.dumps({**detail, "cluster": cluster, "host": host})
            database.execute(_REPORT, (f"capture {cluster} on {host}", known))

    def masking_rules(self) -> list[Rule]:
        with self._asking() as database:
            return [Rule(*row) for row in database.execute(_RULES)]

    def undelivered(self, journal: str) -> int:
        if not self._sender.sinks:
            return 0
        with self._asking() as database:
            row = database.execute(_UNDELIVERED, (journal,)).fetchone()
            return int(row[0]) if row else 0

    def close(self) -> None:
        self._broker.close()
        if self._connection:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _asking(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection, and tell what its errors mean."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._conninfo, autocommit=True)
                self._connection.execute(f"SET statement_timeout = '{_STATEMENT_SECONDS}s'")
            yield self._connection
        except IntakeFull as error:
            raise PortalAway(str(error)) from error
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise BatchRefused(str(error).strip()) from error
        except psycopg.Error as error:
            self.close()
            raise PortalAway(str(error).strip() or type(error).__name__) from error
