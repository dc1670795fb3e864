"""What becomes of failed jobs that were retried: their verdicts, links and activity."""

from datetime import timedelta

import pytest

from apps.diagnosis.models import Verdict
from apps.diagnosis.wording import headline_of
from apps.jobs.models import Job
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from tests.factories.requests import AT
from tests.factories.submissions import retry_failed
from tests.factories.verdicts import judge
from tests.pages import text_of

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def running(make, cluster, approver):
    request = make("running")
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)


@pytest.fixture
def fail(running, end_jobs):
    """Return a function that sends what is due, and lets tasks of it fail with verdicts."""

    def failing(kinds, at=LATER, service=""):
        plan_next(assignment=running, at=at)
        sent = dispatch.send(submission=dispatch.claim_next(cluster=running.cluster, at=at), at=at)
        end_jobs(sent, failed=set(kinds), at=at)
        dispatch.refresh_progress(cluster=running.cluster, at=at)
        judge(sent, {task: kind for task, kind in kinds.items() if kind}, at=at, service=service)
        return sent

    return failing


def test_job_that_succeeded_as_a_retry_needs_nothing(fail):
    failed = fail({0: "service", 1: "code"})
    service, code = Verdict.objects.order_by("job__job_id")
    assert (service.advice, code.advice) == ("retry", "debug")
    retry_failed(failed, at=LATER)
    again = fail({0: "service"})
    service.refresh_from_db()
    assert (service.retried_as, service.later_state) == (f"{again.spool_id}_0", "failed")
    assert headline_of(service) == f"Service problem: retry {again.spool_id}_0 failed since"
    retry_failed(again, at=LATER)
    last = fail({})
    service.refresh_from_db()
    code.refresh_from_db()
    assert (
        headline_of(service)
        == f"Service problem: succeeded at retry {last.spool_id}_0, nothing to do"
    )
    assert (service.advice, code.advice, code.later_state) == ("none", "debug", "")
    assert last.retry_of.retry_of == failed


@pytest.fixture
def retried(fail, nova):
    """Return three arrays of a request: the failed one, its retry that failed an hour later,
    and the one after it.
    """
    arrays = [fail({1: "service", 2: "service"})]
    for hours, kinds in ((1, {1: "service"}), (2, {})):
        at = LATER + timedelta(hours=hours)
        retry_failed(arrays[-1], at=at)
        arrays.append(fail(kinds, at=at))
    Job.objects.update(experiment=nova)
    return arrays


def job_of(array, task):
    return Job.objects.get(job_id=f"{array.spool_id}_{task}")


def test_each_retry_of_an_array_links_to_the_job_that_it_repeats(retried, approver, browse):
    first, second, last = retried
    client = browse(approver)
    pairs = {
        job_of(second, 0): job_of(first, 1),
        job_of(second, 1): job_of(first, 2),
        job_of(last, 0): job_of(second, 1),
    }
    for retry, failed in pairs.items():
        link = f'<a class="mono" href="{failed.get_absolute_url()}">{failed.job_id}</a>'
        assert f"retry of {link}" in text_of(client.get(retry.get_absolute_url()))
    assert "retry of" not in text_of(client.get(job_of(first, 1).get_absolute_url()))


def test_activity_dates_the_retry_by_its_own_end(retried, approver, browse):
    first, _, last = retried
    failed, retry = job_of(first, 2), job_of(last, 0)
    activity = browse(approver).get(failed.get_absolute_url()).context["activity"]
    assert [(entry.at, entry.text) for entry in activity][-2:] == [
        (LATER, "verdict: service problem"),
        (retry.ended_at, f"retry {retry.job_id} completed"),
    ]
    assert retry.ended_at == LATER + timedelta(hours=2)
