"""Totals by cause equal a recount, whatever happened in whatever order."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.diagnosis.domain.causes import recount_dirty_hours, wrong_hours
from apps.diagnosis.domain.groups import fingerprint_of
from apps.diagnosis.domain.harvest import harvest_log, queue_harvests
from apps.diagnosis.domain.verdicts import override_verdict
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, LogHarvest, Verdict
from apps.jobs.domain.records import hour_of
from apps.jobs.enums import Counted
from apps.jobs.models import DirtyHour

LOGS = ["[FATAL] Auth failed\n", "KeyError: 'x'\n", "nothing\n", "---- BadAlloc BEGIN\n"]


def recount():
    counted: dict[tuple, list[int]] = {}
    for verdict in Verdict.objects.select_related("job"):
        assert verdict.group.fingerprint == fingerprint_of(verdict).digest
        key = (
            hour_of(verdict.ended_at),
            verdict.job.cluster_id,
            verdict.experiment_id,
            verdict.verdict,
            verdict.cause,
            verdict.service,
            verdict.group_id,
        )
        sums = counted.setdefault(key, [0, 0, 0])
        sums[0] += 1
        sums[1] += verdict.job.wall_seconds
        sums[2] += verdict.job.core_seconds
    return {key: tuple(sums) for key, sums in counted.items()}


def stored():
    keys = ("hour", "cluster_id", "experiment_id", "verdict", "cause", "service", "group_id")
    rows = CauseTotals.objects.values_list(*keys, "jobs", "wall_seconds", "core_seconds")
    return {row[:7]: row[7:] for row in rows}


def harvest(job, at):
    queue_harvests(job_ids=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "correct", "reread", "move", "recount"]),
        st.integers(0, 20),
        st.sampled_from(range(len(LOGS))),
        st.integers(0, 150),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_totals_equal_a_recount_after_any_history(make_job, at, shifter, steps):
    jobs = []
    Verdict.objects.all().delete()
    LogHarvest.objects.all().delete()
    CauseTotals.objects.all().delete()
    DirtyHour.objects.all().delete()
    for number, (step, which, log, minutes) in enumerate(steps):
        job = jobs[which % len(jobs)] if jobs else None
        if step == "new":
            new = make_job(
                make_job.next_number(), log=LOGS[log], ended_at=at + timedelta(minutes=minutes), wall_seconds=minutes
            )
            harvest(new, at)
            jobs.append(new)
        elif step == "correct" and job:
            kind = list(VerdictKind)[which % len(VerdictKind)]
            override_verdict(job=job, verdict=kind, by=shifter, at=at, reason=f"step {number}")
        elif step == "reread" and job:
            harvest(job, at)
        elif step == "move" and job:
            job.ended_at = at + timedelta(minutes=minutes)
            job.save(update_fields=["ended_at"])
            harvest(job, at)
        elif step == "recount":
            recount_dirty_hours()
    recount_dirty_hours()
    assert stored() == recount()
    assert wrong_hours() == []
    assert not DirtyHour.objects.filter(counts=Counted.CAUSES).exists()


def test_recount_without_a_note_changes_nothing(make_job, at):
    harvest(make_job(log=LOGS[0]), at)
    assert recount_dirty_hours() == {Verdict.objects.get().group_id}
    assert recount_dirty_hours() == set()
    assert CauseTotals.objects.aggregate(Sum("jobs"))["jobs__sum"] == 1
    CauseTotals.objects.update(core_seconds=7)
    with pytest.raises(CommandError, match="1 hour"):
        call_command("check_failure_totals")
    call_command("check_failure_totals", "--fix")
    call_command("check_failure_totals")
