"""The intake: batches of captured jobs on their way to the sinks."""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from psycopg import Cursor

from apps.core.domain.background import enqueue
from capture.wire.intake import MOST_WAITING, QUEUE, TASK, insert_batch


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
    """Keep a batch that a host has handed over; return whether it was new.

    See `insert_batch`. Raises `IntakeFull`.
    """
    wake_workers()
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        return insert_batch(
            cursor,
            cluster=cluster,
            host=host,
            journal=journal,
            sequence=sequence,
            jobs=jobs,
            size_bytes=size_bytes,
            captured_at=captured_at,
            data=data,
            most_bytes=settings.ARCHIVE_INTAKE_MAX_BYTES,
        )


def wake_workers(queue: str = QUEUE, *, countdown: float = 0) -> None:
    """Let a worker of this queue look for batches, `countdown` seconds later.

    Beat does so too, every few seconds.
    """
    enqueue(TASK, queue=queue, most_waiting=MOST_WAITING, countdown=countdown)
