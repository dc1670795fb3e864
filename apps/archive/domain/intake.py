"""The intake: batches of captured jobs on their way to the sinks."""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from psycopg import Cursor

from apps.archive.wire.intake import insert_batch


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
    """Keep a batch that a host has handed over; return whether it was new. See `insert_batch`. Raises `IntakeFull`."""
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
