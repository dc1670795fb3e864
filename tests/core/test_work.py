"""Queues of work, moved by random steps, by several workers at once, and by kills."""

import multiprocessing
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.domain.work import BackOff, Queue, queue_figures
from apps.core.models import Delivery, Event, Heartbeat

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LEASE = timedelta(seconds=10)
QUEUE = Queue(
    name="test",
    title="Test",
    model=Delivery,
    unfinished_rows=Q(delivered_at=None),
    back_off=BackOff((5, 30, 120)),
    lease=LEASE,
)
WORKERS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, WORKERS - 1), st.integers(1, 3)),
        st.tuples(st.sampled_from(["finish", "fail", "release", "kill"]), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 9, 10, 30, 120])),
    ),
    max_size=40,
)


def create_rows(count, due_at=START):
    event = Event.objects.create(
        kind="thing.happened", target_type="x", target_id="1", target_label="x", actor="x", at=START
    )
    rows = [Delivery(event=event, subscriber=f"s{n}", due_at=due_at) for n in range(count)]
    return Delivery.objects.bulk_create(rows)


def finish(row, at):
    Delivery.objects.filter(pk=row.pk).update(delivered_at=at)


class Play:
    """Workers that claim rows, and what each of them believes to have."""

    def __init__(self):
        self.at = START
        self.claims = {worker: [] for worker in range(WORKERS)}
        self.finished = []

    def do(self, name, *arguments):
        getattr(self, f"do_{name}")(*arguments)

    def do_claim(self, worker, limit):
        attempts = dict(Delivery.objects.values_list("pk", "attempts"))
        rows = QUEUE.claim(QUEUE.due(self.at)[:limit], at=self.at)
        for row in rows:
            assert row.attempts == attempts[row.pk] + 1
            assert row.due_at >= self.at + LEASE
        self.claims[worker] += rows

    def take_held(self, worker):
        held = QUEUE.hold(self.claims[worker])
        self.claims[worker] = []
        return held

    def do_finish(self, worker):
        for row in self.take_held(worker):
            finish(row, self.at)
            self.finished.append(row.pk)

    def do_fail(self, worker):
        for row in self.claims[worker]:
            held = QUEUE.hold([row])
            assert QUEUE.fail(row, "no luck", at=self.at) == bool(held)
            if held:
                row.refresh_from_db()
                assert row.due_at == self.at + QUEUE.back_off.after(row.attempts)
                assert QUEUE.failing().filter(pk=row.pk).exists()
        self.claims[worker] = []

    def do_release(self, worker):
        held = QUEUE.hold(self.claims[worker])
        QUEUE.release(self.claims[worker], due_at=self.at)
        self.claims[worker] = []
        for row in held:
            claimed_attempts = row.attempts
            row.refresh_from_db()
            assert (row.attempts, row.due_at) == (claimed_attempts - 1, self.at)

    def do_kill(self, worker):
        """The worker is gone, with all that it knew."""
        self.claims[worker] = []

    def do_wait(self, seconds):
        self.at += timedelta(seconds=seconds)

    def check(self):
        held = [row.pk for claims in self.claims.values() for row in QUEUE.hold(claims)]
        assert len(held) == len(set(held)), "two workers hold one row"
        assert len(self.finished) == len(set(self.finished)), "done twice"


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_no_row_is_held_twice_or_lost_whatever_the_order(db, steps):
    with transaction.atomic():
        rows = create_rows(4)
        play = Play()
        for step in steps:
            play.do(*step)
            play.check()

        for worker in range(WORKERS):
            play.do_kill(worker)
        for _ in rows:
            play.do_wait(120)
            play.do_claim(0, 4)
            play.do_finish(0)
        assert sorted(play.finished) == [row.pk for row in rows]
        transaction.set_rollback(True)


@given(seconds=st.lists(st.floats(0, 1e6), min_size=1).map(sorted), failures=st.integers(1, 50))
def test_back_off_never_gets_shorter(seconds, failures):
    back_off = BackOff(tuple(seconds))
    assert back_off.after(failures) <= back_off.after(failures + 1)
    assert back_off.after(len(seconds)) == back_off.after(len(seconds) + failures)


def test_row_that_kills_workers_waits_longer_each_time(db):
    create_rows(1)
    at, waits = START, []
    for _ in range(4):
        [row] = QUEUE.claim(QUEUE.due(at), at=at)
        assert not QUEUE.due(row.due_at - timedelta(seconds=1)).exists()
        waits.append((row.due_at - at).total_seconds())
        at = row.due_at
    assert waits == [10, 30, 120, 120]
    assert QUEUE.failing().exists()


def test_late_result_of_a_lost_claim_is_refused(db):
    create_rows(1)
    [lost] = QUEUE.claim(QUEUE.due(START), at=START)
    [newer] = QUEUE.claim(QUEUE.due(START + LEASE), at=START + LEASE)
    assert QUEUE.hold([lost]) == []
    assert not QUEUE.fail(lost, "late", at=START)
    QUEUE.release([lost], due_at=START)
    assert QUEUE.hold([newer]) == [newer]


def test_failed_work_leaves_nothing_and_is_recorded(db):
    create_rows(1)

    def handle(row):
        Heartbeat.objects.create(name="written", at=START)
        raise KeyError("x\0y")

    assert not QUEUE.process(QUEUE.due(START), handle, at=START)
    row = Delivery.objects.get()
    assert row.last_error == r"KeyError: 'x\x00y'"
    assert row.due_at == START + timedelta(seconds=5)
    assert not Heartbeat.objects.exists()


def test_figures_count_what_is_unfinished(db):
    create_rows(3)
    [late, failed, done] = QUEUE.claim(QUEUE.due(START), at=START)
    QUEUE.release([late], due_at=START)
    QUEUE.fail(failed, "no luck", at=START)
    finish(done, START)
    empty = Queue(
        name="empty",
        title="Empty",
        model=Delivery,
        unfinished_rows=Q(pk=None),
        back_off=BackOff((1,)),
    )
    [figures, none] = queue_figures([QUEUE, empty], at=START + timedelta(seconds=4))
    assert (figures.length, figures.oldest_seconds, figures.failing) == (2, 4.0, 1)
    assert (none.length, none.oldest_seconds, none.failing) == (0, 0.0, 0)


#: What the processes work on: short waits, so that the test is short.
KILLED = Queue(
    name="killed",
    title="Killed",
    model=Delivery,
    unfinished_rows=Q(delivered_at=None),
    back_off=BackOff((0.1, 0.2)),
    lease=timedelta(seconds=0.2),
)


def work_until_all_is_done():
    """Run in a process of its own: do what is due, until nothing is unfinished."""

    def handle(row):
        Heartbeat.objects.create(name=f"done {row.pk}", at=timezone.now())
        time.sleep(0.01)
        finish(row, timezone.now())

    connection.connection = None  # one of the parent is not to be used, nor closed
    while KILLED.unfinished().exists():
        at = timezone.now()
        if not KILLED.process(KILLED.due(at), handle, at=at):
            time.sleep(0.02)


@pytest.mark.timeout(120)
def test_killed_processes_lose_and_double_nothing(transactional_db):
    rows = create_rows(300)
    processes = multiprocessing.get_context("fork")

    def start():
        connection.close()  # a process that is forked needs its own
        worker = processes.Process(target=work_until_all_is_done, daemon=True)
        worker.start()
        return worker

    workers = [start(), start(), start()]
    for _ in range(6):
        time.sleep(0.1)
        killed = workers.pop(0)
        killed.kill()
        killed.join()
        workers.append(start())
    assert KILLED.unfinished().exists(), "all was done before the last kill"
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0

    assert not KILLED.unfinished().exists()
    # Its name is unique: a row that was done twice would have failed.
    assert Heartbeat.objects.filter(name__startswith="done").count() == len(rows)
    assert not Delivery.objects.exclude(last_error="").exists()
