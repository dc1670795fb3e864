"""Totals equal a recount, whatever happened in which order."""

import threading
from collections import defaultdict
from datetime import timedelta

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.records.jobs import totals_as_of
from apps.jobs.domain.totals.rollups import mark_dirty, recompute_dirty_hours
from apps.jobs.enums import Counted
from apps.jobs.models import Collection, DirtyHour, HourlyEnds, HourlyTotals, Job
from tests.factories import clusters
from tests.factories.jobs import AT, record, store

SUMS = ("jobs", "wall_seconds", "core_seconds", "cpu_seconds", "retried")


def counted():
    rows = HourlyTotals.objects.all()
    return {
        (t.hour, t.cluster_id, t.experiment_id, t.request_key, t.stage, t.state): tuple(
            getattr(t, s) for s in SUMS
        )
        for t in rows
    }


def counted_ends():
    rows = HourlyEnds.objects.all()
    return {
        (e.hour, e.cluster_id, e.experiment_id, e.state): (e.jobs, e.core_seconds) for e in rows
    }


def recount_ends():
    sums = defaultdict(lambda: (0, 0))
    for (hour, cluster, experiment, *_, state), (jobs, _, core, *_) in recount().items():
        before = sums[hour, cluster, experiment, state]
        sums[hour, cluster, experiment, state] = (before[0] + jobs, before[1] + core)
    return dict(sums)


def recount():
    sums = defaultdict(lambda: (0, 0, 0, 0, 0))
    for job in Job.objects.all():
        key = (
            hour_of(job.ended_at),
            job.cluster_id,
            job.experiment_id,
            job.request_key,
            job.stage,
            job.state,
        )
        one = (1, job.wall_seconds, job.core_seconds, job.cpu_seconds, int(job.attempt > 1))
        sums[key] = tuple(a + b for a, b in zip(sums[key], one, strict=True))
    return dict(sums)


numbers = st.integers(1, 5)
steps = st.one_of(
    st.tuples(
        st.just("store"),
        numbers,
        st.sampled_from([JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED]),
        st.integers(0, 150),
        st.integers(0, 4),
        st.sampled_from(["nova", "pool"]),
        st.integers(1, 2),
    ),
    st.tuples(st.just("attach"), numbers, st.sampled_from(["NOVA-1", "DUNE-2"])),
    st.tuples(st.just("recompute")),
)
#: A job that was counted turns out to have ended in another hour.
OTHER_HOUR = [
    ("store", 1, JobState.COMPLETED, 0, 1, "nova", 1),
    ("recompute",),
    ("store", 1, JobState.COMPLETED, 150, 1, "nova", 1),
]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(script=OTHER_HOUR)
@given(script=st.lists(steps, max_size=12))
def test_totals_equal_a_recount_after_any_order_of_changes(alps, nova, dune, script):
    for model in (DirtyHour, HourlyTotals, HourlyEnds, Job):
        model.objects.all().delete()
    Collection.objects.get_or_create(cluster=alps, defaults={"collected_until": AT})
    for kind, *values in script:
        if kind == "store":
            number, state, minutes, cpus, account, attempt = values
            end = AT - timedelta(minutes=minutes)
            changed = record(
                number,
                state=state,
                ended_at=end,
                cpus=cpus,
                account=account,
                cpu_seconds=0.5,
                attempt=attempt,
            )
            store_records(cluster=alps, records=[changed], at=AT)
        elif kind == "attach":
            number, key = values
            jobs = Job.objects.filter(raw_id=number).values_list("pk", flat=True)
            attach_origin(origins=dict.fromkeys(jobs, (key, "s")), at=AT)
        else:
            recompute_dirty_hours(at=AT)
    recompute_dirty_hours(at=AT)
    assert counted() == recount()
    assert counted_ends() == recount_ends()
    assert not DirtyHour.objects.filter(counts=Counted.JOBS).exists()


def test_totals_are_as_of_the_last_complete_recount(alps):
    store(alps, record(1), record(2, ended_at=AT - timedelta(hours=3)))
    assert totals_as_of() is None
    recompute_dirty_hours(at=AT, limit=1)
    assert totals_as_of() is None
    recompute_dirty_hours(at=AT, limit=1)
    assert totals_as_of() == AT


def test_recompute_without_notes_writes_no_totals(alps, django_assert_num_queries):
    store(alps, record(1))
    recompute_dirty_hours(at=AT)
    before = HourlyTotals.objects.get().pk
    recompute_dirty_hours(at=AT)
    assert HourlyTotals.objects.get().pk == before


@pytest.mark.django_db(transaction=True)
def test_job_that_commits_during_a_recount_is_not_lost():
    cluster = clusters.cluster("alps", "planned")
    store(cluster, record(1))
    written, counted_once = threading.Event(), threading.Event()

    def writer():
        with transaction.atomic():
            store_records(cluster=cluster, records=[record(2)], at=AT)
            written.set()
            counted_once.wait(timeout=20)
        connection.close()

    thread = threading.Thread(target=writer)
    thread.start()
    assert written.wait(timeout=20)
    recompute_dirty_hours(at=AT)  # takes the committed note away, and cannot see the second job
    assert [total.jobs for total in HourlyTotals.objects.all()] == [1]
    counted_once.set()
    thread.join(timeout=20)
    recompute_dirty_hours(at=AT)
    assert [total.jobs for total in HourlyTotals.objects.all()] == [2]


@pytest.mark.django_db(transaction=True)
def test_two_recounts_at_once_count_once():
    cluster = clusters.cluster("alps", "planned")
    store(cluster, *[record(number) for number in range(20)])
    problems = []

    def recounter():
        try:
            for _ in range(5):
                mark_dirty([hour_of(record().ended_at)])
                recompute_dirty_hours(at=AT)
        except Exception as error:
            problems.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=recounter) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert problems == []
    assert counted() == recount()
