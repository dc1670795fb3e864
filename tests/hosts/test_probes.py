"""Probe jobs: planned, submitted once, reported by their script, given up, and what follows."""

from datetime import timedelta
from itertools import pairwise

import pytest
from django.db.models import Count

from apps.clusters.models import Cluster, Site
from apps.core.models import Event
from apps.hosts.domain.exclusions import exclude_host, return_host
from apps.hosts.domain.probes.probe_jobs import (
    MOST_SURVEYS_AT_ONCE,
    PATIENCE,
    PLANNED_EVERY,
    forget_probe_jobs,
    plan_probe_jobs,
)
from apps.hosts.domain.probes.results import store_results
from apps.hosts.domain.probes.shipped import load_shipped_probes
from apps.hosts.domain.probes.states import bad_states, measured_matrix
from apps.hosts.domain.probes.tokens import new_probe_token, read_probe_token
from apps.hosts.models import HostExclusion, MeasuredState, Probe, ProbeJob, ProbeResult
from apps.statusboard.models import Service, StateInterval
from tests.factories import clusters
from tests.hosts.probing import (
    MINUTE,
    exclude_as_portal,
    give_up_on_probe_jobs,
    list_hosts,
    probe_once,
    report,
    run_script,
    send_probe_jobs,
)

pytestmark = pytest.mark.usefixtures("excluded_hosts_alone")


def test_excluded_host_is_probed_and_returns_after_three_good_jobs_in_a_row(
    fake, farm, probes, excluded, at
):
    probe_once(at)
    probe_once(at + MINUTE)  # not due yet
    assert ProbeJob.objects.count() == 1
    probe_once(at + 5 * MINUTE)
    probe_once(at + 10 * MINUTE, exit_code=1)
    for minutes in (15, 20):
        probe_once(at + minutes * MINUTE)
    excluded.refresh_from_db()
    assert excluded.is_in_effect(at + 21 * MINUTE)

    probe_once(at + 25 * MINUTE)

    excluded.refresh_from_db()
    assert (excluded.ended_as, excluded.ended_at) == ("probed", at + 26 * MINUTE)
    assert excluded.end_reason == "3 probe jobs in a row were good (disk, mount)."
    assert Event.objects.filter(kind="host.returned").count() == 1
    assert ProbeJob.objects.count() == 6
    probe_once(at + 60 * MINUTE)
    assert ProbeJob.objects.count() == 6  # no longer excluded


def test_job_runs_on_its_host_alone_with_the_options_of_the_cluster(
    fake, farm, probes, excluded, at
):
    plan_probe_jobs(at=at)
    assert send_probe_jobs(at=at) == 1
    job = ProbeJob.objects.get()
    assert fake.jobs() == [(job.spool_id, job.name)]
    options = fake.options(job.spool_id)
    assert "--nodelist=wn-1.example.org" in options
    assert "--partition=long" in options
    assert not [option for option in options if option.startswith("--exclude")]
    variables = fake.environment(job.spool_id)
    assert variables["OPSPORTAL_PROBES"] == "disk mount"
    assert read_probe_token(variables["OPSPORTAL_PHASE_TOKEN"]) == job.name
    assert read_probe_token(variables["OPSPORTAL_PHASE_TOKEN"] + "x") is None


def test_two_workers_plan_and_submit_a_job_once(fake, farm, probes, excluded, at):
    plan_probe_jobs(at=at)
    plan_probe_jobs(at=at)
    assert ProbeJob.objects.count() == 1
    assert send_probe_jobs(at=at) == 1
    assert send_probe_jobs(at=at) == 0
    assert len(fake.jobs()) == 1


def test_worker_killed_after_the_submission_does_not_submit_again(
    fake, farm, probes, excluded, at, monkeypatch
):
    plan_probe_jobs(at=at)
    with monkeypatch.context() as patch:
        patch.setattr("apps.hosts.domain.probes.probe_jobs._store_submission", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send_probe_jobs(at=at)
    assert len(fake.jobs()) == 1
    assert send_probe_jobs(at=at + MINUTE) == 0  # its claim lasts for minutes
    assert send_probe_jobs(at=at + 6 * MINUTE) == 1
    assert len(fake.jobs()) == 1
    assert ProbeJob.objects.get().spool_id == fake.jobs()[0][0]


def interrupted(*_):
    raise KeyboardInterrupt


def test_scheduler_that_is_down_is_asked_again_and_a_refusal_is_bad(
    fake, farm, probes, excluded, at
):
    fake.mode("down")
    plan_probe_jobs(at=at)
    assert send_probe_jobs(at=at) == 0
    job = ProbeJob.objects.get()
    assert job.state == "planned"
    assert "Unable to contact" in job.last_error
    fake.mode("ok")
    assert send_probe_jobs(at=at + 6 * MINUTE) == 1
    report(job, at + 7 * MINUTE)

    fake.mode("refuse")
    plan_probe_jobs(at=at + 10 * MINUTE)
    send_probe_jobs(at=at + 10 * MINUTE)
    refused = ProbeJob.objects.get(state="refused")
    assert (refused.good, refused.ended_at) == (False, at + 10 * MINUTE)
    assert "Invalid account" in refused.last_error


def test_job_that_does_not_report_is_cancelled_and_lost(fake, farm, probes, excluded, at):
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    job = ProbeJob.objects.get()
    assert give_up_on_probe_jobs(at=at + PATIENCE) == 0  # it may still run
    late = at + PATIENCE + 2 * MINUTE
    fake.mode("down")  # it cannot be cancelled: its deadline ends it
    assert "--deadline=now+12minutes" in fake.options(job.spool_id)
    assert give_up_on_probe_jobs(at=late) == 1
    job.refresh_from_db()
    assert (job.state, job.good) == ("lost", False)
    assert not MeasuredState.objects.exists()  # host or network: nothing is known of the services

    stored = report(job, late)
    assert stored.problems == [(1, "The probe job has ended."), (2, "The probe job has ended.")]


def test_probe_that_hangs_is_bad_and_those_before_it_count(fake, farm, probes, excluded, at):
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    job = ProbeJob.objects.get()
    report(job, at + MINUTE, names=["disk"])
    late = at + PATIENCE + 2 * MINUTE
    assert give_up_on_probe_jobs(at=late) == 1
    assert fake.told() == [f"scancel --quiet {job.spool_id}"]
    states = dict(MeasuredState.objects.values_list("probe__name", "good"))
    assert states == {"disk": True, "mount": False}
    assert ProbeResult.objects.get(probe__name="mount").message == "It did not end in time."


def test_job_of_a_scheduler_that_stays_down_is_given_up(fake, farm, probes, excluded, at):
    fake.mode("down")
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    assert give_up_on_probe_jobs(at=at + PATIENCE) == 1
    assert ProbeJob.objects.get().state == "lost"


def test_bad_probe_of_a_service_that_is_out_does_not_speak_against_the_host(
    fake, farm, probes, excluded, at
):
    _, mount = probes
    mount.service = Service.objects.create(slug="cvmfs", name="CVMFS")
    mount.save()
    StateInterval.objects.create(
        service=mount.service, state="down", started_at=at, ended_at=at + 6 * MINUTE, cause="feed"
    )
    for minutes in (0, 5, 10):
        plan_probe_jobs(at=at + minutes * MINUTE)
        send_probe_jobs(at=at + minutes * MINUTE)
        job = ProbeJob.objects.get(state="sent")
        report(job, at + minutes * MINUTE, names=["disk"])
        report(job, at + minutes * MINUTE, names=["mount"], exit_code=1)
    jobs = ProbeJob.objects.order_by("planned_at")
    assert list(jobs.values_list("good", flat=True)) == [True, True, False]
    results = ProbeResult.objects.filter(probe=mount).order_by("measured_at")
    assert list(results.values_list("excused", flat=True)) == [True, True, False]
    assert not MeasuredState.objects.get(probe=mount).good
    excluded.refresh_from_db()
    assert excluded.ended_at is None


def test_hosts_that_people_excluded_stay_excluded(fake, farm, probes, shifter, at):
    exclusion = exclude_host(cluster=farm, host="wn-2", reason="Fan.", by=shifter, at=at)
    for minutes in range(0, 30, 5):
        probe_once(at + minutes * MINUTE)
    exclusion.refresh_from_db()
    assert exclusion.ended_at is None
    assert ProbeJob.objects.filter(exclusion=exclusion, good=True).count() == 6


def test_relapse_is_left_to_people(fake, farm, probes, excluded, at):
    for minutes in (0, 5, 10):
        probe_once(at + minutes * MINUTE)
    excluded.refresh_from_db()
    assert excluded.ended_as == "probed"
    again = exclude_as_portal(farm, "wn-1", at + 30 * MINUTE)
    for minutes in range(30, 60, 5):
        probe_once(at + minutes * MINUTE)
    again.refresh_from_db()
    assert again.ended_at is None


def test_exclusion_that_has_ended_meanwhile_is_left_alone(
    fake, farm, probes, excluded, shifter, at
):
    for minutes in (0, 5):
        probe_once(at + minutes * MINUTE)
    plan_probe_jobs(at=at + 10 * MINUTE)
    send_probe_jobs(at=at + 10 * MINUTE)
    return_host(exclusion=excluded, by=shifter, at=at + 11 * MINUTE, reason="New disk.")
    report(ProbeJob.objects.get(state="sent"), at + 12 * MINUTE)
    excluded.refresh_from_db()
    assert excluded.ended_as == "returned"


def test_other_hosts_are_probed_once_a_period_spread_over_it(fake, farm, probes, settings, at):
    settings.HOST_PROBE_HOURS = 1
    list_hosts(farm, [f"more-{number}" for number in range(115)], at)
    times = []
    for run in range(240):
        now = at + run * PLANNED_EVERY
        before = ProbeJob.objects.count()
        plan_probe_jobs(at=now)
        ProbeJob.objects.filter(ended_at=None).update(state="ended", good=True, ended_at=now)
        times.append(ProbeJob.objects.count() - before)
    assert max(times) == 1  # 120 hosts in an hour of 120 runs
    jobs_of_hosts = ProbeJob.objects.values_list("host").annotate(Count("pk")).order_by()
    assert set(dict(jobs_of_hosts).values()) == {2}
    for host in ("wn-1", "more-7"):
        planned = ProbeJob.objects.filter(host=host).order_by("planned_at")
        for first, second in pairwise(planned.values_list("planned_at", flat=True)):
            assert second - first >= timedelta(hours=1)


def test_a_full_cluster_gets_no_more_probe_jobs(fake, farm, probes, settings, at):
    settings.HOST_PROBE_HOURS = 1
    list_hosts(farm, [f"more-{number}" for number in range(200)], at)
    for run in range(60):
        plan_probe_jobs(at=at + run * PLANNED_EVERY)
    assert ProbeJob.objects.count() == MOST_SURVEYS_AT_ONCE
    exclude_as_portal(farm, "wn-3", at)
    ProbeJob.objects.filter(host="wn-3").delete()
    plan_probe_jobs(at=at + 31 * MINUTE)
    assert ProbeJob.objects.filter(host="wn-3").exists()


def test_planning_costs_the_same_number_of_queries_for_any_number_of_hosts(
    fake, farm, probes, settings, at, django_assert_max_num_queries
):
    settings.HOST_PROBE_HOURS = 1
    list_hosts(farm, [f"more-{number}" for number in range(300)], at)
    for number in range(30):
        exclude_as_portal(farm, f"more-{number}", at)
    with django_assert_max_num_queries(11):
        assert plan_probe_jobs(at=at) > 30


@pytest.mark.parametrize("where", ["no probes", "inactive", "elsewhere", "no submission"])
def test_no_probe_job_where_none_is_wanted(fake, farm, excluded, at, where):
    probe = Probe.objects.create(name="disk", script="true", active=where != "inactive")
    if where == "no probes":
        probe.delete()
    if where == "elsewhere":
        probe.clusters.add(clusters.cluster("other"))
    if where == "no submission":
        Cluster.objects.update(submits=False)
    assert plan_probe_jobs(at=at) == 0
    assert not ProbeJob.objects.exists()


def test_host_that_the_scheduler_no_longer_lists_is_not_probed(fake, farm, probes, at):
    exclude_as_portal(farm, "vanished", at)
    assert plan_probe_jobs(at=at) == 0


def test_repeated_and_invalid_results_change_nothing(fake, farm, probes, excluded, at):
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    job = ProbeJob.objects.get()
    good = {
        "name": "disk",
        "started_at": at.timestamp(),
        "ended_at": at.timestamp() + 2,
        "exit_code": 0,
        "note": "\0 5 GB, password=hunter2 " + "x" * 500,
    }
    phases = [
        {"name": "mount", "started_at": at.timestamp()},  # it has started
        good,
        good | {"exit_code": 1},  # the first result counts
        good | {"name": "other"},
        good | {"name": 5},
        good | {"name": "mount", "exit_code": "none"},
        good | {"name": "mount", "ended_at": "yesterday"},
        good | {"name": "mount", "note": []},
        "mount",
    ]
    stored = store_results(job_name=job.name, phases=phases, at=at)
    assert (stored.new, stored.unchanged) == (1, 2)
    assert [number for number, _ in stored.problems] == [4, 5, 6, 7, 8, 9]
    result = ProbeResult.objects.get()
    assert (result.good, result.seconds, len(result.message)) == (True, 2, 300)
    assert "hunter2" not in result.message
    job.refresh_from_db()
    assert job.ended_at is None
    assert report(job, at, exit_code=2, names=["mount"], note="").new == 1
    job.refresh_from_db()
    assert (job.state, job.good) == ("ended", False)
    assert ProbeResult.objects.get(good=False).message == "exit code 2"
    assert report(job, at).unchanged == 2


def test_matrix_is_by_site_and_probe_beside_the_reported_state(
    fake, farm, probes, settings, at, django_assert_num_queries
):
    settings.HOST_PROBE_HOURS = 1
    farm.site = Site.objects.create(name="CNAF")
    farm.save()
    disk, mount = probes
    service = Service.objects.create(slug="cvmfs", name="CVMFS")
    mount.service = service
    mount.save()
    StateInterval.objects.create(service=service, state="down", started_at=at, cause="incident")
    lone = clusters.cluster("lone")
    measure(farm, "wn-1", disk, at, good=True)
    measure(farm, "wn-2", disk, at + MINUTE, good=False)
    measure(farm, "wn-3", disk, at - timedelta(hours=3), good=False)  # too old to say anything
    measure(lone, "x", mount, at, good=True)
    with django_assert_num_queries(3):
        matrix = measured_matrix(at + MINUTE)
    assert [(column.probe, column.reported) for column in matrix.columns] == [
        (disk, ""),
        (mount, "down"),
    ]
    assert [row.site for row in matrix.rows] == ["CNAF", "lone"]
    cell = matrix.rows[0].cells[0]
    assert (cell.good, cell.bad, cell.hosts) == (1, 1, 2)
    assert (cell.oldest_at, cell.newest_at) == (at, at + MINUTE)
    assert matrix.rows[0].cells[1] is None
    assert [state.host for state in bad_states(at + MINUTE)] == ["wn-2"]


def measure(cluster, host, probe, at, *, good):
    MeasuredState.objects.create(
        cluster=cluster, host=host, probe=probe, good=good, measured_at=at, since=at
    )


def test_old_probe_jobs_are_forgotten_and_states_stay(fake, farm, probes, excluded, at):
    probe_once(at)
    assert forget_probe_jobs(at=at + timedelta(days=14)) == 0
    assert forget_probe_jobs(at=at + timedelta(days=15)) == 3  # with two results
    assert not ProbeJob.objects.exists()
    assert MeasuredState.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_script_runs_the_probes_and_reports_by_ops_phase(
    fake, farm, probes, excluded, at, settings, live_server, tmp_path
):
    """The script as it is submitted, run by sh, with the portal behind it."""
    settings.PORTAL_URL = live_server.url
    bad = "echo no route to storage\nexit 3\nEND\n"
    Probe.objects.create(name="door", script=bad, active=True)
    Probe.objects.create(name="tape", script="sleep 20", timeout_seconds=1, active=True)
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    job = ProbeJob.objects.get()
    done = run_script(fake, job, tmp_path)
    assert done.returncode == 0, done.stderr
    results = {}
    for result in ProbeResult.objects.select_related("probe"):
        results[result.probe.name] = (result.good, result.message)
    assert results == {
        "disk": (True, "5 GB free"),
        "mount": (True, ""),
        "door": (False, "no route to storage"),
        "tape": (False, "not ready after 1 s"),
    }
    job.refresh_from_db()
    assert (job.state, job.good) == ("ended", False)
    assert list(tmp_path.iterdir()) == [tmp_path / "slurm"]  # it leaves no file behind


@pytest.mark.django_db(transaction=True)
def test_shipped_probes_are_inactive_and_those_of_the_host_work_here(
    fake, farm, excluded, at, settings, live_server, tmp_path
):
    settings.PORTAL_URL = live_server.url
    assert load_shipped_probes() == 0  # they came with the migrations
    assert set(Probe.objects.values_list("active", flat=True)) == {False}
    assert Probe.objects.count() == 6
    Probe.objects.filter(name__in=["scratch", "clock"]).update(active=True)
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    run_script(fake, ProbeJob.objects.get(), tmp_path)
    results = ProbeResult.objects.select_related("probe")
    outcomes = {result.probe.name: (result.good, result.message) for result in results}
    assert set(outcomes) == {"clock", "scratch"}
    assert outcomes["scratch"][0], outcomes
    assert "MB free" in outcomes["scratch"][1]
    assert "the portal's clock" in outcomes["clock"][1], outcomes


def test_results_need_the_token_of_a_probe_job(fake, farm, probes, excluded, at, client):
    plan_probe_jobs(at=at)
    job = ProbeJob.objects.get()
    body = {"job_id": "1_0", "phases": []}
    path = "/api/v1/hosts/probe-results/"
    post = {"data": body, "content_type": "application/json"}
    assert client.post(path, **post).status_code == 401
    assert client.post(path, **post, headers={"authorization": "Bearer x"}).status_code == 401
    token = {"authorization": f"Bearer {new_probe_token(job)}"}
    assert client.post(path, **post, headers=token).status_code == 200
    assert (
        client.post(path, {"x": 1}, content_type="application/json", headers=token).status_code
        == 400
    )
    ProbeJob.objects.all().delete()
    assert client.post(path, **post, headers=token).status_code == 403


def test_measured_states_in_the_api(fake, farm, probes, excluded, at, api, shifter, monkeypatch):
    probe_once(at, exit_code=1)
    monkeypatch.setattr("django.utils.timezone.now", lambda: at + 2 * MINUTE)
    answer = api(shifter).get("/api/v1/hosts/measured-states/", {"good": "false", "host": "wn-1"})
    rows = answer.json()["results"]
    assert sorted((row["host"], row["probe"], row["good"]) for row in rows) == [
        ("wn-1", "disk", False),
        ("wn-1", "mount", False),
    ]
    assert HostExclusion.objects.count() == 1
