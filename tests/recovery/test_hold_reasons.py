"""Hold reasons in the condition of recovery rules: which jobs have one, and what matches."""

import pytest

from apps.clusters.models import Cluster
from apps.clusters.schedulers.htcondor.classads import read_ad
from apps.clusters.schedulers.htcondor.records import read_record
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.explanations import explain_decision
from apps.recovery.domain.decisions.match import hold_reason
from apps.recovery.domain.rules.definition import read_definition
from apps.recovery.domain.rules.lifecycle import create_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from apps.recovery.web.forms import RuleForm, initial_of
from tests.factories.requests import AT
from tests.recovery.conftest import LATER

HELD = {"condition": {"hold_reasons": ["jobheldadmin", "disk"]}, "action": {"kind": "retry"}}
#: A job that HTCondor held for its disk, and that was removed then.
REMOVED_FROM_HOLD = b"""ClusterId = 7
ProcId = 0
JobStatus = 3
LastJobStatus = 5
QDate = 1795600000
EnteredCurrentStatus = 1795603600
HoldReasonCode = 34
HoldReasonSubCode = 104
HoldReason = "Disk usage exceeded 10 GB"
RemoveReason = "via condor_rm (by user ana)"
"""


@pytest.fixture
def held_rule(approver):
    """An active rule about jobs that ended on hold, the first of all."""
    rule = create_rule(name="Held", definition=HELD, by=approver, at=AT, reason="Test.")
    RecoveryRule.objects.filter(pk=rule.pk).update(position=0)
    set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=AT, reason="Test.")
    return rule


def condor_job(ad: bytes) -> Job:
    """Return the job that accounting stores for an ad of HTCondor's history."""
    record = read_record(read_ad(ad.splitlines()))
    return Job(
        cluster=Cluster(name="condor", scheduler="htcondor"),
        state=record.state,
        exit_code=record.exit_code,
        signal=record.signal,
        started_at=record.started_at,
        reason=record.reason,
    )


def test_job_that_was_removed_from_hold_has_the_reason():
    job = condor_job(REMOVED_FROM_HOLD)
    assert (job.state, hold_reason(job)) == ("failed", "Disk usage exceeded 10 GB")


def test_job_that_failed_by_itself_has_no_hold_reason():
    ended = REMOVED_FROM_HOLD.replace(b"JobStatus = 3", b"JobStatus = 4", 1)
    job = condor_job(ended + b'ExitCode = 1\nVacateReason = "Disk is full"\n')
    assert (job.state, job.exit_code, hold_reason(job)) == ("failed", 1, "")


@pytest.mark.parametrize(
    ("scheduler", "reason", "expected"),
    [
        ("slurm", "JobHeldAdmin", "JobHeldAdmin"),
        ("slurm", "launch failed requeued held", "launch failed requeued held"),
        ("slurm", "Dependency", ""),
        ("slurm", "None", ""),
        ("torque", "Torque could not run it: Exit_status=-1", ""),
    ],
)
def test_only_reasons_of_holds_count(scheduler, reason, expected):
    cluster = Cluster(name="farm", scheduler=scheduler)
    job = Job(cluster=cluster, state="deadline", started_at=None, reason=reason)
    assert hold_reason(job) == expected
    job.started_at = AT
    assert hold_reason(job) == "", "it ran after it was released"


def test_rule_acts_on_the_job_that_ended_on_hold_and_says_why_not_on_others(held_rule, send, fail):
    array = send()
    facts = {"state": "deadline", "reason": "JobHeldAdmin", "exit_code": 0}
    fail(array, {0, 1, 2}, "resource", **facts)
    held = Job.objects.filter(job_id=f"{array.spool_id}_0")
    held.update(started_at=None)
    user_hold = Job.objects.filter(job_id=f"{array.spool_id}_1")
    user_hold.update(started_at=None, reason="JobHeldUser")

    enrol_failures(at=LATER)
    decide_due(at=LATER)
    assert list(Decision.objects.filter(rule=held_rule).values_list("job", flat=True)) == [
        held.get().pk
    ]
    parts = "not “jobheldadmin” or “disk”"
    assert why_not(user_hold.get()) == f"the hold reason is “JobHeldUser”, {parts}"
    ran = Job.objects.get(job_id=f"{array.spool_id}_2")
    assert why_not(ran).startswith("it was not on hold when it ended")
    assert why_not(held.get()) == ""


def why_not(job):
    explanation = explain_decision(Verdict.objects.get(job=job), LATER)
    [why] = [row.why_not for row in explanation.rules if row.rule.record.name == "Held"]
    return why


def test_form_keeps_one_reason_a_line():
    condition = {"hold_reasons": ["Disk usage, exceeded", "JobHeldAdmin"]}
    definition = read_definition({"condition": condition, "action": {"kind": "retry"}})
    initial = initial_of(definition.model_dump(mode="json"))
    assert initial["hold_reasons"] == "Disk usage, exceeded\nJobHeldAdmin"
    field = RuleForm.base_fields["hold_reasons"]
    assert field.clean(f" {initial['hold_reasons']} \n\n") == condition["hold_reasons"]
