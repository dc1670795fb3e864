"""Migrations of the archive that change rows."""

from datetime import UTC, datetime

from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from apps.archive.models import SinkDelivery

CAPTURED = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CLAIMED = datetime(2026, 11, 20, 12, 5, tzinfo=UTC)


def migrate(name):
    executor = MigrationExecutor(connection)
    executor.migrate([("archive", name)])
    return executor.loader.project_state([("archive", name)]).apps


def test_batches_that_wait_are_due_after_the_migration(transactional_db):
    old = migrate("0003_capture_choice")
    try:
        sink = old.get_model("archive", "SinkState").objects.create(name="a", url="memory:a")
        for claimed_at in (None, CLAIMED):
            batch = old.get_model("archive", "IntakeBatch").objects.create(
                cluster="alps",
                host="h",
                jobs=1,
                size_bytes=1,
                captured_at=CAPTURED,
                data=b"",
            )
            old.get_model("archive", "SinkDelivery").objects.create(
                batch=batch, sink=sink, claimed_at=claimed_at
            )
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())
    rows = SinkDelivery.objects.order_by("batch")
    assert [row.due_at for row in rows] == [CAPTURED, CLAIMED]
