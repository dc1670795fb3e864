"""Totals by cause equal a recount, whatever happened in whatever order."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Max, Min, Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.diagnosis.domain.causes.totals import recount_dirty_hours, totals_between, wrong_hours
from apps.diagnosis.domain.groups.triage import fingerprint_of
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, LogHarvest, Verdict
from apps.jobs.domain.records.conversion import day_of, hour_of
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


def sums_of_days():
    counted: dict[tuple, list] = {}
    for verdict in Verdict.objects.select_related("job"):
        key = (f"{verdict.ended_at:%Y-%m-%d}", verdict.verdict, verdict.cause, verdict.group_id)
        sums = counted.setdefault(key, [0, 0, verdict.ended_at, verdict.ended_at])
        sums[0] += 1
        sums[1] += verdict.job.core_seconds
        sums[2:] = min(sums[2], verdict.ended_at), max(sums[3], verdict.ended_at)
    return counted


def totals_of_days():
    rows = (
        DailyCauseTotals.objects.order_by()
        .values_list("day", "verdict", "cause", "group")
        .annotate(*(Sum("jobs"), Sum("core_seconds"), Min("first_ended_at"), Max("last_ended_at")))
    )
    return {
        (f"{day:%Y-%m-%d}", *key): figures
        for day, *rest in rows
        for key, figures in [(rest[:3], rest[3:])]
    }


def harvest(job, at):
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "correct", "reread", "move", "recount"]),
        st.integers(0, 20),
        st.sampled_from(range(len(LOGS))),
        st.integers(0, 3000),
    ),
    max_size=12,
)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_totals_equal_a_recount_after_any_history(make_job, at, shifter, steps):
    jobs = []
    Verdict.objects.all().delete()
    LogHarvest.objects.all().delete()
    CauseTotals.objects.all().delete()
    DailyCauseTotals.objects.all().delete()
    DirtyHour.objects.all().delete()
    for number, (step, which, log, minutes) in enumerate(steps):
        job = jobs[which % len(jobs)] if jobs else None
        if step == "new":
            new = make_job(
                make_job.next_number(),
                log=LOGS[log],
                ended_at=at + timedelta(minutes=minutes),
                wall_seconds=minutes,
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
    assert totals_of_days() == sums_of_days()
    assert wrong_hours() == []
    assert not DirtyHour.objects.filter(counts=Counted.CAUSES).exists()


def test_recount_without_a_note_changes_nothing(make_job, at):
    harvest(make_job(log=LOGS[0]), at)
    assert recount_dirty_hours().group_ids == {Verdict.objects.get().group_id}
    assert recount_dirty_hours().group_ids == set()
    assert CauseTotals.objects.aggregate(Sum("jobs"))["jobs__sum"] == 1
    CauseTotals.objects.update(core_seconds=7)
    with pytest.raises(CommandError, match="1 hour"):
        call_command("check_failure_totals")
    call_command("check_failure_totals", "--fix")
    call_command("check_failure_totals")
    DailyCauseTotals.objects.update(jobs=7)
    with pytest.raises(CommandError, match="1 hour"):
        call_command("check_failure_totals")
    call_command("check_failure_totals", "--fix")
    call_command("check_failure_totals")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(start=st.integers(0, 100), length=st.integers(0, 100))
def test_days_and_other_hours_are_each_total_of_a_period_once(make_job, at, start, length):
    if not Verdict.objects.exists():
        for hour in (0, 1, 23, 24, 25, 47, 48, 71, 72, 95):
            harvest(
                make_job(hour, log=LOGS[0], ended_at=day_of(at) + timedelta(hours=hour, minutes=1)),
                at,
            )
        recount_dirty_hours()
    begin = day_of(at) + timedelta(hours=start)
    end = begin + timedelta(hours=length)
    parts = totals_between(
        CauseTotals.objects.all(), DailyCauseTotals.objects.all(), start=begin, end=end
    )
    counted = sum(part.aggregate(n=Sum("jobs", default=0))["n"] for part in parts)
    assert counted == Verdict.objects.filter(ended_at__gte=begin, ended_at__lt=end).count()
    has_whole_days = any(begin <= day and day + timedelta(days=1) <= end for day in days_from(at))
    has_other_hours = (day_of(begin), day_of(end)) != (begin, end)
    assert len(parts) == 1 + (has_whole_days and has_other_hours)


def days_from(at):
    return [day_of(at) + timedelta(days=number) for number in range(10)]
