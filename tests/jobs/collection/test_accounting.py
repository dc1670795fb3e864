"""The collector: nothing lost, nothing doubled, one bad cluster or record stops no other."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from apps.accounts.domain.experiments import save_experiment
from apps.accounts.models import Experiment
from apps.clusters.models import Site
from apps.clusters.schedulers.base import JobState, SchedulerError
from apps.core.domain.locks import exclusive_lock
from apps.core.models import Event
from apps.core.tasks import deliver_waiting
from apps.jobs.domain.collection import accounting as collection_module
from apps.jobs.domain.collection.accounting import (
    _COLLECTOR_LOCK,
    collect_again,
    collect_finished_jobs,
    store_records,
)
from apps.jobs.domain.collection.origin import claim_jobs, locate_log, map_account
from apps.jobs.domain.collection.proof import ProvenMembership
from apps.jobs.domain.records.conversion import record_of
from apps.jobs.enums import Counted
from apps.jobs.models import AccountMap, Collection, DirtyHour, Job, MaskingRule
from tests.factories import clusters
from tests.factories.jobs import AT, bare, failed, record, store


def events():
    return list(Event.objects.filter(kind="jobs.collected").order_by("id"))


def test_collect_stores_each_record_with_all_its_values(alps, planned, nova):
    alps.site = Site.objects.create(name="CERN")
    alps.save()
    planned.records = [
        failed(
            7,
            comment="a|b\nc",
            max_memory_bytes=3_100_000_000,
            requested_memory_bytes=4_000_000_000,
            signal=9,
        )
    ]
    done = collect_finished_jobs(cluster=alps, at=AT)
    assert (done.new, done.changed, done.problem, done.caught_up) == (1, 0, "", True)
    job = Job.objects.get()
    assert record_of(job) == planned.records[0]
    assert (job.site.name, job.experiment, job.collected_at, job.is_failed) == (
        "CERN",
        nova,
        AT,
        True,
    )


def test_site_is_that_of_the_record_else_of_the_cluster(alps, planned):
    alps.site = Site.objects.create(name="Fermilab")
    alps.save()
    planned.records = [record(1), record(2, site="CNAF"), record(3, site=" CNAF\0" + 70 * "x")]
    collect_finished_jobs(cluster=alps, at=AT)
    sites = dict(Job.objects.values_list("job_id", "site__name"))
    assert sites == {"1": "Fermilab", "2": "CNAF", "3": "CNAF\N{REPLACEMENT CHARACTER}" + 59 * "x"}
    planned.records = [record(1, site="SURFsara"), record(2, site="CNAF")]
    done = collect_finished_jobs(cluster=alps, at=AT + timedelta(hours=2))
    assert (done.new, done.changed) == (0, 1)
    assert Job.objects.get(job_id="1").site.name == "SURFsara"
    assert DirtyHour.objects.exists()


def test_collect_again_of_the_same_window_changes_nothing(alps, planned):
    planned.records = [record(1), failed(2)]
    collect_finished_jobs(cluster=alps, at=AT)
    done = collect_finished_jobs(cluster=alps, at=AT + timedelta(seconds=15))
    assert (done.new, done.changed) == (0, 0)
    assert Job.objects.count() == 2
    assert len(events()) == 1


def test_collect_publishes_new_and_failed_jobs_once(alps, planned):
    planned.records = [record(1), failed(2)]
    collect_finished_jobs(cluster=alps, at=AT)
    (event,) = events()
    one, two = Job.objects.order_by("job_id")
    assert event.data == {"jobs": [one.pk, two.pk], "failed": [two.pk]}
    assert (event.target_type, event.target_id) == ("clusters.cluster", str(alps.pk))


def test_late_correction_updates_only_that_job_and_both_its_hours(alps, planned):
    planned.records = [record(1), record(2)]
    collect_finished_jobs(cluster=alps, at=AT)
    DirtyHour.objects.all().delete()
    later = record(2).ended_at + timedelta(hours=-1)
    planned.records = [record(1), failed(2, ended_at=later)]
    # An hour later the last day is looked at again.
    collect_finished_jobs(cluster=alps, at=AT + timedelta(hours=2))
    job = Job.objects.get(job_id="2")
    assert (job.state, job.exit_code, job.ended_at) == ("failed", 1, later)
    assert events()[-1].data == {"jobs": [job.pk], "failed": [job.pk]}
    assert {note.hour.hour for note in DirtyHour.objects.all()} == {10, 11}
    assert Job.objects.get(job_id="1").collected_at == AT


def test_kill_between_chunks_loses_and_doubles_nothing(alps, planned, monkeypatch):
    monkeypatch.setattr(collection_module, "CHUNK", 3)
    planned.records = [record(number) for number in range(1, 11)]
    real, calls = collection_module.store_records, []

    def killed_at_the_third(**arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(**arguments)

    monkeypatch.setattr(collection_module, "store_records", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        collect_finished_jobs(cluster=alps, at=AT)
    assert Job.objects.count() == 6
    done = collect_finished_jobs(cluster=alps, at=AT)
    assert done.new == 4
    assert sorted(pk for event in events() for pk in event.data["jobs"]) == sorted(
        Job.objects.values_list("pk", flat=True)
    )


def test_failure_inside_a_chunk_leaves_neither_job_nor_event_nor_note(alps, planned, monkeypatch):
    def broken(**arguments):
        raise RuntimeError("killed")

    planned.records = [record(1)]
    monkeypatch.setattr(collection_module, "publish", broken)
    with pytest.raises(RuntimeError):
        collect_finished_jobs(cluster=alps, at=AT)
    assert (Job.objects.count(), DirtyHour.objects.count(), events()) == (0, 0, [])
    assert Collection.objects.get().collected_until < record(1).ended_at


@pytest.mark.parametrize(
    "fault", [SchedulerError("sacct timed out"), ZeroDivisionError("division by zero")]
)
def test_cluster_that_fails_keeps_its_place_and_says_why(alps, jura, planned, fault):
    planned.records = [record(1), record(2)]
    planned.fault, planned.fault_after = fault, 1
    done = collect_finished_jobs(cluster=alps, at=AT)
    assert str(fault) in done.problem
    collection = Collection.objects.get(cluster=alps)
    assert str(fault) in collection.last_error
    assert collection.last_success_at is None
    planned.fault = None
    assert collect_finished_jobs(cluster=jura, at=AT).new == 2
    collect_finished_jobs(cluster=alps, at=AT)
    assert Collection.objects.get(cluster=alps).last_error == ""
    assert Job.objects.filter(cluster=alps).count() == 2


@pytest.mark.parametrize(("scheduler", "options"), [("nosuch", {}), ("planned", {"broken": "1"})])
def test_cluster_with_wrong_settings_says_so(db, planned, scheduler, options):
    cluster = clusters.cluster("x", scheduler, options=options)
    assert collect_finished_jobs(cluster=cluster, at=AT).problem
    assert Collection.objects.get().last_error


def test_cluster_that_stays_away_is_logged_once(alps, planned, caplog):
    planned.records, planned.fault = [record(1)], SchedulerError("no answer")
    for seconds in (0, 15, 30):
        collect_finished_jobs(cluster=alps, at=AT + timedelta(seconds=seconds))
    assert [record.message for record in caplog.records] == [
        "cluster alps cannot be collected: no answer"
    ]


def test_first_collection_looks_back_a_day_in_slices_that_join(alps, planned):
    collect_finished_jobs(cluster=alps, at=AT)
    begin, end = planned.asked[0][0], planned.asked[-1][1]
    assert begin <= AT - timedelta(hours=24)
    assert AT - timedelta(seconds=10) <= end <= AT
    assert all(
        until == since
        for (_, until), (since, _) in zip(planned.asked, planned.asked[1:], strict=False)
    )
    assert max(until - since for since, until in planned.asked) == timedelta(hours=6)


def test_long_gap_is_collected_over_several_runs(alps, planned):
    collect_again(cluster=alps, since=AT - timedelta(days=5), at=AT)
    planned.records = [bare(1, submitted_at=AT - timedelta(days=5)), record(2)]
    runs = []
    while not runs or not runs[-1].caught_up:
        runs.append(collect_finished_jobs(cluster=alps, at=AT))
    assert [run.new for run in runs] == [1, 0, 1]
    assert Collection.objects.get().lag_seconds < 10


def test_job_known_late_to_accounting_is_found_by_the_hourly_look_back(alps, planned):
    collect_finished_jobs(cluster=alps, at=AT)
    planned.records = [bare(1, submitted_at=AT - timedelta(hours=4))]
    assert collect_finished_jobs(cluster=alps, at=AT + timedelta(minutes=1)).new == 0
    assert collect_finished_jobs(cluster=alps, at=AT + timedelta(minutes=61)).new == 1


def test_attempts_of_a_requeued_job_are_rows_of_their_own(alps):
    store(
        alps,
        record(1, state=JobState.REQUEUED),
        record(1, attempt=2, submitted_at=AT - timedelta(minutes=80)),
    )
    assert list(Job.objects.order_by("attempt").values_list("attempt", "state")) == [
        (1, "requeued"),
        (2, "completed"),
    ]


def test_recycled_id_is_another_job(alps):
    store(alps, record(1), record(1, submitted_at=AT - timedelta(days=90)))
    assert Job.objects.count() == 2


def test_same_attempt_twice_in_an_answer_is_one_row(alps):
    store(alps, record(1), record(1))
    assert Job.objects.count() == 1


def test_odd_values_do_not_stop_the_others(alps):
    odd = record(
        1,
        name="x" * 5000,
        comment="nul \0 and half \udce9",
        cpus=-1,
        wall_seconds=10**30,
        cpu_seconds=float("nan"),
        raw_id=2**70,
    )
    job, other = store(alps, odd, record(2))
    assert (len(job.name), job.comment, job.cpus, job.cpu_seconds) == (
        1000,
        "nul \ufffd and half ?",
        0,
        0,
    )
    assert other.pk
    assert store_records(cluster=alps, records=[odd], at=AT) == (0, 0)


@pytest.mark.parametrize(
    ("account", "key"), [("nova", "NOVA"), ("NOVA", "NOVA"), ("other", None), ("", None)]
)
def test_experiment_is_the_one_named_as_the_account(alps, nova, account, key):
    (job,) = store(alps, record(1, account=account))
    assert (job.experiment and job.experiment.key) == key


def test_account_map_of_the_cluster_comes_before_the_general_one(alps, jura, nova, dune):
    AccountMap.objects.create(cluster=None, account="pool", experiment=nova)
    AccountMap.objects.create(cluster=alps, account="pool", experiment=dune)
    (here,) = store(alps, record(1, account="pool"))
    (there,) = store(jura, record(1, account="pool"))
    assert (here.experiment, there.experiment) == (dune, nova)


def test_map_account_gives_older_jobs_their_experiment(alps, nova, dune, admin):
    old, own = store(alps, record(1, account="pool"), record(2, account="dune"))
    DirtyHour.objects.all().delete()
    map_account(account="pool", experiment=nova, cluster=None, by=admin, at=AT)
    deliver_waiting()
    old.refresh_from_db()
    own.refresh_from_db()
    assert (old.experiment, own.experiment) == (nova, dune)
    assert DirtyHour.objects.filter(counts=Counted.JOBS).count() == 1


def test_earlier_jobs_are_claimed_once_and_only_where_the_map_counts(alps, jura, nova, dune, admin):
    here, there = (store(cluster, record(1, account="pool"))[0] for cluster in (alps, jura))
    map_account(account="pool", experiment=dune, cluster=jura, by=admin, at=AT)
    AccountMap.objects.create(cluster=alps, account="pool", experiment=nova)
    map_account(account="pool", experiment=dune, cluster=None, by=admin, at=AT)  # alps has its own
    claim_jobs(experiment=dune, at=AT)
    assert (Job.objects.get(pk=here.pk).experiment, Job.objects.get(pk=there.pk).experiment) == (
        None,
        dune,
    )
    DirtyHour.objects.all().delete()
    assert (claim_jobs(experiment=nova, at=AT), claim_jobs(experiment=nova, at=AT)) == (1, 0)
    assert Job.objects.get(pk=here.pk).experiment == nova
    assert list(DirtyHour.objects.filter(counts=Counted.JOBS).values_list("hour", flat=True)) == [
        here.ended_at.replace(minute=0)
    ]


def test_new_experiment_gets_the_jobs_of_the_account_with_its_key(alps, nova, admin):
    own, other = store(alps, record(1, account="sbnd"), record(2, account="icarus"))
    save_experiment(experiment=Experiment(key="SBND", name="SBND"), by=admin, at=AT)
    deliver_waiting()
    assert [Job.objects.get(pk=job.pk).experiment for job in (own, other)] == [
        Experiment.objects.get(key="SBND"),
        None,
    ]


@pytest.mark.django_db(transaction=True)
def test_job_collected_while_its_experiment_is_created_is_claimed(alps, admin, monkeypatch):
    """The collector has read the experiments, and stores its jobs after the new one has looked
    for its own.
    """
    read, claimed = threading.Event(), []

    class Slow(ProvenMembership):
        def __init__(self, cluster):
            super().__init__(cluster)
            read.set()
            time.sleep(0.5)

    def claim():
        read.wait()
        experiment = Experiment.objects.create(key="SBND", name="SBND")
        claimed.append(claim_jobs(experiment=experiment, at=AT))
        connection.close()

    monkeypatch.setattr("apps.jobs.domain.collection.accounting.ProvenMembership", Slow)
    creating = threading.Thread(target=claim)
    creating.start()
    store(alps, record(1, account="sbnd"))
    creating.join()
    assert claimed == [1]


@pytest.mark.django_db(transaction=True)
def test_experiment_deleted_while_a_job_of_it_is_stored_stays(alps, nova, monkeypatch):
    """Nothing but a trigger keeps it, which waits for the collector."""
    read, refused = threading.Event(), []

    class Slow(ProvenMembership):
        def __init__(self, cluster):
            super().__init__(cluster)
            read.set()
            time.sleep(0.5)

    def delete():
        read.wait()
        try:
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM accounts_experiment WHERE id = %s", [nova.pk])
        except IntegrityError as error:
            refused.append(str(error))
        connection.close()

    monkeypatch.setattr("apps.jobs.domain.collection.accounting.ProvenMembership", Slow)
    deleting = threading.Thread(target=delete)
    deleting.start()
    (job,) = store(alps, record(1, account=nova.key))
    deleting.join()
    assert job.experiment == nova
    assert "is still named by jobs" in refused[0]
    assert Experiment.objects.filter(pk=nova.pk).exists()


def test_site_is_deleted_only_while_no_job_names_it(alps):
    (job,) = store(alps, record(1, site="Geneva"))
    Site.objects.create(name="Nowhere").delete()
    with pytest.raises(IntegrityError, match="is still named by jobs"), transaction.atomic():
        Site.objects.filter(pk=job.site_id)._raw_delete("default")
    assert list(Site.objects.filter(name__in=["Geneva", "Nowhere"])) == [job.site]


def test_locate_log_stores_path_and_how_it_is_known(alps):
    (job,) = store(alps, record(1))
    assert locate_log(job=job, script=b"", environment={}, at=AT) is None
    locate_log(job=job, script=b"#!/bin/sh\n", environment={}, at=AT)
    job.refresh_from_db()
    assert (job.log_path, job.error_log_path, job.log_path_source) == (
        "/data/out.log",
        "/data/err.log",
        "derived",
    )
    assert store_records(cluster=alps, records=[record(1)], at=AT) == (0, 0)


@pytest.mark.django_db(transaction=True)
def test_second_collector_at_once_leaves_the_cluster_to_the_first(planned):
    cluster = clusters.cluster("alps", "planned")
    planned.records = [record(1)]
    answers = []

    def second():
        answers.append(collect_finished_jobs(cluster=cluster, at=AT))
        connection.close()

    with exclusive_lock(_COLLECTOR_LOCK, cluster.pk):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(timeout=20)
    assert answers == [None]
    assert collect_finished_jobs(cluster=cluster, at=AT).new == 1


def test_secrets_of_the_command_line_are_masked_before_they_are_stored(alps):
    (job,) = store(
        alps, record(1, submit_line="sbatch --export=DB_PASSWORD=geheim x.sh", comment="TOKEN=abc")
    )
    assert "geheim" not in job.submit_line
    assert job.submit_line.startswith("sbatch --export=DB_PASSWORD=<masked:")
    assert job.comment.startswith("TOKEN=<masked:")
    (again,) = store(
        alps, record(1, submit_line="sbatch --export=DB_PASSWORD=geheim x.sh", comment="TOKEN=abc")
    )
    assert again.submit_line == job.submit_line


def test_rules_of_the_back_office_mask_the_command_line_too(alps):
    MaskingRule.objects.create(applies_to="name", pattern="^PIN$")

    (job,) = store(alps, record(1, submit_line="sbatch --export=PIN=1234,A=1 x.sh"))

    assert job.submit_line.startswith("sbatch --export=PIN=<masked:")
    assert job.submit_line.endswith(",A=1 x.sh")
