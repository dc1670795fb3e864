"""Jobs of accounting and what was captured of them find each other, whichever comes first."""

from datetime import timedelta

import pytest

from apps.archive.models import ArchivedJob
from apps.archive.selectors import archived_job_for
from apps.archive.services import store_jobs
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.services import ensure_cluster
from apps.core.models import Delivery
from apps.core.services import deliver
from apps.jobs.models import Collection, Job
from apps.jobs.services import store_records

from .conftest import START, captured_job

pytestmark = pytest.mark.django_db


def collect(job_id, *, spool_id="1", submitted_at=START, **values):
    cluster = ensure_cluster(name="alps", scheduler="slurm", by="test", at=START)
    Collection.objects.get_or_create(cluster=cluster, defaults={"collected_until": START})
    record = JobRecord(
        job_id=job_id,
        raw_id=1,
        spool_id=spool_id,
        attempt=1,
        state=JobState.COMPLETED,
        exit_code=0,
        signal=0,
        submitted_at=submitted_at,
        started_at=None,
        ended_at=submitted_at + timedelta(hours=1),
        **values,
    )
    store_records(cluster=cluster, records=[record], at=START)
    deliver_all()
    return Job.objects.get(job_id=job_id, submitted_at=submitted_at)


def store(*jobs):
    store_jobs(jobs=jobs, by="capture", at=START)
    deliver_all()


def deliver_all():
    for pk in Delivery.objects.filter(delivered_at=None, subscriber__startswith="archive.").values_list(
        "pk", flat=True
    ):
        assert deliver(delivery_id=pk, at=START)


ORIGIN = {"request_key": "NOVA-0231", "stage": "sim"}


def test_job_collected_after_capture_gets_request_and_stage(nova):
    store(captured_job(1, **ORIGIN))

    job = collect("1")

    assert (job.request_key, job.stage, job.experiment) == ("NOVA-0231", "sim", nova)


def test_job_captured_after_collection_gets_request_and_stage(nova):
    job = collect("1")
    store(captured_job(1, **ORIGIN))

    job.refresh_from_db()
    assert (job.request_key, job.stage) == ("NOVA-0231", "sim")


def test_every_task_of_an_array_gets_the_request(nova):
    store(captured_job(1, **ORIGIN))

    assert [collect(f"1_{task}").request_key for task in range(3)] == ["NOVA-0231"] * 3


def test_experiment_of_accounting_is_worth_more_than_that_of_the_environment(nova, dune):
    store(captured_job(1, **ORIGIN), captured_job(2))

    collect("1", account="dune")
    collect("2", spool_id="2", account="dune")

    assert {row.experiment for row in ArchivedJob.objects.all()} == {dune}


def test_job_without_request_captured_after_collection_gets_its_experiment(dune):
    collect("1", account="dune")
    store(captured_job(1))

    assert ArchivedJob.objects.get().experiment == dune


def test_id_used_again_finds_its_own_script(nova):
    store(captured_job(1, **ORIGIN), captured_job(1, minutes=60, request_key="NOVA-0232", stage="reco"))

    first, second = (
        collect("1", submitted_at=START - timedelta(seconds=1)),
        collect("1", submitted_at=START + timedelta(minutes=60)),
    )

    assert (first.request_key, second.request_key) == ("NOVA-0231", "NOVA-0232")
    assert archived_job_for(first).submitted_at == START
    assert archived_job_for(second).submitted_at == START + timedelta(minutes=60)


def test_requeued_job_finds_the_script_of_its_submission():
    store(captured_job(1))

    assert archived_job_for(collect("1", submitted_at=START + timedelta(hours=5))).job_id == "1"


def test_job_that_was_not_captured_has_no_script():
    store(captured_job(1, minutes=10), captured_job(2), captured_job(1, cluster="jura"))

    assert archived_job_for(collect("1")) is None
