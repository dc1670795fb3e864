"""Accept payloads without waiting for the database.

Payloads are written to a journal on disk; a pump moves them to the database.
"""

import base64
import hashlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction

from apps.core.domain.background import enqueue
from apps.statusboard.domain.monitoring.intake_journal import AlertJournal
from apps.statusboard.models import MonitoringSource, RawPayload

log = logging.getLogger(__name__)

JOURNAL = AlertJournal(settings.VAR_DIR / "intake")
#: Payloads are stored in batches of at most this number and this size.
BATCH = 500
BATCH_BYTES = 8_000_000
#: After a batch, the pump rests for this multiple of the time the batch took. Requests wait for the
#: same disk and interpreter, and must not be delayed by a backlog.
REST = 4


@dataclass(frozen=True)
class _Entry:
    """A payload in the journal. A `receipt` is stored once, even if its file is read again."""

    receipt: UUID
    source_id: int
    at: datetime
    body: bytes


def accept_payload(*, source_id: int, body: bytes, at: datetime) -> None:
    """Write a payload to the journal; the pump stores it in the database. Raises `OSError`."""
    entry = {
        "receipt": str(uuid4()),
        "source": source_id,
        "at": at.isoformat(),
        "body": base64.b64encode(body).decode(),
    }
    JOURNAL.append(json.dumps(entry).encode())


def pump(journal: AlertJournal | None = None) -> int:
    """Store the payloads of the journal and queue their parsing; return their number.

    Complete files come first, before this process completes its own: while the database is
    unavailable, no new files are started. Raises `DatabaseError`, `OSError`; payloads that were not
    stored stay in the journal.
    """
    journal = journal or JOURNAL
    count = _store_ended(journal)
    journal.end_file()
    return count + _store_ended(journal)


def _store_ended(journal: AlertJournal) -> int:
    count = 0
    for path in journal.ended_files():
        entries: list[_Entry] = []
        size = damaged = 0
        for entry in _entries(path):
            if entry is None:
                damaged += 1
                continue
            entries.append(entry)
            size += len(entry.body)
            if len(entries) >= BATCH or size >= BATCH_BYTES:
                began = time.monotonic()
                _store(entries)
                count += len(entries)
                size = 0
                entries = []
                time.sleep(REST * (time.monotonic() - began))
        if entries:
            _store(entries)
        count += len(entries)
        if damaged:
            log.error(
                "%s: %d lines of the journal cannot be read; the file is kept as .damaged",
                path.name,
                damaged,
            )
            path.rename(path.with_suffix(".damaged"))
        else:
            path.unlink()
    return count


def _entries(path: Path) -> Iterator[_Entry | None]:
    """Yield the payloads of a file, None for a damaged line.

    A last line without a newline is skipped, because its sender was never answered.
    """
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                entry: dict[str, Any] = json.loads(line)
                body = base64.b64decode(entry["body"], validate=True)
                at = datetime.fromisoformat(entry["at"])
                yield _Entry(UUID(entry["receipt"]), int(entry["source"]), at, body)
            except (ValueError, KeyError, TypeError):
                yield None


@transaction.atomic
def _store(entries: list[_Entry]) -> None:
    """Store payloads once each; payloads of deleted sources are dropped."""
    source_ids = {entry.source_id for entry in entries}
    there = set(MonitoringSource.objects.filter(pk__in=source_ids).values_list("pk", flat=True))
    payloads = []
    for entry in entries:
        if entry.source_id in there:
            payload = RawPayload(
                source_id=entry.source_id,
                received_at=entry.at,
                due_at=entry.at,
                receipt=entry.receipt,
                sha256=hashlib.sha256(entry.body).hexdigest(),
                body=entry.body,
            )
            payloads.append(payload)
    RawPayload.objects.bulk_create(payloads, ignore_conflicts=True)
    enqueue("statusboard.parse_waiting")
