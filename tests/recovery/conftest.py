from datetime import timedelta

import pytest

from apps.jobs.models import Job
from apps.recovery.domain.decisions import carry_out
from apps.recovery.domain.rules.lifecycle import change_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.release import advance_batch
from apps.submission.models import RetryBatch
from tests.factories.requests import AT
from tests.factories.verdicts import judge
from tests.submission.conftest import cluster, end_jobs, fake, make, printing, today  # noqa: F401

LATER = AT + timedelta(minutes=10)
GB = 1000**3


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Retries of single jobs do not wait for others."""
    monkeypatch.setattr(carry_out, "GATHERING", timedelta(0))


@pytest.fixture
def assignment(make, cluster, approver):  # noqa: F811
    """A running request on a cluster."""
    return choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)


@pytest.fixture
def send(assignment):
    """Return a function that submits what is due to the cluster."""

    def sending(*, at=LATER):
        plan_next(assignment=assignment, at=at)
        claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
        return dispatch.send(submission=claimed, at=at)

    return sending


@pytest.fixture
def fail(assignment, end_jobs):  # noqa: F811
    """Return a function that ends an array whose tasks failed with a verdict of some kind."""

    def ending(submission, failed, kind="service", *, at=LATER, service="", **facts):
        jobs = end_jobs(submission, failed=set(failed), at=at)
        if facts:
            Job.objects.filter(pk__in=[job.pk for job in jobs]).update(**facts)
        dispatch.refresh_progress(cluster=assignment.cluster, at=at)
        judge(submission, dict.fromkeys(failed, kind), at=at, service=service)

    return ending


@pytest.fixture
def release():
    """Return a function that plans the arrays of all batches of retries."""

    def releasing(*, at):
        for batch in RetryBatch.objects.order_by("pk"):
            advance_batch(batch=batch, at=at)

    return releasing


@pytest.fixture
def rule(db, approver):
    """Return a function that lets the shipped rule of a name act, with changed limits.

    It acts on single jobs unless `alike_jobs` says otherwise.
    """

    def acts(name, *, mode=Mode.ACTIVE, alike_jobs=0, **limits):
        row = RecoveryRule.objects.get(name=name)
        condition = {**row.definition["condition"], "alike_jobs": alike_jobs}
        changed = {
            **row.definition,
            "condition": condition,
            "limits": {**row.definition["limits"], **limits},
        }
        if changed != row.definition:
            row = change_rule(
                rule=row,
                definition=changed,
                by=approver,
                at=LATER,
                reason="Test.",
                base=row.version,
            )
        if mode != Mode.PASSIVE:
            set_mode(rule=row, mode=mode, by=approver, at=LATER, reason="Test.")
        row.refresh_from_db()
        return row

    return acts
