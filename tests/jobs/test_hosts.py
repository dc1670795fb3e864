"""Hosts of clusters as schedulers list them, and what jobs take from them."""

from datetime import timedelta

import pytest

from apps.clusters.models import Host
from apps.clusters.schedulers.base import HostFacts, SchedulerError
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.domain.hosts import read_hosts, store_hosts
from apps.jobs.models import Job
from tests.factories.jobs import AT, record

ROME = HostFacts("wn1", "EPYC 7702", "192.0.2.1", 128, 2**38)


def test_listing_replaces_facts_and_keeps_hosts_that_are_gone(alps):
    assert store_hosts(cluster=alps, hosts=[ROME, HostFacts("wn2", "a\0" + 300 * "x")], at=AT) == 2
    later = AT + timedelta(hours=1)
    assert store_hosts(cluster=alps, hosts=[HostFacts("wn1", "EPYC 9654")], at=later) == 1
    assert store_hosts(cluster=alps, hosts=[], at=later) == 0
    one, two = Host.objects.all()
    assert (one.cpu_model, one.address, one.cores, one.listed_at) == ("EPYC 9654", "", None, later)
    assert (len(two.cpu_model), two.listed_at) == (255, AT)


@pytest.mark.parametrize(
    "problem", [SchedulerError("slurmctld is away"), RuntimeError("a fault of the adapter")]
)
def test_scheduler_that_does_not_answer_costs_nothing(alps, planned, monkeypatch, problem):
    def hosts(self):
        raise problem
        yield

    assert read_hosts(cluster=alps, at=AT) is None  # this one cannot be asked
    monkeypatch.setattr(planned, "hosts", hosts, raising=False)
    store_hosts(cluster=alps, hosts=[ROME], at=AT)
    assert read_hosts(cluster=alps, at=AT) is None
    assert Host.objects.get().cpu_model == "EPYC 7702"


def test_job_takes_facts_of_its_host_where_its_record_has_none(
    alps, planned, django_assert_max_num_queries
):
    store_hosts(cluster=alps, hosts=[ROME], at=AT)
    store_hosts(cluster=alps, hosts=[HostFacts("retired", "Opteron")], at=AT - timedelta(days=30))
    planned.records = [
        record(1, host="wn1"),
        record(2, host="wn1", cpu_model="Xeon 6330", host_address="192.0.2.9"),
        record(3, host="retired"),
        record(4, host="unlisted"),
    ]
    collect_finished_jobs(cluster=alps, at=AT)
    facts = {job.job_id: (job.cpu_model, job.host_address) for job in Job.objects.all()}
    assert facts == {
        "1": ("EPYC 7702", "192.0.2.1"),
        "2": ("Xeon 6330", "192.0.2.9"),
        "3": ("", ""),
        "4": ("", ""),
    }

    planned.records = [record(1, host="wn1", exit_code=3)]
    collect_finished_jobs(cluster=alps, at=AT + timedelta(hours=2))
    job = Job.objects.get(job_id="1")
    assert (job.exit_code, job.cpu_model) == (3, "EPYC 7702")  # a correction loses nothing
