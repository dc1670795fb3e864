"""Collected jobs, their scripts and their harvests: each log is read, whichever comes first."""

import pytest

from apps.archive import subscribers as archive_subscribers
from apps.clusters.schedulers.base import JobState
from apps.core.domain.outbox import deliver
from apps.core.models import Delivery, Event
from apps.diagnosis import subscribers, tasks
from apps.diagnosis.domain.verdicts import analyses
from apps.diagnosis.enums import HarvestState
from apps.diagnosis.models import LogHarvest, Verdict
from apps.jobs.models import Job
from tests.factories import archive, clusters, jobs
from tests.factories.archive import START, captured_job

pytestmark = pytest.mark.django_db

ORIGIN = {"request_key": "NOVA-0231", "stage": "sim"}


class Killed(BaseException):
    """What takes a worker away without letting it note a failure."""


def collect(*numbers, state=JobState.FAILED, exit_code=1):
    """Store jobs as the collector does; their `jobs.collected` waits to be delivered."""
    records = [
        jobs.bare(number, submitted_at=START, state=state, exit_code=exit_code)
        for number in numbers
    ]
    jobs.store(clusters.cluster("alps", "slurm"), *records, at=START)


def store(*numbers):
    """Store scripts as capture does; their `archive.stored` waits to be delivered."""
    archive.store(*(captured_job(number, **ORIGIN) for number in numbers))


def deliver_all(*, last_first=False):
    """Deliver until nothing waits, as the workers do."""
    while waiting := list(
        Delivery.objects.filter(delivered_at=None).order_by("-pk" if last_first else "pk")
    ):
        for delivery in waiting:
            assert deliver(delivery_id=delivery.pk, at=START)


def read_all():
    """Run the harvests that wait."""
    for pk in LogHarvest.objects.filter(state=HarvestState.QUEUED).values_list("pk", flat=True):
        tasks.harvest_log(harvest_id=pk)


@pytest.fixture
def readings(monkeypatch):
    """The jobs whose logs were looked for, in order, with the request that was known by then."""
    seen = []
    locate = analyses.locate_logs

    def noted(*, job, at):
        seen.append((job.job_id, job.claimed_key))
        return locate(job=job, at=at)

    monkeypatch.setattr(analyses, "locate_logs", noted)
    return seen


def linked() -> list[tuple[list[str], str]]:
    """The job ids of each `jobs.linked`, and what it came after."""
    return [
        (
            sorted(Job.objects.filter(pk__in=event.data["jobs"]).values_list("job_id", flat=True)),
            event.data["after"],
        )
        for event in Event.objects.filter(kind="jobs.linked").order_by("pk")
    ]


def test_job_captured_first_is_read_once_with_its_request(readings):
    store(1)
    deliver_all()
    collect(1)
    deliver_all()
    read_all()
    assert linked() == [(["1"], "jobs.collected")]
    assert readings == [("1", "NOVA-0231")]


def test_job_collected_first_is_read_at_once_and_again_with_its_script(readings):
    collect(1)
    deliver_all()
    read_all()
    assert readings == [("1", "")]
    store(1)
    deliver_all()
    read_all()
    assert linked() == [(["1"], "jobs.collected"), (["1"], "archive.stored")]
    assert readings == [("1", ""), ("1", "NOVA-0231")]
    assert Verdict.objects.count() == 1


@pytest.mark.parametrize("last_first", [False, True])
def test_job_stored_and_collected_before_either_event_arrives_is_read_once(readings, last_first):
    collect(1)
    store(1)
    deliver_all(last_first=last_first)
    read_all()
    assert readings == [("1", "NOVA-0231")]


def test_jobs_that_were_never_captured_are_read(readings):
    store(2)
    deliver_all()
    collect(1, 2, 3)
    deliver_all()
    read_all()
    assert linked()[0] == (["1", "2", "3"], "jobs.collected")
    assert sorted(readings) == [("1", ""), ("2", "NOVA-0231"), ("3", "")]


def test_completed_jobs_are_linked_but_not_read(readings):
    collect(1, state=JobState.COMPLETED, exit_code=0)
    store(1)
    deliver_all()
    read_all()
    assert Job.objects.get().claimed_key == "NOVA-0231"
    assert readings == []


def test_script_without_a_collected_job_publishes_no_link():
    store(1)
    deliver_all()
    assert linked() == []


def test_diagnosis_listens_to_the_link_alone():
    collect(1)
    store(1)
    deliver_all()
    names = Delivery.objects.filter(subscriber__startswith="diagnosis.").values_list(
        "event__kind", flat=True
    )
    assert set(names) == {"jobs.linked"}


def test_worker_killed_while_it_links_leaves_nothing_and_the_next_one_does_all(
    readings, monkeypatch
):
    collect(1, 2)
    whole = archive_subscribers.link_collected

    def killed(**arguments):
        whole(**arguments)
        raise Killed

    monkeypatch.setattr(archive_subscribers, "link_collected", killed)
    with pytest.raises(Killed):
        deliver_all()
    monkeypatch.setattr(archive_subscribers, "link_collected", whole)
    assert linked() == []
    deliver_all()
    read_all()
    assert linked() == [(["1", "2"], "jobs.collected")]
    assert sorted(readings) == [("1", ""), ("2", "")]


def test_worker_killed_between_link_and_harvest_loses_no_job(readings, monkeypatch):
    collect(1, 2)
    whole = subscribers.queue_harvests

    def killed(**arguments):
        whole(**arguments)
        raise Killed

    monkeypatch.setattr(subscribers, "queue_harvests", killed)
    with pytest.raises(Killed):
        deliver_all()
    monkeypatch.setattr(subscribers, "queue_harvests", whole)
    assert not LogHarvest.objects.exists()
    deliver_all()
    read_all()
    assert len(linked()) == 1
    assert sorted(readings) == [("1", ""), ("2", "")]


def test_script_that_arrives_while_the_log_is_read_has_it_read_again(readings, monkeypatch):
    """What the first reading found without the script is not stored over what the second one
    finds with it.
    """
    collect(1)
    deliver_all()
    locate = analyses.locate_logs

    def slowly(*, job, at):
        found = locate(job=job, at=at)
        monkeypatch.setattr(analyses, "locate_logs", locate)
        store(1)
        deliver_all()
        return found

    monkeypatch.setattr(analyses, "locate_logs", slowly)
    read_all()
    assert LogHarvest.objects.get().state == HarvestState.QUEUED
    assert not Verdict.objects.exists()
    read_all()
    assert LogHarvest.objects.get().state == HarvestState.LOG_NOT_FOUND
    assert readings == [("1", ""), ("1", "NOVA-0231")]
    assert Verdict.objects.count() == 1
