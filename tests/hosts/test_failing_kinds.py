"""Hosts on which jobs of some kinds fail while others are fine, and their comparison with others."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, strategies
from hypothesis import settings as hypothesis_settings

from apps.diagnosis.domain.groups.blame import group_failures_of_broken_hosts
from apps.diagnosis.domain.groups.broken_hosts import find_failing_hosts, select_broken_hosts
from apps.diagnosis.models import FailureGroup, Verdict
from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.models import CentralCause, HostExclusion
from apps.jobs.models import Job
from tests.factories import jobs
from tests.factories.verdicts import unsaved_verdict

HOSTS = [f"wn-{number}" for number in range(20)]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def run(alps, nova, numbers, at):
    """Return a function that lets jobs of a stage end on a host, one a minute."""
    group = FailureGroup.objects.create(
        fingerprint="f" * 32,
        verdict="service",
        title="It fails",
        status_at=at,
        first_seen_at=at,
        last_seen_at=at,
    )

    def running(host, stage, count, *, failed=False, array="", first=0, experiment=nova):
        rows = []
        for minute in range(first, first + count):
            ended_at = at - (30 - minute) * MINUTE
            job = jobs.unsaved_row(
                alps,
                next(numbers),
                at=ended_at,
                started_at=ended_at - MINUTE,
                host=host,
                stage=stage,
                experiment=experiment,
                state="failed" if failed else "completed",
                exit_code=int(failed),
            )
            if array:
                job.spool_id = array
            rows.append(job)
        Job.objects.bulk_create(rows)
        if failed:
            Verdict.objects.bulk_create(
                unsaved_verdict(job, at=job.ended_at, group=group, service="") for job in rows
            )

    return running


@pytest.fixture
def good_elsewhere(run):
    for host in HOSTS:
        run(host, "reco", 2)
        run(host, "simulation", 2)


def test_host_that_fails_one_stage_which_others_run_well_is_excluded(run, good_elsewhere, alps, at):
    run("wn-bad", "reco", 8, failed=True)
    run("wn-bad", "simulation", 8)  # in between: that stage is fine

    [group] = group_failures_of_broken_hosts(at=at)
    assert exclude_failing_hosts(at=at) == 1

    exclusion = HostExclusion.objects.get()
    assert (exclusion.host, exclusion.failed_jobs, exclusion.ended_jobs) == ("wn-bad", 8, 8)
    assert exclusion.reason == "8 of 8 jobs of reco failed, and other hosts run them well."
    assert exclusion.group == group
    assert group.verdicts.count() == 8


def test_host_that_fails_one_experiment_is_excluded(run, good_elsewhere, dune, at):
    for host in HOSTS:
        run(host, "keep-up", 2, experiment=dune)
        run(host, "reco", 1, experiment=dune)
    run("wn-bad", "keep-up", 4, failed=True, experiment=dune)
    run("wn-bad", "reco", 4, failed=True, first=4, experiment=dune)
    run("wn-bad", "reco", 10)
    assert exclude_failing_hosts(at=at) == 1


def test_stage_that_fails_everywhere_blames_no_host_and_is_no_central_cause(
    run, good_elsewhere, at
):
    for host in HOSTS[:10]:
        run(host, "merge", 8, failed=True)
    assert exclude_failing_hosts(at=at) == 0
    assert group_failures_of_broken_hosts(at=at) == []
    assert not CentralCause.objects.exists()


def test_stage_that_runs_on_one_host_alone_cannot_be_compared(run, good_elsewhere, at):
    run("wn-0", "merge", 20, failed=True)
    assert exclude_failing_hosts(at=at) == 0


def test_array_of_bad_inputs_on_one_host_does_not_blame_it(run, good_elsewhere, at):
    """Its jobs fail at once, so that the host that they came to first takes them all."""
    run("wn-0", "reco", 10, failed=True, array="4711")
    assert exclude_failing_hosts(at=at) == 0


def test_array_whose_jobs_complete_elsewhere_blames_the_host(run, good_elsewhere, at):
    run("wn-bad", "reco", 10, failed=True, array="4711")
    for host in HOSTS[:10]:
        run(host, "reco", 2, array="4711")
    assert exclude_failing_hosts(at=at) == 1


def test_outage_during_the_failures_explains_them(run, good_elsewhere, at):
    run("wn-0", "reco", 8, failed=True)
    for host in HOSTS[1:8]:
        run(host, "reco", 2, failed=True, first=2)
    assert exclude_failing_hosts(at=at) == 0


def test_number_of_queries_does_not_grow_with_the_hosts(
    run, good_elsewhere, at, django_assert_num_queries
):
    run("bad-0", "reco", 8, failed=True)
    run("bad-1", "reco", 8, failed=True, array="1")
    with django_assert_num_queries(6):
        assert len(select_broken_hosts(find_failing_hosts(at=at), at=at)) == 1
    for number in range(2, 12):
        run(f"bad-{number}", "reco", 8, failed=True, array=str(number))
    with django_assert_num_queries(6):
        select_broken_hosts(find_failing_hosts(at=at), at=at)


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(strategies.data())
def test_a_host_is_never_blamed_for_less_than_five_failures_of_which_few_fail_elsewhere(
    run, at, data
):
    Job.objects.all().delete()
    for host in HOSTS[:4]:
        for stage in ("reco", "merge"):
            run(host, stage, data.draw(strategies.integers(0, 6)))
            run(host, stage, data.draw(strategies.integers(0, 7)), failed=True, first=6)
    failing_hosts = find_failing_hosts(at=at)
    for failing in select_broken_hosts(failing_hosts, at=at):
        failures = Job.objects.filter(host=failing.host, state="failed")
        assert failing.failed >= 5
        assert set(failing.failed_jobs) <= set(failures.values_list("pk", flat=True))
        others = Job.objects.exclude(host=failing.host).exclude(host="")
        if failing.of_kinds:
            others = others.filter(stage__in=[stage for _, stage in failing.jobs_by_kind])
        share = others.filter(state="failed").count() / max(others.count(), 1)
        assert failing.failed / failing.ended > share
