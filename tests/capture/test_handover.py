"""How the journal's batches reach a portal that is away, takes only small ones, or refuses some."""

import os
import shutil
import signal
from contextlib import closing, suppress

import pytest

from apps.core.domain.secrets.masking import MaskPattern
from capture.journal.journal import Journal, JournalError
from capture.masking_rules import KeptRules
from capture.process import HandOverProcess, JournalDied
from tests.archive.conftest import wait_for
from tests.factories.archive import captured_job, with_identity
from tests.programs.small_disk import small_disk

from .capturing import MemoryPortal, handing_over


@pytest.fixture
def portal():
    return MemoryPortal()


def test_batches_that_are_too_large_become_smaller_and_arrive_in_order(journal, portal):
    portal.most_jobs = 3
    journal.add(with_identity(*(captured_job(number) for number in range(1, 11))))
    with handing_over(journal, portal) as hand_over:
        wait_for(lambda: hand_over.backlog().behind == 0)
        assert hand_over.backlog().handed_over == 10
    assert [int(job.job_id) for job in portal.jobs] == [*range(1, 11)]


def test_single_job_that_is_too_large_is_kept_and_named_and_holds_up_none(journal, portal):
    portal.most_jobs = 0
    journal.add(with_identity(captured_job(1)))
    with handing_over(journal, portal) as hand_over:
        wait_for(lambda: hand_over.backlog().refused == 1)
        portal.most_jobs = 1
        journal.add(with_identity(captured_job(2)))
        wait_for(lambda: portal.ids == [2])
        backlog = hand_over.backlog()
        assert (backlog.why_refused, backlog.portal_error) == ("no more than 0", "")


def test_what_was_refused_is_handed_over_at_the_next_start(tmp_path, portal):
    portal.refuses = {"1"}
    with closing(Journal(tmp_path)) as journal:
        for number in (1, 2):
            journal.add(with_identity(captured_job(number)))
        with handing_over(journal, portal):
            wait_for(lambda: portal.ids == [2])
    portal.refuses = set()
    with closing(Journal(tmp_path)) as journal, handing_over(journal, portal):
        wait_for(lambda: portal.ids == [1, 2])


@pytest.mark.parametrize("handed_over", [1, 2])
def test_journal_that_was_restored_from_a_copy_loses_nothing(tmp_path, portal, handed_over):
    """It gives out numbers that the portal knows, for other jobs."""
    with closing(Journal(tmp_path / "journal")) as journal:
        journal.add(with_identity(captured_job(1)))
    shutil.copytree(tmp_path / "journal", tmp_path / "copy")
    with closing(Journal(tmp_path / "journal")) as journal, handing_over(journal, portal):
        if handed_over == 2:
            journal.add(with_identity(captured_job(2)))
        wait_for(lambda: len(portal.ids) == handed_over)
    with closing(Journal(tmp_path / "copy")) as journal, handing_over(journal, portal):
        journal.add(with_identity(captured_job(3)))
        wait_for(lambda: 3 in portal.ids)
    assert {*portal.ids} == {*range(1, handed_over + 1), 3}


def test_portal_that_is_away_is_asked_ever_more_rarely_and_told_of_once(journal, portal, caplog):
    portal.away = True
    journal.add(with_identity(captured_job(1)))
    with handing_over(journal, portal) as hand_over:
        wait_for(lambda: hand_over._failures == 3)
        portal.away = False
        wait_for(lambda: portal.ids == [1])
        hand_over.send_report(None)
        wait_for(lambda: hand_over.backlog().portal_error == "")
    told = [message for message in caplog.messages if "connection refused" in message]
    assert told == ["report: connection refused"]


def test_rules_are_kept_for_a_start_without_the_portal(journal, portal):
    portal.rules = [MaskPattern("name", "^PIN$")]
    with handing_over(journal, portal) as hand_over:
        assert hand_over.first_rules(30, at_once=False) == (MaskPattern("name", "^PIN$"),)
    portal.away = True
    with handing_over(journal, portal) as hand_over:
        assert hand_over.first_rules(30, at_once=False) == (MaskPattern("name", "^PIN$"),)
    assert KeptRules(journal.directory).rules == (MaskPattern("name", "^PIN$"),)


def test_portal_gets_nothing_twice_where_others_fill_the_disk_to_its_last_byte(tmp_path):
    """That the portal has it cannot be noted then; it is noted later,
    and the batch is not sent again.
    """
    with small_disk(tmp_path / "disk", 8 * 1024 * 1024) as disk:

        class FillingPortal(MemoryPortal):
            taken = 0

            def take(self, batch):
                self.taken += 1
                with (disk / "filler").open("ab", buffering=0) as filler, suppress(OSError):
                    while filler.write(bytes(4096)):
                        pass
                super().take(batch)

        with closing(Journal(disk / "journal", reserve_bytes=0)) as journal:
            journal.add(with_identity(captured_job(1), captured_job(2)))
            portal = FillingPortal()
            with handing_over(journal, portal) as hand_over:
                wait_for(lambda: hand_over._failures > 1)
                assert "full" in hand_over.backlog().portal_error
                (disk / "filler").unlink()
                wait_for(lambda: hand_over.backlog().behind == 0)
        assert (portal.taken, portal.ids) == (1, [1, 2])


class Process(HandOverProcess):
    def __init__(self, directory):
        super().__init__(directory, MemoryPortal())


def test_process_does_what_it_stands_for_and_tells_what_goes_wrong(tmp_path):
    with closing(Process(tmp_path)) as process:
        process.start()
        assert process.first_rules(30, False) == ()
        assert process.add(with_identity(captured_job(1))) == 1
        assert list(process.known("alps")) == ["1"]
        wait_for(lambda: process.backlog().handed_over == 1)
        process.stop()
        (tmp_path / "masking-rules.json").write_text("{")
    with pytest.raises(JournalError, match=r"masking-rules\.json"):
        Process(tmp_path)


def test_process_that_died_is_told_of(tmp_path):
    with closing(Process(tmp_path)) as process:
        os.kill(process._pid, signal.SIGKILL)
        with pytest.raises(JournalDied):
            process.backlog()
