"""Recovery rules on a real Slurm: failed jobs complete at a later attempt without a person."""

from datetime import timedelta

import pytest
from django.db.models import F, QuerySet
from django.utils import timezone

from apps.jobs.models import Job
from apps.recovery.domain.rules.lifecycle import create_rule
from apps.recovery.models import Decision
from apps.recovery.tasks import run as run_recovery
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from apps.submission.domain.retries.batches import counts_of
from apps.submission.models import RetryBatch, RetryJob, Submission
from apps.submission.tasks import release_retries, send_to
from tests.end_to_end.conftest import MEMORY_BYTES
from tests.end_to_end.test_submission_slurm import (
    OUTAGE,
    Portal,
    kill_midway,
)
from tests.factories import people, statusboard

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

#: Job 0 needs memory, job 1 a service, and job 2 another host than that of its first attempt.
PROGRAM = """#!/bin/bash
set -o pipefail
case $OPSPORTAL_JOB_INDEX in
0) head -c 130M /dev/zero | tail -c {needed} | wc -c ;;
1) if ! test -e {jobs}/samweb-is-up
   then echo "HTTP error: 503 Service Unavailable: samweb.declareFile" >&2; exit 65
   fi ;;
2) test -e {jobs}/bad-host || echo $SLURMD_NODENAME > {jobs}/bad-host
   test $SLURMD_NODENAME != $(cat {jobs}/bad-host) || exit 71 ;;
esac
"""


def let_time_pass() -> None:
    """Let claims of killed workers expire, and let decided retries be due."""
    minutes = timedelta(minutes=15)
    pending = Decision.objects.filter(decided_at=None)
    pending.update(due_at=F("due_at") - minutes)
    decided = Decision.objects.filter(batch=None, act_at__isnull=False)
    decided.update(act_at=F("act_at") - minutes)
    RetryBatch.objects.update(due_at=F("due_at") - minutes)


def recover(cluster) -> None:
    """Count the jobs that ended, decide about the failed ones, and retry what is due."""
    send_to(cluster_id=cluster.pk)
    run_recovery()
    let_time_pass()
    run_recovery()
    release_retries()


def decisions_on(array: Submission) -> QuerySet[Decision]:
    """Return the decisions on the jobs of an array; accounting has those of other tests, too."""
    return Decision.objects.filter(job__spool_id=array.spool_id)


def arms_of(array: Submission) -> list[str]:
    return list(decisions_on(array).values_list("arm", flat=True))


def test_jobs_complete_with_more_memory_after_an_outage_and_on_another_host(
    slurm,
    cluster,
    start,
    activate,
    approver,
    tmp_path,
):
    # Without a memory limit of the kernel, no job ends as out of memory.
    needed = "120M" if slurm.limits_memory else "1M"
    start(PROGRAM.replace("{needed}", needed), jobs=3)
    bad_host = {"condition": {"exit_codes": [71]}, "action": {"kind": "avoid-host"}}
    create_rule(name="Bad host", definition=bad_host, by=approver, at=timezone.now())
    for name in ("More memory", "Service problem", "Bad host"):
        activate(name)
    samweb = statusboard.service("samweb", people.LONG_AGO)
    portal = Portal(cluster, slurm, tmp_path / "journal")

    [array] = portal.turn()
    now = timezone.now()
    incident = open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=now)
    recover(cluster)
    decided = set(decisions_on(array).values_list("job__job_id", "rule__name", "arm"))
    expected = {
        (f"{array.spool_id}_1", "Service problem", "acted"),
        (f"{array.spool_id}_2", "Bad host", "acted"),
    }
    if slurm.limits_memory:
        expected.add((f"{array.spool_id}_0", "More memory", "acted"))
    assert decided == expected

    portal.turn()
    waiting = RetryJob.objects.get(state="waiting")
    assert waiting.job.job_id == f"{array.spool_id}_1", "its service is still down"

    (tmp_path / "samweb-is-up").touch()
    close_incident(incident=incident, by=approver, at=timezone.now(), reason="It answers.")
    recover(cluster)
    portal.turn()
    recover(cluster)
    assert set(decisions_on(array).values_list("outcome", flat=True)) == {"completed"}
    bad_host_name = (tmp_path / "bad-host").read_text().strip()
    assert second_attempt(array, 1)[1:] == ("completed", {})
    host, *ended = second_attempt(array, 2)
    assert host != bad_host_name
    assert ended == ["completed", {"avoided_hosts": [bad_host_name]}]
    if slurm.limits_memory:
        more = {"memory_bytes": MEMORY_BYTES * 3 // 2}
        assert second_attempt(array, 0)[1:] == ("completed", more)


def second_attempt(array: Submission, index: int) -> tuple[object, ...]:
    """Return host, state and changes of the only retry of a job."""
    retry = Submission.objects.get(retry_of=array, indices=str(index))
    job = Job.objects.get(spool_id=retry.spool_id)
    return job.host, job.state, retry.changes


def test_workers_killed_at_each_step_forget_no_job_and_retry_none_twice(
    slurm,
    cluster,
    start,
    activate,
    tmp_path,
):
    start(OUTAGE, jobs=3)
    activate("Service problem")
    portal = Portal(cluster, slurm, tmp_path / "journal")
    [array] = portal.turn()
    send_to(cluster_id=cluster.pk)

    deciding, acting = (
        "apps.recovery.domain.decisions.decide",
        "apps.recovery.domain.decisions.carry_out",
    )
    kill_midway(deciding, "_decide", "not done", "recovery.run")
    run_recovery()
    assert arms_of(array) == 3 * ["pending"], "the claim of the killed worker still stands"

    let_time_pass()
    kill_midway("apps.recovery.tasks", "follow_decisions", "not done", "recovery.run")
    assert arms_of(array) == 3 * ["acted"]

    let_time_pass()
    kill_midway(acting, "retry_in_batch", "done", "recovery.run")
    assert not RetryBatch.objects.exists()
    run_recovery()
    run_recovery()
    [batch] = RetryBatch.objects.all()
    assert counts_of(batch) == {"waiting": 3}

    release = "apps.submission.domain.retries.release"
    kill_midway(release, "_plan_array", "done", "submission.release_retries")
    assert counts_of(batch) == {"waiting": 3}
    let_time_pass()
    release_retries()
    [retry] = portal.turn()
    recover(cluster)

    assert (retry.retry_of, retry.indices) == (array, "0-2")
    assert counts_of(batch) == {"succeeded": 3}
    assert list(decisions_on(array).values_list("outcome", flat=True)) == 3 * ["completed"]
    for index in range(3):
        assert len((tmp_path / f"ran-{index}").read_text().split()) == 2
