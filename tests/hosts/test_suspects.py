"""Hosts on which the last two jobs failed: probed beside others, and excluded by their probes."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.probes.probe_jobs import PATIENCE, give_up_on_probe_jobs
from apps.hosts.domain.probes.results import store_results
from apps.hosts.domain.probes.suspects import COMPARED_HOSTS, PROBED_AT_ONCE
from apps.hosts.models import HostExclusion, Probe, ProbeJob
from apps.statusboard.models import Service, StateInterval
from tests.factories import clusters

HOSTS = [f"wn-{number}" for number in range(20)]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def disk(db):
    return Probe.objects.create(name="disk", script="true", active=True)


@pytest.fixture
def suspect(alps, disk, run_well, break_host):
    """The name of a host on which the last two jobs failed, among hosts that are fine."""
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad", failures=2)
    return "wn-bad"


def report(bad_hosts, at):
    """Let all unfinished probe jobs report: bad on these hosts, good on the others."""
    report_of(set(ProbeJob.objects.values_list("host", flat=True)), bad_hosts, at)


def report_of(hosts, bad_hosts, at):
    """Let the unfinished probe jobs of some hosts report."""
    for job in ProbeJob.objects.filter(ended_at=None, host__in=hosts):
        phase = {
            "name": "disk",
            "started_at": at.timestamp(),
            "ended_at": at.timestamp() + 6,
            "exit_code": int(job.host in bad_hosts),
        }
        store_results(job_name=job.name, phases=[phase], at=at)


def follow(at, *, minutes, bad_hosts=()):
    """Look for bad hosts once a minute, and let the probe jobs report after each."""
    for minute in range(minutes):
        exclude_failing_hosts(at=at + minute * MINUTE)
        report(bad_hosts, at + minute * MINUTE)


def test_suspect_is_excluded_if_its_probes_are_bad_and_those_of_others_good(suspect, at):
    exclude_failing_hosts(at=at)
    probed = set(ProbeJob.objects.values_list("host", flat=True))
    assert suspect in probed
    assert len(probed - {suspect}) == COMPARED_HOSTS
    assert not HostExclusion.objects.exists()

    report({suspect}, at)
    follow(at + MINUTE, minutes=2, bad_hosts={suspect})

    exclusion = HostExclusion.objects.get()
    assert (exclusion.host, exclusion.automatic) == (suspect, True)
    assert (exclusion.failed_jobs, exclusion.ended_jobs) == (2, 2)
    assert "2 of 2 jobs failed, and probes are bad there (disk)" in exclusion.reason


def test_suspect_with_good_probes_is_not_excluded_and_then_probed_less_often(suspect, at, settings):
    settings.HOST_PROBE_MINUTES = 30
    follow(at, minutes=10)
    assert not HostExclusion.objects.exists()
    assert ProbeJob.objects.filter(host=suspect).count() == PROBED_AT_ONCE


def test_after_three_failures_one_bad_probe_job_is_enough(suspect, alps, break_host, at):
    break_host(alps, suspect, failures=1)
    exclude_failing_hosts(at=at)
    report_of(HOSTS, set(), at)
    exclude_failing_hosts(at=at + MINUTE)  # plans nothing while the suspect has not reported
    report({suspect}, at + MINUTE)
    assert exclude_failing_hosts(at=at + 2 * MINUTE) == 0  # it may be an outage that has just begun
    report_of(HOSTS, set(), at + 2 * MINUTE)
    assert exclude_failing_hosts(at=at + 3 * MINUTE) == 1
    assert HostExclusion.objects.get().failed_jobs == 3


@pytest.mark.parametrize("failures", [2, 4])
@pytest.mark.parametrize("bad_minutes", [range(3), range(2, 9)])
def test_outage_that_begins_or_ends_between_probes_excludes_nobody(
    suspect, alps, break_host, at, bad_minutes, failures
):
    break_host(alps, suspect, failures=failures - 2)
    for minute in range(9):
        exclude_failing_hosts(at=at + minute * MINUTE)
        everywhere = {suspect, *HOSTS} if minute in bad_minutes else set()
        # The suspect reports first, the others half a minute later.
        report_of({suspect}, everywhere, at + minute * MINUTE)
        is_bad_later = minute in bad_minutes and minute + 1 in bad_minutes
        report(everywhere if is_bad_later else set(), at + minute * MINUTE + MINUTE / 2)
    assert not HostExclusion.objects.exists()


def test_bad_probes_everywhere_exclude_nobody(suspect, at):
    follow(at, minutes=5, bad_hosts={suspect, *HOSTS})
    assert ProbeJob.objects.filter(host=suspect, good=False).count() == PROBED_AT_ONCE
    assert not HostExclusion.objects.exists()


def test_one_bad_probe_job_among_those_of_other_hosts_is_doubt_enough(suspect, at):
    exclude_failing_hosts(at=at)
    compared = ProbeJob.objects.exclude(host=suspect).values_list("host", flat=True)
    bad_hosts = {suspect, min(compared)}
    report(bad_hosts, at)
    follow(at + MINUTE, minutes=3, bad_hosts=bad_hosts)
    assert not HostExclusion.objects.exists()


def test_bad_and_good_in_turn_exclude_nobody(suspect, at):
    for minute in range(6):
        follow(at + minute * MINUTE, minutes=1, bad_hosts={suspect} if minute % 2 else set())
    assert not HostExclusion.objects.exists()


def test_probe_jobs_that_do_not_report_exclude_nobody(suspect, alps, at):
    for number in range(3):
        then = at + 11 * number * MINUTE
        exclude_failing_hosts(at=then)
        give_up_on_probe_jobs(cluster=alps, at=then + PATIENCE)
    assert ProbeJob.objects.filter(host=suspect, state="lost").count() >= 2
    assert not HostExclusion.objects.exists()


def test_bad_probe_of_a_service_that_is_down_excludes_nobody(suspect, disk, at):
    disk.service = Service.objects.create(slug="dcache", name="dCache")
    disk.save()
    StateInterval.objects.create(
        service=disk.service, state="down", started_at=at - MINUTE, cause="incident"
    )
    follow(at, minutes=5, bad_hosts={suspect})
    assert not HostExclusion.objects.exists()


def test_no_more_suspects_are_probed_than_may_be_excluded(alps, disk, run_well, break_host, at):
    run_well(alps, HOSTS)
    for number, failures in enumerate([2, 3, 4, 3]):
        break_host(alps, f"bad-{number}", failures=failures)
    exclude_failing_hosts(at=at)
    probed = ProbeJob.objects.filter(host__startswith="bad-").values_list("host", flat=True)
    assert sorted(probed) == ["bad-1", "bad-2"]


def test_lists_of_hosts_in_names_of_jobs_are_not_compared(alps, disk, run_well, break_host, at):
    run_well(alps, [*HOSTS[:2], "wn[03-07]"])
    break_host(alps, "wn-bad", failures=2)
    exclude_failing_hosts(at=at)
    probed = ProbeJob.objects.values_list("host", flat=True)
    assert sorted(probed) == ["wn-0", "wn-1", "wn-bad"]


def test_a_single_failure_makes_no_suspect(alps, disk, run_well, break_host, at):
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad", failures=1)
    exclude_failing_hosts(at=at)
    assert not ProbeJob.objects.exists()


def test_clusters_without_probes_or_submission_have_no_probe_jobs(
    alps, disk, run_well, break_host, at
):
    disk.active = False
    disk.save()
    other = clusters.cluster("other")
    other.options = {"owners": "yes"}
    other.save()
    for cluster in (alps, other):
        run_well(cluster, HOSTS)
        break_host(cluster, "wn-bad", failures=2)
    exclude_failing_hosts(at=at)
    disk.active = True
    disk.save()
    disk.clusters.add(other)
    exclude_failing_hosts(at=at)
    assert not ProbeJob.objects.exists()


def test_probes_of_before_the_failures_do_not_count(suspect, at, alps):
    for minutes_ago in (50, 40):
        job = ProbeJob.objects.create(
            cluster=alps,
            host=suspect,
            name=f"early-{minutes_ago}",
            asked=["disk"],
            state="ended",
            good=False,
            planned_at=at - minutes_ago * MINUTE,
            ended_at=at - minutes_ago * MINUTE,
            due_at=at,
        )
        assert job.pk
    follow(at, minutes=3)
    assert not HostExclusion.objects.exists()


def test_number_of_queries_does_not_grow_with_suspects(alps, disk, run_well, break_host, at):
    def queries(minute):
        with CaptureQueriesContext(connection) as captured:
            assert exclude_failing_hosts(at=at + minute * MINUTE) == 0
        return len(captured)

    run_well(alps, [f"wn-{number}" for number in range(100)], jobs_each=1)
    break_host(alps, "bad-0", failures=2)
    follow(at, minutes=2)
    alone = queries(2)
    report(set(), at + 2 * MINUTE)
    for number in range(1, 9):
        break_host(alps, f"bad-{number}", failures=2)
    follow(at + 3 * MINUTE, minutes=2)
    assert queries(5) == alone
