"""What capture says of itself, also when something of it is not well."""

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from apps.archive.capture import heartbeat
from apps.archive.capture.heartbeat import Heart
from apps.archive.capture.journal.journal import Journal
from apps.archive.capture.masking_rules import KeptRules
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from apps.core.domain.masking import Masker, Rule
from tests.factories.archive import captured_job, with_identity

from .capturing import MemorySink, capture_of
from .conftest import wait_for


class Place:
    """A portal that counts how often it was told and asked."""

    def __init__(self):
        self.told, self.asked = 0, 0

    def report(self, cluster, report):
        self.told += 1

    def masking_rules(self):
        self.asked += 1
        return [Rule("name", "^PIN$")]

    def close(self):
        pass


def masker(rules):
    return Masker(names="", key=b"key", rules=rules)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal", sinks=["store"])


@pytest.fixture
def capture(spool, journal):
    return capture_of(SlurmSpool(spool), journal, MemorySink())


def test_rules_arrive_and_the_heart_beats_on_where_the_journal_cannot_be_asked(capture, journal, tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    journal.close()
    place, rules = Place(), KeptRules(tmp_path)
    beating = Heart(cluster="alps", places=[place], rules=rules, masker=masker)
    thread = threading.Thread(target=beating.beat_for, args=(capture,))
    thread.start()
    try:
        wait_for(lambda: place.asked > 2)
    finally:
        beating.stop()
        thread.join(10)

    assert place.told == 0
    assert rules.rules == (Rule("name", "^PIN$"),)


def test_no_sink_is_ahead_of_its_time_after_the_clock_was_set_back(capture, journal):
    with closing(journal):
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        journal.add(with_identity(captured_job(1, captured_at=tomorrow)))

        report = capture.report().sinks["store"]

    assert (report.behind, report.lag_seconds) == (1, 0)
