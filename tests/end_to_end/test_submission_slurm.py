"""A request of three stages from the queue to done on a real Slurm,
with a job that fails and is sent again.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from apps.core import tasks as core_tasks
from apps.core.models import Event
from apps.diagnosis.enums import HarvestState
from apps.diagnosis.models import LogHarvest
from apps.diagnosis.tasks import harvest_log
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.production.domain.outputs.counts import count_reports
from apps.production.enums import Verb
from apps.production.models import Request
from apps.progress.domain.production_report import read_frozen
from apps.progress.domain.progress import progress_now
from apps.progress.domain.transitions import follow_requests
from apps.progress.models import ProductionReport
from apps.quality import tasks as quality_tasks
from apps.recovery import tasks as recovery_tasks
from apps.recovery.domain.decisions import carry_out
from apps.recovery.domain.rules.lifecycle import change_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.debugging.rerun import TRACE, debug_runs_of, start_debug_run
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.batches import counts_of, plan_batch
from apps.submission.models import RetryBatch, RetryJob, Submission
from apps.submission.tasks import release_retries, send_to
from tests.end_to_end.conftest import DECLARATION
from tests.factories import requests, workflows
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

#: Says what it was told, and what it made; job 1 of the stage `sim` finds a service down the first
#: time.
PROGRAM = """#!/bin/bash
echo "$@" > {jobs}/told-$OPSPORTAL_STAGE-$OPSPORTAL_JOB_INDEX
if [ $OPSPORTAL_STAGE = sim ] && [ $3 = 1 ] && mkdir {jobs}/once
then echo "HTTP error: 503 Service Unavailable: samweb.declareFile" >&2; exit 65
fi
echo "$5" > {jobs}/made-$OPSPORTAL_STAGE-$OPSPORTAL_JOB_INDEX
"""


@pytest.fixture
def request_of_three(slurm, nova, liaison, approver):
    program = slurm.jobs_dir / "program"
    program.write_text(PROGRAM.replace("{jobs}", str(slurm.jobs_dir)))
    program.chmod(0o755)
    workflow = workflows.workflow("steps", DECLARATION.replace("{program}", str(program)))
    values = {"jobs": 3, "events": 31, "memory_bytes": 50_000_000, "wall_seconds": 600}
    stages = tuple(requests.stage(name, kind="step", **values) for name in ("gen", "sim", "reco"))
    request = requests.request_in(
        "queued", by=liaison, experiment=nova, approver=approver, workflow=workflow, stages=stages
    )
    request.stages.filter(name="reco").update(configuration="it's; $(touch evil)")
    return request


class Portal:
    """What capture, worker and beat do, turn by turn."""

    def __init__(self, cluster, slurm, journal) -> None:
        self.cluster, self.slurm, self.journal = cluster, slurm, journal

    def turn(self) -> list[Submission]:
        """Send what is due, wait for its jobs to end, and take in all that came of them;
        return what was sent.
        """
        dispatch.refresh_progress(cluster=self.cluster, at=timezone.now())
        recovery_tasks.run()
        release_retries()
        send_to(cluster_id=self.cluster.pk)
        sent = list(Submission.objects.filter(settled_at=None).order_by("pk"))
        for submission in sent:
            assert submission.state == "sent", submission.last_error
            assert (
                dispatch.adapter_that_submits(self.cluster).find_submitted(submission.name)
                == submission.spool_id
            )
        capture_once(
            cluster=self.cluster.name,
            scheduler="slurm",
            spool=self.slurm.state_dir,
            journal=self.journal,
        )
        archive_all()
        self.slurm.wait_ended(submission.spool_id for submission in sent)
        self.collect({submission.spool_id: submission.tasks for submission in sent})
        self.work_off()
        return sent

    def collect(self, tasks: Mapping[str, int], *, seconds: float = 120) -> None:
        """Collect until the portal has so many jobs of each array, by its id:
        accounting may be behind.
        """
        deadline = time.monotonic() + seconds
        while True:
            assert not collect_finished_jobs(cluster=self.cluster, at=timezone.now()).problem
            collected = Counter(
                Job.objects.filter(spool_id__in=tasks).values_list("spool_id", flat=True)
            )
            if collected == tasks:
                return
            assert time.monotonic() < deadline, f"{collected} of {tasks} after {seconds} s"
            time.sleep(0.2)

    def work_off(self) -> None:
        """Do all that waits: events, logs to read, counts, what follows for requests."""
        for _ in range(3):
            core_tasks.deliver_waiting()
            for pk in list(
                LogHarvest.objects.filter(state=HarvestState.QUEUED).values_list("pk", flat=True)
            ):
                harvest_log(harvest_id=pk)
        recompute_dirty_hours(at=timezone.now())
        count_reports(at=timezone.now())
        follow_requests(at=timezone.now())
        core_tasks.deliver_waiting()
        quality_tasks.check_all()
        core_tasks.deliver_waiting()


def report(client: Client, request: Request, slurm, position: int, stage: str) -> None:
    """Post what each job of a stage has made, as its wrapper would."""
    for job in range(3):
        made = int((slurm.jobs_dir / f"made-{stage}-{job}").read_text())
        read = {"files_in": 1, "events_in": made} if position else {}
        values = {"key": f"{stage}-{job}", **read, "files_out": 1, "events_out": made}
        url = f"/api/v1/requests/{request.key}/stages/{position + 1}/outputs/"
        answer = client.post(url, values, content_type="application/json")
        assert answer.status_code < 300, answer.content


def counts_by_stage(request) -> list[tuple[object, ...]]:
    stages = progress_now(request, at=timezone.now()).stages
    return [
        (stage.progress.stage, stage.progress.requested_jobs, stage.progress.sums)
        for stage in stages
    ]


@pytest.fixture
def service_problems_are_retried_at_once(approver, monkeypatch):
    """The rule acts on every failure because of a service, without a wait."""
    monkeypatch.setattr(carry_out, "GATHERING", timedelta(0))
    rule = RecoveryRule.objects.get(name="Service problem")
    definition = {
        **rule.definition,
        "condition": {**rule.definition["condition"], "alike_jobs": 0},
        "action": {"kind": "retry", "wait_minutes": 0},
        "limits": {"control_percent": 0},
    }
    at = timezone.now()
    rule = change_rule(
        rule=rule, definition=definition, by=approver, at=at, reason="At once.", base=1
    )
    set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=at, reason="At once.")


@pytest.mark.usefixtures("service_problems_are_retried_at_once")
def test_three_stages_from_the_queue_to_done(
    slurm, cluster, request_of_three, liaison, approver, client, tmp_path
):
    portal, request = Portal(cluster, slurm, tmp_path / "journal"), request_of_three
    begun = timezone.now() - timedelta(seconds=2)
    client.force_login(liaison)

    def state() -> str:
        request.refresh_from_db()
        return request.state

    tests = [portal.turn() for _ in range(3)]
    assert [[(s.stage_name, s.is_test, s.tasks) for s in sent] for sent in tests] == [
        [("gen", True, 1)],
        [("sim", True, 1)],
        [("reco", True, 1)],
    ]
    assert state() == "testing"

    assert [(s.stage_name, s.first, s.tasks) for s in portal.turn()] == [
        ("gen", 0, 2),
        ("gen", 2, 1),
    ]
    assert state() == "running"
    started = Event.objects.get(kind="request.start")
    assert started.reason.startswith("The test passed. gen: ")
    report(client, request, slurm, 0, "gen")

    simulated = portal.turn()
    assert [(s.stage_name, s.first, s.tasks) for s in simulated] == [("sim", 0, 2), ("sim", 2, 1)]
    failed = Job.objects.get(request=request, state="failed", submitted_at__gte=begun)
    assert (failed.job_id, failed.exit_code) == (f"{simulated[0].spool_id}_1", 65)
    assert (failed.verdict.verdict, failed.verdict.advice) == ("service", "retry")
    now = progress_now(request, at=timezone.now())
    found = {
        stage_now.progress.stage: (
            stage_now.progress.requested_jobs,
            stage_now.progress.sums.completed,
            stage_now.progress.sums.failed,
        )
        for stage_now in now.stages
    }
    assert found["sim"] == (3, 2, 1)
    assert found["reco"] == (3, 0, 0)

    start_debug_run(job=failed, profile=TRACE, by=approver, at=timezone.now())
    again = portal.turn()
    assert [(s.purpose, s.stage_name, s.indices, s.retry_of, s.created_by) for s in again] == [
        ("debug", "sim", "1", None, approver.username),
        ("production", "sim", "1", simulated[0], "opsportal"),
    ]
    ((_, debugged),) = debug_runs_of(failed)
    assert (debugged.stage, debugged.state) == ("sim.debug", "completed")
    log = (slurm.jobs_dir / f"{debugged.job_id}.out").read_text()
    assert "+ exec --" in log, "its script was traced"
    report(client, request, slurm, 1, "sim")

    assert [(s.stage_name, s.first, s.tasks) for s in portal.turn()] == [
        ("reco", 0, 2),
        ("reco", 2, 1),
    ]
    # Nothing was reported of the last stage yet. The portal looks again each minute, as accounting
    # may come in parts.
    deadline = time.monotonic() + 180
    while state() != "data_quality":
        assert time.monotonic() < deadline, counts_by_stage(request)
        time.sleep(1)
        assert not collect_finished_jobs(cluster=cluster, at=timezone.now()).problem
        portal.work_off()
    report(client, request, slurm, 2, "reco")
    portal.work_off()
    assert state() == "done"
    assert portal.turn() == []

    check_jobs_and_archive(request, begun)
    check_words(slurm)
    events = Event.objects.filter(
        target_type="production.request", target_id=str(request.pk), at__gte=begun
    )
    moves = [f"request.{verb}" for verb in ("test", "start", "complete", "review", "done")]
    assert (
        list(events.filter(kind__in=moves).order_by("pk").values_list("kind", flat=True)) == moves
    )
    assert set(events.filter(kind__in=moves).values_list("actor", flat=True)) == {"opsportal"}
    frozen = ProductionReport.objects.get(request=request)
    stages = {one["stage"]: one for one in read_frozen(frozen)["stages"]}
    assert stages["sim"]["failed"] == 1
    assert client.get(f"/reports/frozen/{frozen.sha256}/").status_code == 200


def jobs_of(request: Request) -> list[tuple[object, ...]]:
    """Return what the portal knows of the jobs that it submitted for a request,
    for the message of a failure.
    """
    ids = request.submissions.values("spool_id")
    jobs = Job.objects.filter(spool_id__in=ids).order_by("pk")
    return list(
        jobs.values_list(
            "job_id",
            "stage",
            "state",
            "exit_code",
            "proof",
            "request_key",
            "submitted_at",
            "ended_at",
        )
    )


def check_jobs_and_archive(request: Request, begun: datetime) -> None:
    """Every job was found by its environment, and every script kept as it was sent."""
    # Other jobs used its number as well.
    jobs = Job.objects.filter(request=request, submitted_at__gte=begun)
    counts = Counter(jobs.values_list("stage", "state"))
    assert counts == {
        **{(f"{stage}.test", "completed"): 1 for stage in ("gen", "sim", "reco")},
        **{(stage, "completed"): 3 for stage in ("gen", "sim", "reco")},
        ("sim", "failed"): 1,
        ("sim.debug", "completed"): 1,
    }
    for submission in request.submissions.all():
        archived = ArchivedJob.objects.get(job_id=submission.spool_id, submitted_at__gte=begun)
        assert read_blob(archived.script).decode() == submission.script
        environment = dict(
            e.partition(b"=")[::2] for e in read_blob(archived.environment)[4:].split(b"\0")
        )
        assert environment[b"OPSPORTAL_REQUEST"].decode() == request.key
        assert environment[b"OPSPORTAL_STAGE"].decode() == archived.stage
        assert environment[b"OPSPORTAL_SUBMISSION"].decode() == str(submission.token)
        assert b"DATABASE_URL" not in environment


def check_words(slurm) -> None:
    """Each job was told its part, and nothing that a person wrote was read by a shell."""
    told = [(slurm.jobs_dir / f"told-reco-{index}").read_text() for index in range(3)]
    assert told == [
        "it's; $(touch evil) reco 0 1 11\n",
        "it's; $(touch evil) reco 1 12 10\n",
        "it's; $(touch evil) reco 2 22 10\n",
    ]
    assert (slurm.jobs_dir / "made-reco.test-0").read_text() == "5\n"
    assert not (slurm.jobs_dir / "evil").exists()


def test_what_slurm_refuses_is_told(slurm, cluster, request_of_three, approver):
    cluster.submission = {**cluster.submission, "partition": "nowhere"}
    cluster.save()
    assignment = assign_request(
        request=request_of_three, cluster=cluster, by=approver, at=timezone.now(), verb=Verb.START
    )
    plan_next(assignment=assignment, at=timezone.now())
    refused = dispatch.send(
        submission=dispatch.claim_next(cluster=cluster, at=timezone.now()), at=timezone.now()
    )
    assert refused.state == "failed"
    assert "nvalid partition" in refused.last_error
    assert dispatch.adapter_that_submits(cluster).find_submitted(refused.name) is None


#: A service is down for every job the first time.
OUTAGE = """#!/bin/bash
echo $SLURM_JOB_ID >> {jobs}/ran-$OPSPORTAL_JOB_INDEX
if mkdir {jobs}/down-$OPSPORTAL_JOB_INDEX
then echo "HTTP error: 503 Service Unavailable: samweb.declareFile" >&2; exit 65
fi
"""
#: A worker that stops at this function of this module: for good, since it is killed there.
WORKER = """
import sys, time
from importlib import import_module
import django
django.setup()
module, function, first, task, *numbers = sys.argv[1:]
app, task = task.split(".")
module = import_module(module)
real = getattr(module, function)
def stop(*given, **named):
    if first == "done":
        real(*given, **named)
    print("midway", flush=True)
    time.sleep(600)
setattr(module, function, stop)
tasks = import_module(f"apps.{app}.tasks")
getattr(tasks, task)(**{"cluster_id": int(number) for number in numbers})
"""


def kill_midway(module: str, function: str, first: str, *task: object) -> None:
    """Run a task in a worker, and kill it with -9 before or after (`first` is "done") a function
    has done its work.

    `task` is the name of a Celery task and the cluster that it is for, if any.
    """
    url = (
        urlsplit(os.environ["DATABASE_URL"])
        ._replace(path=f"/{connection.settings_dict['NAME']}")
        .geturl()
    )
    environment = os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "opsportal.settings"}
    command = [sys.executable, "-c", WORKER, module, function, first, *map(str, task)]
    before = sessions()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout.readline() == "midway\n"
        finally:
            worker.kill()
    while sessions() - before:  # PostgreSQL keeps its locks until it sees that it is gone
        time.sleep(0.05)


def sessions() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return {pid for (pid,) in cursor.fetchall()}


def test_victims_of_an_outage_are_retried_once_whatever_is_killed(
    slurm, cluster, nova, liaison, approver, tmp_path
):
    program = slurm.jobs_dir / "outage"
    program.write_text(OUTAGE.replace("{jobs}", str(tmp_path)))
    program.chmod(0o755)
    cluster.submission |= {"array_size": 4, "retries": 0}
    cluster.save()
    workflow = workflows.workflow("outage", DECLARATION.replace("{program}", str(program)))
    stage = requests.stage(
        "only", kind="step", jobs=4, events=40, memory_bytes=50_000_000, wall_seconds=600
    )
    request = requests.request_in(
        "queued", by=liaison, experiment=nova, approver=approver, workflow=workflow, stages=(stage,)
    )
    assign_request(
        request=request, cluster=cluster, by=approver, at=timezone.now(), verb=Verb.START
    )
    portal = Portal(cluster, slurm, tmp_path / "journal")
    [array] = portal.turn()
    send_to(cluster_id=cluster.pk)
    group = Job.objects.filter(request=request, state="failed").first().verdict.group
    batch = plan_batch(source=group, by=approver, at=timezone.now(), step=2, pause_minutes=0)
    assert batch.jobs.count() == 4

    release = "apps.submission.domain.retries.release"
    kill_midway(release, "_plan_array", "done", "submission.release_retries")
    assert (counts_of(batch), list(Submission.objects.all())) == ({"waiting": 4}, [array])
    release_retries()
    assert counts_of(batch) == {"waiting": 4}, "the claim of the killed worker still stands"
    RetryBatch.objects.update(due_at=timezone.now())  # as when the claim expires
    release_retries()
    assert counts_of(batch) == {"waiting": 2, "released": 2}
    # sbatch has returned, and its answer is lost.
    kill_midway(
        "apps.submission.domain.dispatch.dispatch",
        "_store_outcome",
        "not done",
        "submission.send_to",
        cluster.pk,
    )
    killed = Submission.objects.get(state="sending")
    assert killed.spool_id == ""
    Submission.objects.filter(pk=killed.pk).update(sending_at=timezone.now() - timedelta(hours=1))
    release_retries()
    portal.turn()
    send_to(cluster_id=cluster.pk)
    release_retries()

    batch.refresh_from_db()
    assert (batch.state, counts_of(batch)) == ("finished", {"succeeded": 4})
    assert [len((tmp_path / f"ran-{index}").read_text().split()) for index in range(4)] == [
        2,
        2,
        2,
        2,
    ]
    assert sorted(Submission.objects.exclude(pk=array.pk).values_list("tasks", "attempts")) == [
        (2, 1),
        (2, 1),
    ]
    assert RetryJob.objects.filter(submission=killed).count() == 2
