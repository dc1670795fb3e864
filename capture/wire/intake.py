"""Hands a batch over to the portal's database: one row, durable once committed.

Independent of Django.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from psycopg import Cursor

QUEUE, TASK = "archive", "archive.archive_batches"
#: Messages only wake workers up, each for all that is there: more of them need not wait.
MOST_WAITING = 16
_INSERT = """
    WITH handed_over AS (
        INSERT INTO archive_intakejournal AS known (journal, sequence)
        SELECT %(journal)s::uuid, %(sequence)s::bigint
        WHERE (SELECT coalesce(sum(octet_length(data)), 0) FROM archive_intakebatch) < %(most_bytes)s
        ON CONFLICT (journal) DO UPDATE SET sequence = excluded.sequence WHERE known.sequence < excluded.sequence
        RETURNING journal
    )
    INSERT INTO archive_intakebatch (cluster, host, journal, jobs, size_bytes, captured_at, data, sinks)
    SELECT %(cluster)s::text, %(host)s::text, journal, %(jobs)s::int, %(size_bytes)s::bigint,
        %(captured_at)s::timestamptz, %(data)b::bytea, %(sinks)s::text[]
    FROM handed_over
    RETURNING id"""
_KNOWN = (
    "SELECT sequence FROM archive_intakejournal WHERE journal = %(journal)s::uuid AND sequence >= "
    "%(sequence)s"
)


class IntakeFull(Exception):
    """Too much waits in the database for its sinks already: keep the batch and try again later."""


class JournalOutdated(Exception):
    """Later batches of this journal came already: it was restored from a copy,
    and gives numbers a second time.
    """


def insert_batch(
    cursor: "Cursor",
    *,
    cluster: str,
    host: str,
    journal: UUID,
    sequence: int,
    jobs: int,
    size_bytes: int,
    captured_at: datetime,
    data: bytes,
    most_bytes: int,
    sinks: Sequence[str] = (),
) -> bool:
    """Keep packed jobs as one row.

    Returns whether it was new: the batches of a journal come in order, each once.

    `sequence` is the number of the batch's last job in its journal, `captured_at` the time of the
    oldest, `size_bytes` the unpacked size; `sinks` are URLs beside those of ARCHIVE_SINKS,
    `most_bytes` is ARCHIVE_INTAKE_MAX_BYTES. Raises `IntakeFull` and `JournalOutdated`.
    """
    values = {
        "cluster": cluster,
        "host": host,
        "journal": journal,
        "sequence": sequence,
        "jobs": jobs,
        "size_bytes": size_bytes,
        "captured_at": captured_at,
        "data": data,
        "sinks": list(sinks),
        "most_bytes": most_bytes,
    }
    if cursor.execute(_INSERT, values).fetchone():
        return True
    if known := cursor.execute(_KNOWN, values).fetchone():
        if known[0] > sequence:
            raise JournalOutdated(
                f"batches of the journal {journal} have come up to job {known[0]}"
            )
        return False
    raise IntakeFull(f"{most_bytes:,} bytes of captured jobs wait for their sinks")
