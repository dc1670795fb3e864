import pytest
from django.utils import timezone

from apps.clusters.domain import ensure_cluster
from apps.production.enums import Verb
from apps.recovery.domain.rules.lifecycle import change_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule
from apps.submission.domain.arrays.assignment import assign_request
from tests.factories import people, requests, workflows

DECLARATION = """
title: Steps
stages:
  step:
    title: Step
    arguments: [name, release, configuration, output_dataset, events, jobs, memory_bytes, wall_seconds]
    command: ["{program}", "{configuration}", "{stage}", "{job_index}", "{first_event}", "{events_per_job}"]
"""


@pytest.fixture
def cluster(slurm, settings):
    settings.LOG_ROOTS = [slurm.jobs_dir]
    cluster = ensure_cluster(
        name=slurm.cluster,
        scheduler="slurm",
        by="test",
        at=people.LONG_AGO,
        options={"conf": str(slurm.conf), "log_owners": "root"},
    )
    cluster.submits = True
    output = str(slurm.jobs_dir / "%A_%a.out")
    cluster.submission = {
        "directory": str(slurm.jobs_dir),
        "output": output,
        "array_size": 2,
        "test_events": 5,
    }
    cluster.save()
    return cluster


MEMORY_BYTES = 100 * 2**20


@pytest.fixture
def start(slurm, cluster, nova, liaison, approver, tmp_path):
    """Return a function that starts a request of one array of jobs that run a program."""

    def starting(program, *, jobs):
        path = tmp_path / "program"
        path.write_text(program.replace("{jobs}", str(tmp_path)))
        path.chmod(0o755)
        cluster.submission |= {"array_size": jobs}
        cluster.save()
        stage = requests.stage(
            "only",
            kind="step",
            jobs=jobs,
            events=10 * jobs,
            memory_bytes=MEMORY_BYTES,
            wall_seconds=600,
        )
        request = requests.request_in(
            "queued",
            by=liaison,
            experiment=nova,
            approver=approver,
            workflow=workflows.workflow("recovery", DECLARATION.replace("{program}", str(path))),
            stages=(stage,),
        )
        assign_request(
            request=request, cluster=cluster, by=approver, at=timezone.now(), verb=Verb.START
        )
        return request

    return starting


@pytest.fixture
def activate(approver):
    """Return a function that lets a rule act on all jobs that it matches."""

    def activating(name):
        now = timezone.now()
        rule = RecoveryRule.objects.get(name=name)
        limits = {**rule.definition["limits"], "control_percent": 0}
        condition = {**rule.definition["condition"], "alike_jobs": 0}
        rule = change_rule(
            rule=rule,
            definition={**rule.definition, "condition": condition, "limits": limits},
            by=approver,
            at=now,
            reason="Test.",
            base=rule.version,
        )
        set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=now, reason="Test.")

    return activating
