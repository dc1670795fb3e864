"""Hosts that the portal excludes: the rule, its bounds, central causes, and two workers at once."""

import threading
from datetime import timedelta

import pytest
from django.db import connections
from hypothesis import HealthCheck, given, strategies
from hypothesis import settings as hypothesis_settings

from apps.core.models import Event
from apps.diagnosis.domain.groups.blame import group_failures_of_broken_hosts
from apps.hosts.domain import automatic
from apps.hosts.domain.automatic import exclude_failing_hosts, most_excluded
from apps.hosts.domain.exclusions import (
    end_expired_exclusions,
    exclude_host,
    open_exclusions,
    return_host,
)
from apps.hosts.models import CentralCause, HostExclusion
from apps.hosts.tasks import follow
from apps.jobs.models import Job
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, Incident
from tests.factories import clusters, statusboard

HOSTS = [f"wn-{number}" for number in range(20)]
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def excluded(cluster, at):
    rows = open_exclusions(at).filter(cluster=cluster)
    return sorted(rows.values_list("host", flat=True))


def test_black_hole_is_excluded_with_its_evidence(alps, run_well, break_host, at):
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad", failures=7)
    [group] = group_failures_of_broken_hosts(at=at)

    assert exclude_failing_hosts(at=at) == 1

    exclusion = HostExclusion.objects.get()
    assert (exclusion.cluster, exclusion.host, exclusion.by) == (alps, "wn-bad", "opsportal")
    assert (exclusion.failed_jobs, exclusion.ended_jobs, exclusion.group) == (7, 7, group)
    assert exclusion.automatic
    assert exclusion.expires_at == at + timedelta(hours=24)
    assert "7 of 7 jobs failed" in exclusion.reason
    assert Event.objects.get(kind="host.excluded").target_label == "wn-bad of alps"

    assert exclude_failing_hosts(at=at + MINUTE) == 0
    assert HostExclusion.objects.count() == 1


def test_good_hosts_and_hosts_that_fail_as_often_as_others_are_not_excluded(
    alps, run_well, break_host, at
):
    run_well(alps, HOSTS)
    for _ in range(4):
        break_host(alps, "wn-mixed", failures=2)
        run_well(alps, ["wn-mixed"], jobs_each=2, ran=MINUTE)
    break_host(alps, "wn-few", failures=4)

    assert exclude_failing_hosts(at=at) == 0
    assert not CentralCause.objects.exists()


def test_failures_of_more_than_an_hour_ago_exclude_nothing(alps, run_well, break_host, at):
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    assert exclude_failing_hosts(at=at + HOUR) == 0


def test_clusters_without_submission_are_left_alone(alps, run_well, break_host, at):
    other = clusters.cluster("other")
    run_well(other, HOSTS)
    break_host(other, "wn-bad")
    assert exclude_failing_hosts(at=at) == 0
    other.options = {"owners": "yes"}
    other.save()
    assert exclude_failing_hosts(at=at) == 1


def test_zero_percent_turns_it_off(alps, run_well, break_host, at, settings):
    settings.HOST_EXCLUSION_PERCENT = 0
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    assert exclude_failing_hosts(at=at) == 0


def test_central_cause_ends_once_its_cluster_is_no_longer_looked_at(
    alps, run_well, break_host, at, settings
):
    run_well(alps, HOSTS)
    for number in range(5):
        break_host(alps, f"bad-{number}")
    exclude_failing_hosts(at=at)
    settings.HOST_EXCLUSION_PERCENT = 0
    exclude_failing_hosts(at=at + MINUTE)
    assert CentralCause.objects.get().ended_at == at + MINUTE


@pytest.mark.parametrize(
    ("hosts", "most"), [(0, 0), (1, 0), (2, 1), (9, 1), (19, 1), (20, 2), (99, 9), (1000, 100)]
)
def test_bound(hosts, most):
    assert most_excluded(hosts) == most


def test_bound_counts_hosts_that_people_excluded(alps, run_well, break_host, at, shifter):
    run_well(alps, HOSTS)
    for host in ("wn-1", "wn-2"):
        exclude_host(cluster=alps, host=host, reason="Disk.", by=shifter, at=at)
    break_host(alps, "wn-bad")
    assert exclude_failing_hosts(at=at) == 0
    assert excluded(alps, at) == ["wn-1", "wn-2"]


def test_too_many_hosts_at_once_are_a_central_cause_and_open_one_incident(
    alps, run_well, break_host, at
):
    alps.service = statusboard.service("alps-batch", at - HOUR)
    alps.save()
    run_well(alps, HOSTS)
    for host in ("bad-1", "bad-2", "bad-3"):
        break_host(alps, host)

    for minute in range(3):
        assert exclude_failing_hosts(at=at + minute * MINUTE) == 0

    assert not HostExclusion.objects.exists()
    incident = Incident.objects.get()
    assert (incident.service, incident.state) == (alps.service, "degraded")
    assert "3 of 23 hosts" in incident.title
    cause = CentralCause.objects.get()
    assert (cause.incident, cause.failing_hosts, cause.known_hosts) == (incident, 3, 23)
    assert not Announcement.objects.exists()


def test_central_cause_of_a_cluster_without_service_is_announced_once(
    alps, run_well, break_host, at
):
    run_well(alps, HOSTS)
    for number in range(5):
        break_host(alps, f"bad-{number}")
    exclude_failing_hosts(at=at)
    exclude_failing_hosts(at=at + MINUTE)
    announcement = Announcement.objects.get()
    assert "5 of 25 hosts" in announcement.title
    assert announcement.ends_at == at + timedelta(days=1)


def test_outage_on_all_hosts_is_central_although_no_host_stands_out(alps, break_host, at):
    for host in HOSTS:
        break_host(alps, host)
    assert exclude_failing_hosts(at=at) == 0
    assert CentralCause.objects.get().failing_hosts == len(HOSTS)


def test_known_incident_of_the_service_that_fails_is_not_reported_again(
    alps, break_host, at, shifter
):
    samweb = statusboard.service("samweb", at - HOUR)
    known = open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=at)
    alps.service = statusboard.service("alps-batch", at - HOUR)
    alps.save()
    for host in HOSTS:
        break_host(alps, host, service="samweb")
    exclude_failing_hosts(at=at)
    assert CentralCause.objects.get().incident == known
    assert Incident.objects.count() == 1


def test_host_excluded_in_the_same_hour_is_returned_if_the_cause_turns_out_central(
    alps, run_well, break_host, at
):
    run_well(alps, HOSTS)
    break_host(alps, "bad-1")
    assert exclude_failing_hosts(at=at) == 1
    for number in (2, 3, 4):
        break_host(alps, f"bad-{number}", ended_at=at + 20 * MINUTE)
    assert exclude_failing_hosts(at=at + 20 * MINUTE) == 0
    exclusion = HostExclusion.objects.get()
    assert (exclusion.ended_as, exclusion.ended_at) == ("central", at + 20 * MINUTE)


def test_after_a_central_cause_only_later_jobs_count(alps, run_well, break_host, at):
    run_well(alps, HOSTS)
    for number in range(4):
        break_host(alps, f"bad-{number}")
    break_host(alps, "bad-0", ended_at=at + 30 * MINUTE)
    exclude_failing_hosts(at=at + 30 * MINUTE)

    over = at + 65 * MINUTE
    assert exclude_failing_hosts(at=over) == 0
    assert CentralCause.objects.get().ended_at == over
    assert exclude_failing_hosts(at=over + MINUTE) == 0

    run_well(alps, HOSTS, ended_at=over + 5 * MINUTE)
    break_host(alps, "bad-0", ended_at=over + 5 * MINUTE, failures=10)
    assert exclude_failing_hosts(at=over + 6 * MINUTE) == 1
    assert excluded(alps, over + 6 * MINUTE) == ["bad-0"]


def test_returned_host_is_excluded_again_only_for_jobs_that_started_later(
    alps, run_well, break_host, at, shifter
):
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    exclude_failing_hosts(at=at)
    returned_at = at + 5 * MINUTE
    return_host(
        exclusion=HostExclusion.objects.get(), by=shifter, at=returned_at, reason="New disk."
    )
    assert exclude_failing_hosts(at=returned_at + MINUTE) == 0

    break_host(alps, "wn-bad", ended_at=at + 10 * MINUTE)
    assert exclude_failing_hosts(at=at + 11 * MINUTE) == 1
    assert HostExclusion.objects.count() == 2


def test_expired_exclusion_has_no_effect_and_ends(alps, run_well, break_host, at, settings):
    settings.HOST_EXCLUSION_HOURS = 1
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    exclude_failing_hosts(at=at)
    assert excluded(alps, at + HOUR) == []
    assert end_expired_exclusions(at=at + 59 * MINUTE) == 0
    assert end_expired_exclusions(at=at + HOUR) == 1
    assert end_expired_exclusions(at=at + HOUR) == 0
    assert HostExclusion.objects.get().ended_as == "expired"
    assert Event.objects.filter(kind="host.expired").count() == 1


def test_host_whose_exclusion_expired_unnoticed_can_be_excluded_again(
    alps, run_well, break_host, at
):
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    exclude_failing_hosts(at=at)
    HostExclusion.objects.update(expires_at=at + MINUTE)
    later = at + 10 * MINUTE
    break_host(alps, "wn-bad", ended_at=later)
    assert exclude_failing_hosts(at=later) == 1
    assert sorted(HostExclusion.objects.values_list("ended_as", flat=True)) == ["", "expired"]


def test_task_ends_and_excludes(alps, run_well, break_host, at, monkeypatch):
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    follow()
    assert excluded(alps, at) == ["wn-bad"]


def test_host_names_that_would_name_several_hosts_are_not_excluded(alps, run_well, break_host, at):
    run_well(alps, HOSTS)
    break_host(alps, "wn[1-9]")
    break_host(alps, "wn-1,wn-2")
    assert exclude_failing_hosts(at=at) == 0
    assert not CentralCause.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_exclude_each_host_once_and_keep_the_bound(
    alps, run_well, break_host, at, monkeypatch
):
    run_well(alps, HOSTS)
    break_host(alps, "bad-1")
    break_host(alps, "bad-2")
    # Both decide before either of them stores anything.
    together = threading.Barrier(2)
    decide = automatic.select_broken_hosts

    def wait_for_the_other(failing_hosts, *, at):
        together.wait(timeout=20)
        return decide(failing_hosts, at=at)

    monkeypatch.setattr(automatic, "select_broken_hosts", wait_for_the_other)
    done = []

    def work():
        try:
            done.append(exclude_failing_hosts(at=at))
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(done) == 2
    assert excluded(alps, at) == ["bad-1", "bad-2"]
    assert Event.objects.filter(kind="host.excluded").count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_note_one_central_cause(alps, run_well, break_host, at):
    run_well(alps, HOSTS)
    for number in range(6):
        break_host(alps, f"bad-{number}")
    start = threading.Barrier(2)

    def work():
        try:
            start.wait(timeout=20)
            exclude_failing_hosts(at=at)
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert CentralCause.objects.count() == Announcement.objects.count() == 1


@hypothesis_settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    good=strategies.integers(0, 30),
    broken_by_hour=strategies.lists(strategies.integers(0, 4), min_size=1, max_size=4),
)
def test_portal_never_excludes_more_than_the_share(
    alps, run_well, break_host, at, good, broken_by_hour
):
    HostExclusion.objects.all().delete()
    CentralCause.objects.all().delete()
    Job.objects.all().delete()
    hosts = [f"good-{number}" for number in range(good)]
    number = 0
    for hour, broken in enumerate(broken_by_hour):
        moment = at + hour * 70 * MINUTE
        run_well(alps, hosts, ended_at=moment)
        for _ in range(broken):
            number += 1
            break_host(alps, f"bad-{number}", ended_at=moment)
        exclude_failing_hosts(at=moment)
        exclude_failing_hosts(at=moment + 5 * MINUTE)

        most = most_excluded(good + number)
        assert HostExclusion.objects.filter(ended_at=None).count() <= most
        if broken > most:
            assert CentralCause.objects.filter(ended_at=None).exists()
