"""The portal's API, and the portals of the tests of capture, to one contract."""

from contextlib import closing
from uuid import uuid4

import pytest

from apps.archive.domain.capture_hosts import create_capture_host
from apps.archive.models import IntakeBatch, IntakeJournal
from apps.core.domain.secrets.masking import MaskPattern
from apps.core.models import Heartbeat
from apps.jobs.models import MaskingRule
from capture.journal.journal import JournaledBatch
from capture.portal import HttpPortal, JournalOutdated, PortalAway
from capture.wire.batches import microseconds, pack, unpack
from tests.factories.archive import START, captured_job
from tests.factories.capture import DirectPortal

from .capturing import MemoryPortal

MOST_BYTES = 100_000


JOURNAL = uuid4().hex


def batch_of(*jobs, last=None, journal=JOURNAL):
    size = sum(job.size_bytes for job in jobs)
    return JournaledBatch(
        last or len(jobs), len(jobs), microseconds(START), size, pack(jobs), journal
    )


class Contract:
    """What `HandOver` relies on.

    `portal` opens it for a journal, `kept` returns its jobs in the order of arrival.

    `noted` is the sender that the portal notes with each job.
    """

    noted = ""

    def test_each_batch_is_kept_once_and_answered_alike_when_it_comes_again(self, portal, kept):
        with closing(portal()) as open_portal:
            for _ in range(2):
                open_portal.take(batch_of(captured_job(1), captured_job(2)))
            open_portal.take(batch_of(captured_job(3), last=3))
            open_portal.take(batch_of(captured_job(3), last=3))
        assert kept() == [captured_job(number, sender=self.noted) for number in (1, 2, 3)]

    def test_journal_that_begins_again_in_the_middle_is_told_so(self, portal, kept):
        with closing(portal()) as open_portal:
            open_portal.take(batch_of(captured_job(1), last=7))
            with pytest.raises(JournalOutdated):
                open_portal.take(batch_of(captured_job(2), last=6))
            open_portal.take(batch_of(captured_job(2), last=6, journal=uuid4().hex))
        assert len(kept()) == 2

    def test_rules_are_those_in_force(self, portal, rules):
        with closing(portal()) as open_portal:
            assert open_portal.masking_rules() == []
            rules(MaskPattern("name", "^PIN$"))
            assert open_portal.masking_rules() == [MaskPattern("name", "^PIN$")]

    def test_closed_portal_opens_again(self, portal, kept):
        open_portal = portal()
        for number in (1, 2):
            open_portal.take(batch_of(captured_job(number), last=number))
            open_portal.close()
        assert len(kept()) == 2


class TestMemory(Contract):
    @pytest.fixture
    def memory(self):
        return MemoryPortal()

    @pytest.fixture
    def portal(self, memory):
        return lambda: memory

    @pytest.fixture
    def kept(self, memory):
        return lambda: memory.jobs

    @pytest.fixture
    def rules(self, memory):
        return memory.rules.append


@pytest.mark.django_db(transaction=True)
class RealContract(Contract):
    """With the portal's own tables behind."""

    @pytest.fixture
    def kept(self):
        return lambda: [
            job for row in IntakeBatch.objects.order_by("pk") for job in unpack([bytes(row.data)])
        ]

    @pytest.fixture
    def rules(self):
        def add(rule):
            MaskingRule.objects.create(applies_to=rule.applies_to, pattern=rule.pattern)
            MaskingRule.objects.create(applies_to="name", pattern="^off$", enabled=False)

        return add

    def test_row_says_where_it_is_from(self, portal):
        with closing(portal()) as open_portal:
            open_portal.take(batch_of(captured_job(1), captured_job(2), last=7))
        row = IntakeBatch.objects.get()
        assert (row.cluster, row.host, row.journal.hex) == ("alps", self.host, JOURNAL)
        assert IntakeJournal.objects.get(journal=row.journal).sequence == 7
        assert (row.jobs, row.size_bytes, row.routed) == (
            2,
            2 * captured_job(1).size_bytes,
            False,
        )


class TestDirect(RealContract):
    host = "here"

    @pytest.fixture
    def portal(self):
        return lambda: DirectPortal("alps")


class TestHttp(RealContract):
    noted = host = "scheduler-1"

    @pytest.fixture
    def portal(self, live_server):
        _, token = create_capture_host(name="scheduler-1", clusters=["alps"], by="test", at=START)
        return lambda: HttpPortal(f"{live_server.url}/", token, "alps")

    def test_report_is_a_heartbeat_with_its_place(self, portal):
        with closing(portal()) as open_portal:
            for captured in (1, 2):
                open_portal.report({"captured": captured, "unreadable": {"/a": r"bad \x00"}})
        heart = Heartbeat.objects.get()
        assert heart.name == "capture alps on scheduler-1"
        found = {name: heart.detail[name] for name in ("captured", "cluster", "host", "unreadable")}
        assert found == {
            "captured": 2,
            "cluster": "alps",
            "host": "scheduler-1",
            "unreadable": {"/a": r"bad \x00"},
        }

    def test_full_intake_is_a_portal_that_is_away(self, portal, settings):
        settings.ARCHIVE_INTAKE_MAX_BYTES = MOST_BYTES
        with closing(portal()) as open_portal:
            IntakeBatch.objects.create(
                cluster="a",
                host="b",
                jobs=1,
                size_bytes=1,
                captured_at=START,
                data=bytes(MOST_BYTES),
            )
            with pytest.raises(PortalAway, match="100,000 bytes of captured jobs wait"):
                open_portal.take(batch_of(captured_job(1)))
            IntakeBatch.objects.all().delete()
            open_portal.take(batch_of(captured_job(1)))
        assert IntakeBatch.objects.count() == 1
