"""The intake: batches of captured jobs on their way to the sinks."""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from psycopg import Cursor

from apps.core.domain.background import enqueue

QUEUE, TASK = "archive", "archive.archive_batches"
#: A message only wakes a worker, which handles all batches: more messages need not wait.
MOST_WAITING = 16

_INSERT = """
    WITH handed_over AS (
        INSERT INTO archive_intakejournal AS known (journal, sequence)
        SELECT %(journal)s::uuid, %(sequence)s::bigint
        WHERE %(most_bytes)s > (
            SELECT coalesce(sum(octet_length(data)), 0) FROM archive_intakebatch
        )
        ON CONFLICT (journal) DO UPDATE SET sequence = excluded.sequence
            WHERE known.sequence < excluded.sequence
        RETURNING journal
    )
    INSERT INTO archive_intakebatch (cluster, host, journal, jobs, size_bytes, captured_at, data)
    SELECT %(cluster)s::text, %(host)s::text, journal, %(jobs)s::int, %(size_bytes)s::bigint,
        %(captured_at)s::timestamptz, %(data)b::bytea
    FROM handed_over
    RETURNING id"""
_KNOWN = (
    "SELECT sequence FROM archive_intakejournal WHERE journal = %(journal)s::uuid AND sequence >= "
    "%(sequence)s"
)


class IntakeFull(Exception):
    """Too many bytes wait for their sinks: keep the batch and try again later."""


class JournalOutdated(Exception):
    """Later batches of this journal have been received.

    The journal was restored from a copy, and reuses its numbers.
    """


@transaction.atomic
def accept_batch(
    *,
    cluster: str,
    host: str,
    journal: UUID,
    sequence: int,
    jobs: int,
    size_bytes: int,
    captured_at: datetime,
    data: bytes,
) -> bool:
    """Store packed jobs that a host has sent, as one row; return whether it is new.

    The batches of a journal come in order, each once. `sequence` is the number of the batch's last
    job in its journal, `captured_at` the time of the oldest job, `size_bytes` the unpacked size.
    Raises `IntakeFull` and `JournalOutdated`.
    """
    wake_workers()
    values = {
        "cluster": cluster,
        "host": host,
        "journal": journal,
        "sequence": sequence,
        "jobs": jobs,
        "size_bytes": size_bytes,
        "captured_at": captured_at,
        "data": data,
        "most_bytes": settings.ARCHIVE_INTAKE_MAX_BYTES,
    }
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        if cursor.execute(_INSERT, values).fetchone():
            return True
        known = cursor.execute(_KNOWN, values).fetchone()

    if known is None:
        raise IntakeFull(
            f"{settings.ARCHIVE_INTAKE_MAX_BYTES:,} bytes of captured jobs wait for their sinks"
        )
    if known[0] > sequence:
        raise JournalOutdated(f"batches of the journal {journal} have come up to job {known[0]}")
    return False


def wake_workers(queue: str = QUEUE, *, countdown: float = 0) -> None:
    """Let a worker of this queue check for batches after `countdown` seconds.

    Celery beat also does so every few seconds.
    """
    enqueue(TASK, queue=queue, most_waiting=MOST_WAITING, countdown=countdown)
