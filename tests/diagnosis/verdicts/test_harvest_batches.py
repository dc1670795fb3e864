"""Many jobs harvested together: few queries, one bad log, limits, a killed worker,
a user who waits.
"""

import gzip
import os
from datetime import timedelta

import pytest
from django.db import DataError, connection
from django.test.utils import CaptureQueriesContext

from apps.core.models import Event
from apps.diagnosis import tasks, wording
from apps.diagnosis.domain.verdicts import analyses
from apps.diagnosis.domain.verdicts import harvest as harvest_module
from apps.diagnosis.domain.verdicts.harvest import (
    RUN_TIMEOUT,
    harvest_batch,
    queue_harvests,
    reanalyse_log,
    requeue_overdue,
)
from apps.diagnosis.engine.logs import compressed
from apps.diagnosis.models import Evidence, FailureGroup, LogExcerpt, LogHarvest, Verdict

FATAL = "start\n[FATAL] Auth failed\n"


@pytest.fixture
def queued(make_job, at):
    """Queue a harvest for each of so many jobs, of which each has a log."""

    def queue(count: int) -> list[int]:
        numbers = [make_job.next_number() for _ in range(count)]
        jobs = [make_job(number, log=f"{FATAL}KeyError: 'x{number}'\n") for number in numbers]
        queue_harvests(job_pks=[job.pk for job in jobs], at=at)
        return [job.pk for job in jobs]

    return queue


def states() -> list[str]:
    return list(LogHarvest.objects.order_by("pk").values_list("state", flat=True))


def test_batch_costs_as_many_queries_as_a_single_job(queued, at):
    queued(1)
    assert harvest_batch(at=at) == 1  # which also makes the group
    counts = []
    for count in (1, 12):
        queued(count)
        with CaptureQueriesContext(connection) as queries:
            assert harvest_batch(at=at) == count
        counts.append(len(queries))
    assert counts[0] == counts[1] < 40
    assert (Verdict.objects.count(), LogExcerpt.objects.count(), FailureGroup.objects.count()) == (
        14,
        14,
        1,
    )
    assert Event.objects.filter(kind="verdict.decided").count() == 14
    assert set(states()) == {"done"}


def test_what_cannot_be_stored_costs_its_own_job_only(queued, at, monkeypatch):
    bad = queued(3)[1]
    real = harvest_module.store_verdicts

    def refuse(decisions, *, at):
        if any(decision.job.pk == bad and decision.verdict.cause for decision in decisions):
            raise DataError("value out of range")
        real(decisions, at=at)

    monkeypatch.setattr(harvest_module, "store_verdicts", refuse)
    assert harvest_batch(at=at) == 3
    assert states() == ["done", "failed", "done"]
    assert LogHarvest.objects.get(job=bad).last_error == "DataError: value out of range"
    assert list(Verdict.objects.order_by("job").values_list("cause", flat=True)) == [
        "XRD-AUTH",
        "",
        "XRD-AUTH",
    ]
    assert Evidence.objects.filter(harvest__job=bad).count() == 0


@pytest.mark.parametrize("limit", ["BATCH_SECONDS", "BATCH_BYTES"])
def test_batch_that_takes_long_or_much_gives_the_rest_back(queued, at, monkeypatch, limit):
    monkeypatch.setattr(harvest_module, limit, -1)
    queued(3)
    for done in (1, 2, 3):
        harvest_batch(at=at)
        assert states().count("done") == done
    assert set(LogHarvest.objects.values_list("attempts", flat=True)) == {1}


def test_log_that_kills_its_worker_keeps_no_other_waiting(queued, at, monkeypatch):
    """The batch leaves nothing, and its jobs are harvested one by one:
    all but the one that kills.
    """
    bad = queued(3)[1]
    real = analyses.diagnose

    def killing(facts, *given, **more):
        if killing.at == bad:
            raise KeyboardInterrupt
        return real(facts, *given, **more)

    def noted(job, **more):
        killing.at = job.pk
        return facts_of(job, **more)

    facts_of = analyses.facts_of
    monkeypatch.setattr(analyses, "facts_of", noted)
    monkeypatch.setattr(analyses, "diagnose", killing)
    with pytest.raises(KeyboardInterrupt):
        harvest_batch(at=at)
    assert (states(), Verdict.objects.count()) == (["running"] * 3, 0)
    later = at + RUN_TIMEOUT + timedelta(seconds=1)
    assert requeue_overdue(at=later) == 3
    for _ in range(3):
        try:
            harvest_batch(at=later)
        except KeyboardInterrupt:
            continue
    assert states() == ["done", "running", "done"]
    assert Verdict.objects.count() == 2
    monkeypatch.undo()
    requeue_overdue(at=later + RUN_TIMEOUT)
    harvest_batch(at=later + RUN_TIMEOUT)
    assert set(states()) == {"done"}
    assert not LogHarvest.objects.filter(interrupted=True).exists()


def test_worker_takes_a_short_turn_and_asks_for_the_next(
    queued, monkeypatch, shifter, make_job, at
):
    """So the message of a user who waits is the next one."""
    monkeypatch.setattr(tasks, "TURN_SECONDS", 0)
    monkeypatch.setattr(harvest_module, "BATCH", 2)
    sent = []
    monkeypatch.setattr(
        harvest_module,
        "enqueue",
        lambda task, **given: sent.append((task.rpartition(".")[2], given)),
    )
    queued(3)
    tasks.harvest_logs()
    assert sorted(states()) == ["done", "done", "queued"]
    assert [task for task, _ in sent] == ["harvest_logs", "harvest_logs"]
    waiting = reanalyse_log(job=make_job(log=FATAL), by=shifter, at=at)
    assert sent[-1] == ("harvest_log", {"harvest_id": waiting.pk})


def grow(path):
    with path.open("ab") as file:
        file.write(b"more\n")


def replace_it(path):
    path.with_suffix(".new").write_text("of another\n")
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (grow, wording.LOG_GREW),
        (lambda path: os.truncate(path, 5), wording.LOG_SHRANK),
        (replace_it, wording.LOG_REPLACED),
    ],
)
def test_log_that_changes_while_it_is_read_is_judged_and_the_reasons_say_so(
    make_job, at, roots, monkeypatch, change, reason
):
    real = analyses.read_log

    def read(descriptor, part):
        change(roots / "1.out")
        return real(descriptor, part)

    monkeypatch.setattr(analyses, "read_log", read)
    queue_harvests(job_pks=[make_job(log=FATAL).pk], at=at)
    harvest_batch(at=at)
    assert states() == ["done"]
    assert [each["text"] for each in Verdict.objects.get().reasons][-1] == reason


def bomb(path):
    path.write_bytes(gzip.compress(bytes(20_000_000)))


def long_line(path):
    with path.open("wb") as file:
        file.truncate(2 * 1024**3)
        file.seek(2 * 1024**3)
        file.write(FATAL.encode())


def not_utf8(path):
    path.write_bytes(b"\xff\xfe\xc3( \x80\n" + FATAL.encode())


@pytest.mark.parametrize(
    ("write", "cause"), [(bomb, ""), (long_line, "XRD-AUTH"), (not_utf8, "XRD-AUTH")]
)
def test_hostile_logs_are_judged(make_job, at, roots, monkeypatch, write, cause):
    monkeypatch.setattr(compressed, "OUTPUT_BYTES", 10_000_000)
    write(roots / "1.out")
    queue_harvests(job_pks=[make_job().pk], at=at)
    harvest_batch(at=at)
    assert (states(), Verdict.objects.get().cause) == (["done"], cause)
    assert len(LogExcerpt.objects.get().data) <= 64 * 1024
