"""A request of three stages, sent to a real Slurm by the portal, with a job that fails and is sent again."""

import time
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from apps.accounts.models import User
from apps.archive.models import ArchivedJob
from apps.archive.selectors import read_blob
from apps.clusters.services import ensure_cluster
from apps.core import tasks as core_tasks
from apps.jobs.models import Job
from apps.jobs.services import LAG, collect_finished_jobs
from apps.production.enums import Verb
from apps.production.models import WorkflowType
from apps.production.workflow_types import save_workflow, workflow_of
from apps.submission import sending
from apps.submission.models import Submission
from apps.submission.planning import plan_next
from apps.submission.services import assign_request, retry_failed
from tests import people
from tests.production import written

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
]

#: Job 1 of the stage `sim` fails the first time: the directory is not there yet.
DECLARATION = """
title: Steps
stages:
  step:
    title: Step
    arguments: [name, release, configuration, output_dataset, events, jobs, memory_bytes, wall_seconds]
    command: ["{program}", "{configuration}", "{stage}", "{job_index}", "{first_event}", "{events_per_job}"]
"""
PROGRAM = """#!/bin/bash
echo "$@" > {jobs}/told-$OPSPORTAL_STAGE-$OPSPORTAL_JOB_INDEX
[ $2 = sim ] && [ $3 = 1 ] && mkdir {jobs}/once && exit 7
exit 0
"""


@pytest.fixture
def cluster(slurm, settings):
    settings.LOG_ROOTS = [slurm.jobs_dir]
    cluster = ensure_cluster(
        name=slurm.cluster, scheduler="slurm", by="test", at=people.LONG_AGO, options={"conf": str(slurm.conf)}
    )
    cluster.submits = True
    output = str(slurm.jobs_dir / "%A_%a.out")
    cluster.submission = {"directory": str(slurm.jobs_dir), "output": output, "array_size": 2}
    cluster.save()
    return cluster


@pytest.fixture
def request_of_three(slurm, nova, liaison, approver):
    program = slurm.jobs_dir / "program"
    program.write_text(PROGRAM.replace("{jobs}", str(slurm.jobs_dir)))
    program.chmod(0o755)
    kind = WorkflowType.objects.create(key="steps")
    declaration = DECLARATION.replace("{program}", str(program))
    workflow = workflow_of(save_workflow(workflow_type=kind, declaration=declaration, by="test", at=people.LONG_AGO))
    values = {"jobs": 3, "events": 31, "memory_bytes": 50_000_000, "wall_seconds": 600}
    stages = tuple(written.stage(name, kind="step", **values) for name in ("gen", "sim", "reco"))
    request = written.request_in(
        "queued", by=liaison, experiment=nova, approver=approver, workflow=workflow, stages=stages
    )
    request.stages.filter(name="reco").update(configuration="it's; $(touch evil)")
    return request


class Portal:
    """What worker and beat do, step by step."""

    def __init__(self, cluster, slurm, journal) -> None:
        self.cluster, self.slurm, self.journal = cluster, slurm, journal

    def capture(self) -> None:
        words = {"cluster": self.cluster.name, "scheduler": "slurm", "spool": self.slurm.state_dir}
        call_command("capture", **words, journal=self.journal, once=True)

    def send(self, assignment) -> list[Submission]:
        """Plan and send all that is due now."""
        sent = []
        while True:
            plan_next(assignment=assignment, at=timezone.now())
            claimed = sending.claim_next(cluster=self.cluster, at=timezone.now())
            if claimed is None:
                self.capture()
                return sent
            sent.append(sending.send(submission=claimed, at=timezone.now()))

    def settle(self, sent: list[Submission]) -> None:
        """Wait for the jobs, and collect them."""
        for submission in sent:
            assert submission.state == "sent", submission.last_error
            assert sending.adapter_that_submits(self.cluster).find_submitted(submission.name) == submission.spool_id
        self.slurm.wait_ended(submission.spool_id for submission in sent)
        time.sleep(LAG.total_seconds() + 1)
        assert not collect_finished_jobs(cluster=self.cluster, at=timezone.now()).problem
        core_tasks.deliver_waiting()
        sending.refresh_progress(cluster=self.cluster, at=timezone.now())
        for submission in sent:
            submission.refresh_from_db()
            assert submission.settled_at, submission.ended


def test_three_stages_with_a_job_that_is_sent_again(slurm, cluster, request_of_three, approver: User, tmp_path):
    portal, request = Portal(cluster, slurm, tmp_path / "journal"), request_of_three
    begun = timezone.now() - timedelta(seconds=2)
    assignment = assign_request(request=request, cluster=cluster, by=approver, at=begun, verb=Verb.START)

    generated = portal.send(assignment)
    assert [(s.stage_name, s.first, s.tasks) for s in generated] == [("gen", 0, 2), ("gen", 2, 1)]
    portal.settle(generated)

    simulated = portal.send(assignment)
    portal.settle(simulated)
    assert [(s.stage_name, s.completed, s.failed_indices) for s in simulated] == [("sim", 1, "1"), ("sim", 1, "")]
    assert portal.send(assignment) == [], "the last stage waits for all of it"

    retry_failed(request=request, position=1, by=approver, at=timezone.now())
    again = portal.send(assignment)
    assert [(s.stage_name, s.indices) for s in again] == [("sim", "1")]
    portal.settle(again)

    reconstructed = portal.send(assignment)
    assert {s.stage_name for s in reconstructed} == {"reco"}
    portal.settle(reconstructed)
    assert portal.send(assignment) == []

    jobs = Job.objects.filter(request=request, submitted_at__gte=begun)  # others used its number as well
    assert sorted(jobs.values_list("stage", "state")) == sorted(
        [("gen", "completed")] * 3 + [("sim", "completed")] * 3 + [("sim", "failed")] + [("reco", "completed")] * 3
    )
    for submission in generated + simulated + again + reconstructed:
        archived = ArchivedJob.objects.get(job_id=submission.spool_id, submitted_at__gte=begun)
        assert read_blob(archived.script).decode() == submission.script
        assert (archived.request_key, archived.stage) == (request.key, submission.stage_name)
        environment = dict(e.partition(b"=")[::2] for e in read_blob(archived.environment)[4:].split(b"\0"))
        assert environment[b"OPSPORTAL_SUBMISSION"].decode() == str(submission.token)
        assert b"DATABASE_URL" not in environment
    told = [(slurm.jobs_dir / f"told-reco-{index}").read_text() for index in range(3)]
    assert told == [
        "it's; $(touch evil) reco 0 1 11\n",
        "it's; $(touch evil) reco 1 12 10\n",
        "it's; $(touch evil) reco 2 22 10\n",
    ]
    assert not (slurm.jobs_dir / "evil").exists()


def test_what_slurm_refuses_is_told(slurm, cluster, request_of_three, approver):
    cluster.submission = {**cluster.submission, "partition": "nowhere"}
    cluster.save()
    assignment = assign_request(
        request=request_of_three, cluster=cluster, by=approver, at=timezone.now(), verb=Verb.START
    )
    plan_next(assignment=assignment, at=timezone.now())
    refused = sending.send(submission=sending.claim_next(cluster=cluster, at=timezone.now()), at=timezone.now())
    assert refused.state == "failed"
    assert "nvalid partition" in refused.last_error
    assert sending.adapter_that_submits(cluster).find_submitted(refused.name) is None
