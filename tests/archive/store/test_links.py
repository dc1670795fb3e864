"""Jobs of accounting and what was captured of them find each other, whichever comes first."""

import re
import threading
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.domain.experiments import save_experiment
from apps.accounts.models import Experiment
from apps.archive.domain.links import claim_archived, describe_jobs, link_jobs
from apps.archive.domain.store.contents import archived_job_for, read_blob
from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import ArchivedJob
from apps.archive.tasks import describe_cluster
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState, Submission
from apps.clusters.schedulers.slurm.scheduler import Slurm
from apps.core.domain.outbox import deliver
from apps.core.models import Delivery
from apps.jobs.domain.collection.origin import claim_jobs, map_account
from apps.jobs.models import MaskingRule
from tests.factories import archive, clusters, jobs
from tests.factories.archive import START, captured_job

pytestmark = pytest.mark.django_db


def collect(job_id, *, spool_id="1", submitted_at=START, **values):
    record = jobs.bare(job_id=job_id, spool_id=spool_id, submitted_at=submitted_at, **values)
    (job,) = jobs.store(clusters.cluster("alps", "slurm"), record, at=START)
    deliver_all()
    job.refresh_from_db()
    return job


def store(*captured):
    archive.store(*captured)
    deliver_all()


def deliver_all():
    for pk in Delivery.objects.filter(
        delivered_at=None, subscriber__startswith="archive."
    ).values_list("pk", flat=True):
        assert deliver(delivery_id=pk, at=START)


ORIGIN = {"request_key": "NOVA-0231", "stage": "sim"}


def test_job_collected_after_capture_gets_request_and_stage(nova):
    store(captured_job(1, **ORIGIN))

    job = collect("1", account="nova")

    assert (job.request_key, job.stage, job.experiment) == ("NOVA-0231", "sim", nova)


def test_job_captured_after_collection_gets_request_and_stage(nova):
    job = collect("1", account="nova")
    store(captured_job(1, **ORIGIN))

    job.refresh_from_db()
    assert (job.request_key, job.stage) == ("NOVA-0231", "sim")


def test_every_task_of_an_array_gets_the_request(nova):
    store(captured_job(1, **ORIGIN))

    assert [collect(f"1_{task}", account="nova").request_key for task in range(3)] == [
        "NOVA-0231"
    ] * 3


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
    store(
        captured_job(1, **ORIGIN),
        captured_job(1, minutes=60, request_key="NOVA-0232", stage="reco"),
    )

    first, second = (
        collect("1", submitted_at=START - timedelta(seconds=1), account="nova"),
        collect("1", submitted_at=START + timedelta(minutes=60), account="nova"),
    )

    assert (first.request_key, second.request_key) == ("NOVA-0231", "NOVA-0232")
    assert archived_job_for(first).submitted_at == START
    assert archived_job_for(second).submitted_at == START + timedelta(minutes=60)


def test_every_attempt_of_a_requeued_job_finds_the_one_script():
    store(captured_job(1))

    first, second = collect("1", state=JobState.REQUEUED), collect("1", attempt=2)

    assert archived_job_for(first) == archived_job_for(second) == ArchivedJob.objects.get()


def test_job_with_an_id_of_before_that_was_not_captured_has_no_script():
    """Such as one of `srun`, after the ids have wrapped."""
    store(captured_job(1))
    collect("1")

    again = collect(
        "1", submitted_at=START + timedelta(days=300), state=JobState.FAILED, user="mallory"
    )

    assert archived_job_for(again) is None
    assert (ArchivedJob.objects.get().state, ArchivedJob.objects.get().user) == ("completed", "")


def test_ids_used_again_within_the_tolerance_are_told_apart_by_the_nearer_time():
    later = timedelta(seconds=20)
    store(captured_job(1), captured_job(1, submitted_at=START + later))

    collect("1", state=JobState.FAILED, user="alice")
    collect("1", submitted_at=START + later - timedelta(seconds=1), user="bob")

    rows = ArchivedJob.objects.order_by("submitted_at")
    assert [(row.state, row.user) for row in rows] == [("failed", "alice"), ("completed", "bob")]


@pytest.mark.parametrize("seconds", [0, 2, -2])
def test_second_capture_that_differs_never_replaces_the_first(seconds, nova):
    """A forged one may have exactly the time of accounting, to be the nearer one."""
    exact = START + timedelta(seconds=seconds)
    store(captured_job(1, script=b"true"))
    store(captured_job(1, submitted_at=exact, script=b"forged", sender="farm-1"))

    job = collect("1", submitted_at=exact, account="nova", user="alice")

    archived = archived_job_for(job)
    assert read_blob(archived.script) == b"true"
    assert archived.conflict == (
        "Captures of this job differ in script. Sent by: capture beside the portal, farm-1."
    )
    assert (archived.experiment, archived.user) == (nova, "alice")


def test_job_that_was_not_captured_has_no_script():
    store(captured_job(1, minutes=10), captured_job(2), captured_job(1, cluster="jura"))

    assert archived_job_for(collect("1")) is None


FACTS = {
    "user": "alice",
    "account": "nova",
    "name": "reco.sh",
    "submit_line": "sbatch -n1 reco.sh 7 --key TOKEN=abc",
}


@pytest.mark.parametrize("captured_first", [True, False])
def test_accounting_gives_user_account_name_arguments_and_state(captured_first, settings):
    settings.CAPTURE_MASK_NAMES = "TOKEN"
    steps = [lambda: store(captured_job(1)), lambda: collect("1", state=JobState.TIMEOUT, **FACTS)]
    for step in steps if captured_first else reversed(steps):
        step()

    row = ArchivedJob.objects.get()
    assert (row.user, row.account, row.name, row.state) == ("alice", "nova", "reco.sh", "timeout")
    assert row.arguments.startswith("7 --key TOKEN=<masked:")


def test_arguments_are_masked_by_the_rules_of_the_back_office_too():
    MaskingRule.objects.create(applies_to="value", pattern="hush-[0-9]+")
    store(captured_job(1))

    collect("1", **FACTS | {"submit_line": "sbatch reco.sh hush-123 7"})

    assert re.fullmatch(r"<masked:[0-9a-f]{16}> 7", ArchivedJob.objects.get().arguments)


def test_cluster_that_cannot_be_asked_breaks_no_worker():
    store(captured_job(1, captured_at=timezone.now()))
    Cluster.objects.update(options={"bin": "/nonexistent"})

    describe_cluster(cluster_id=Cluster.objects.get().pk)

    assert ArchivedJob.objects.get().user == ""


def test_what_the_spool_tells_is_kept():
    store(captured_job(1, user="alice", account="nova", name="spooled", arguments="a 'b c'"))

    collect("1", **FACTS | {"user": "x"})

    row = ArchivedJob.objects.get()
    assert (row.user, row.account, row.name, row.arguments) == (
        "alice",
        "nova",
        "spooled",
        "a 'b c'",
    )


def test_array_has_the_worst_state_of_its_tasks_last_attempts():
    store(captured_job(1))

    def state_after(task, state, **values):
        collect(f"1_{task}", state=state, **values)
        return ArchivedJob.objects.get().state

    assert state_after(0, JobState.COMPLETED) == "completed"
    assert state_after(1, JobState.CANCELLED) == "cancelled"
    assert state_after(2, JobState.NODE_FAIL) == "node_fail"
    assert state_after(3, JobState.COMPLETED) == "node_fail"
    assert state_after(2, JobState.COMPLETED, attempt=2) == "cancelled"


@pytest.mark.parametrize(
    ("state", "word"), [(JobState.FAILED, "failed"), (JobState.CANCELLED, "interrupted")]
)
def test_array_says_how_many_of_its_tasks_did_not_complete(client, shifter, state, word):
    store(captured_job(1))
    collect("1_0", state=state)
    assert ArchivedJob.objects.get().ending == ""
    for task in range(1, 4):
        collect(f"1_{task}")
    assert ArchivedJob.objects.get().ending == f"1 of 4 {word}"
    collect("1_0", attempt=2)
    archived = ArchivedJob.objects.get()
    assert (archived.state, archived.tasks, archived.ending) == ("completed", 4, "")
    collect("1_1", attempt=2, state=state)
    client.force_login(shifter)
    for address in ("/archive/", f"/archive/{archived.pk}/"):
        assert f"1 of 4 {word}" in client.get(address).content.decode()


def test_jobs_are_described_by_the_scheduler_while_accounting_knows_nothing(monkeypatch, settings):
    settings.CAPTURE_MASK_NAMES = "TOKEN"
    store(captured_job(1), captured_job(2), captured_job(1, submitted_at=START - timedelta(days=9)))
    asked = asks(
        monkeypatch,
        Submission("1", START + timedelta(seconds=1), "alice", "nova", "reco.sh", "TOKEN=abc 7"),
    )

    assert describe_jobs(cluster=Cluster.objects.get(), at=START) == 1
    assert describe_jobs(cluster=Cluster.objects.get(), at=START) == 0

    row = ArchivedJob.objects.exclude(user="").get()
    assert (row.job_id, row.submitted_at, row.user, row.account, row.name) == (
        "1",
        START,
        "alice",
        "nova",
        "reco.sh",
    )
    assert row.arguments.startswith("TOKEN=<masked:")
    assert asked == [1, 1]


def test_scheduler_is_not_asked_where_nothing_is_missing(monkeypatch):
    store(captured_job(1, user="alice"), captured_job(2, captured_at=START - timedelta(hours=2)))
    asked = asks(monkeypatch)

    assert describe_jobs(cluster=Cluster.objects.get(), at=START) == 0
    assert asked == []


def asks(monkeypatch, *known):
    asked = []

    def submissions(self):
        asked.append(1)
        return iter(known)

    monkeypatch.setattr(Slurm, "submissions", submissions)
    return asked


def test_jobs_archived_and_collected_by_an_older_version_are_linked_by_the_command(capsys):
    collect("1_0", **FACTS)
    collect("1_1", state=JobState.FAILED, **FACTS)
    store(captured_job(1), captured_job(2))
    ArchivedJob.objects.update(user="", state="", name="")

    call_command("archive", "link", "--cluster", "alps")

    assert capsys.readouterr().out == "changed 1 archived jobs of alps\n"
    assert set(ArchivedJob.objects.values_list("job_id", "user", "state")) == {
        ("1", "alice", "failed"),
        ("2", "", ""),
    }


def test_job_stored_and_collected_at_the_same_time_is_tied(transactional_db):
    """The batch of capture is not committed yet when the collected job is to be tied."""
    job = collect("1", **FACTS)

    def link():
        link_jobs(jobs=[job], at=START)
        connection.close()

    linking = threading.Thread(target=link)
    with transaction.atomic():
        store_jobs(jobs=[captured_job(1)], by="capture", at=START)
        linking.start()
        linking.join(0.3)
        assert linking.is_alive()
    linking.join(10)

    assert ArchivedJob.objects.get().user == "alice"


def test_archived_jobs_follow_an_account_map_and_a_new_experiment(nova):
    """By accounting, and without that by their request: as if they had been stored afterwards."""
    store(
        captured_job(1),
        captured_job(2, request_key="SBND-0004"),
        captured_job(3, request_key="SBND-X-0004"),
    )
    job = collect("1", account="pool")
    collect("2", spool_id="2", account="theirs")
    assert job.experiment is None

    map_account(account="pool", experiment=nova, cluster=None, by="test", at=START)
    assert claim_jobs(experiment=nova, at=START) == 1
    deliver_all()
    assert experiments() == {"1": "NOVA", "2": None, "3": None}

    save_experiment(experiment=Experiment(key="SBND", name="SBND"), by="test", at=START)
    claim_jobs(experiment=Experiment.objects.get(key="SBND"), at=START)
    deliver_all()
    assert experiments() == {"1": "NOVA", "2": "SBND", "3": None}
    assert (
        claim_archived(experiment=nova)
        == claim_archived(experiment=Experiment.objects.get(key="SBND"))
        == 0
    )

    map_account(account="theirs", experiment=nova, cluster=None, by="test", at=START)
    claim_jobs(experiment=nova, at=START)
    deliver_all()
    # Accounting counts more than the environment.
    assert experiments() == {
        "1": "NOVA",
        "2": "NOVA",
        "3": None,
    }


def experiments():
    return dict(ArchivedJob.objects.values_list("job_id", "experiment__key"))
