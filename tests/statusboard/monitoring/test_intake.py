"""Payloads are kept on disk before they are answered, and reach the database once,
whatever dies meanwhile.
"""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import OperationalError

from apps.statusboard.domain.monitoring import source_tokens
from apps.statusboard.domain.monitoring.intake import accept_payload, pump
from apps.statusboard.domain.monitoring.intake_journal import AlertJournal
from apps.statusboard.domain.monitoring.payloads import parse_waiting_payload
from apps.statusboard.domain.monitoring.source_tokens import KnownTokens, TokensUnknown
from apps.statusboard.domain.monitoring.sources import add_token, create_source
from apps.statusboard.models import MonitoringSource, RawPayload
from apps.statusboard.tasks import parse_waiting
from tests.factories.statusboard import alert, message, source

ROOT = Path(__file__).parents[3]
WRITER = """
import sys
from pathlib import Path
from apps.statusboard.domain.monitoring.intake_journal import AlertJournal
journal = AlertJournal(Path(sys.argv[1]))
for number in range(1_000_000):
    journal.append(b"%d" % number)
    print(number, flush=True)
"""


def lines(journal: AlertJournal) -> list[bytes]:
    return [line for path in journal.ended_files() for line in path.read_bytes().splitlines()]


def test_payload_is_stored_with_its_own_time_and_parsed(journal, db, at):
    made = source(at)
    accept_payload(source_id=made.pk, body=message(alert(at, service="samweb")), at=at)
    assert pump() == 1
    payload = RawPayload.objects.get()
    assert (payload.source, payload.received_at, payload.state) == (made, at, "received")
    parse_waiting()
    payload.refresh_from_db()
    assert (payload.state, payload.unmapped) == ("parsed", 1)
    assert not parse_waiting_payload(payload_id=payload.pk, at=at)
    assert pump() == 0
    assert list(journal.directory.glob("*.journal")) == []


def test_payload_stays_while_the_database_is_away_and_is_stored_once(journal, db, at, monkeypatch):
    made = source(at)
    for body in (b"1", b"2"):
        accept_payload(source_id=made.pk, body=body, at=at)

    def away(*_, **__):
        raise OperationalError("away")

    with monkeypatch.context() as patched:
        patched.setattr(RawPayload.objects, "bulk_create", away)
        for _ in range(3):
            with pytest.raises(OperationalError):
                pump()
    accept_payload(source_id=made.pk, body=b"3", at=at)
    kept = {path: path.read_bytes() for path in journal.ended_files()}
    assert len(kept) == 1
    assert pump() == 3
    # This is the state after a crash between the commit and the end of the file.
    for (
        path,
        content,
    ) in kept.items():
        path.write_bytes(content)
    assert pump() == 2
    assert sorted(bytes(row.body) for row in RawPayload.objects.all()) == [b"1", b"2", b"3"]


def test_journal_of_a_killed_process_has_every_line_that_was_answered(journal):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(journal.directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    seen = [writer.stdout.readline() for _ in range(20)]
    assert lines(journal) == []  # locked by its writer
    os.kill(writer.pid, signal.SIGKILL)
    answered = int((seen + writer.stdout.read().splitlines())[-1])
    writer.wait()
    assert lines(journal)[: answered + 1] == [b"%d" % number for number in range(answered + 1)]


def test_threads_lose_no_line_while_files_are_ended(journal):
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(journal.append, b"%d" % number) for number in range(200)]
        for _ in range(20):
            journal.end_file()
        for each in waiting:
            each.result()
    journal.end_file()
    assert sorted(map(int, lines(journal))) == list(range(200))


def test_half_a_line_is_no_payload_and_a_damaged_one_is_kept_aside(journal, db, at):
    made = source(at)
    accept_payload(source_id=made.pk, body=b"1", at=at)
    journal.end_file()
    path = next(journal.ended_files())
    path.write_bytes(b"damaged\n" + path.read_bytes() + b'{"receipt": "')
    assert pump() == 1
    assert [each.suffix for each in journal.directory.iterdir()] == [".damaged"]
    assert bytes(RawPayload.objects.get().body) == b"1"


def test_payload_of_a_source_that_was_deleted_is_dropped_alone(journal, db, at):
    gone, kept = source(at, "gone"), source(at, "kept")
    for each in (gone, kept):
        accept_payload(source_id=each.pk, body=b"{}", at=at)
    gone.delete()
    pump()
    assert RawPayload.objects.get().source == kept


def test_tokens_are_checked_while_the_database_is_away_also_by_a_new_process(
    tmp_path, db, at, monkeypatch
):
    made, token = create_source(slug="prometheus", by="test", at=at)
    known = KnownTokens(tmp_path / "tokens.json")
    assert known.source_of("prometheus", token) == made.pk
    assert known.source_of("prometheus", "wrong") is None
    assert known.file.stat().st_mode & 0o777 == 0o600
    assert token not in known.file.read_text()

    def away(*_, **__):
        raise OperationalError("away")

    later = add_token(source=made, by="test", at=at)
    monkeypatch.setattr(source_tokens.MonitoringSource.objects, "values_list", away)
    for each in (known, KnownTokens(known.file)):
        assert each.source_of("prometheus", token) == made.pk
        with pytest.raises(TokensUnknown):
            each.source_of("prometheus", later)
    with pytest.raises(TokensUnknown):
        KnownTokens(tmp_path / "none").source_of("prometheus", token)
    monkeypatch.undo()
    assert MonitoringSource.objects.count() == 1
