"""What can go wrong with probe jobs: workers at once, hostile notes, jobs that never ran."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from apps.clusters.models import Cluster, Host
from apps.diagnosis.domain.groups.broken_hosts import find_failing_hosts, select_broken_hosts
from apps.hosts import tasks
from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.probes import probe_jobs as probe_jobs_module
from apps.hosts.domain.probes.probe_jobs import PATIENCE, plan_probe_jobs
from apps.hosts.domain.probes.results import finished_jobs_of
from apps.hosts.models import HostExclusion, Probe, ProbeJob, ProbeResult
from apps.jobs.models import Job
from apps.statusboard.models import Service, StateInterval
from tests.hosts.probing import (
    MINUTE,
    give_up_on_probe_jobs,
    probe_once,
    report,
    run_script,
    send_probe_jobs,
)

pytestmark = pytest.mark.usefixtures("excluded_hosts_alone")
HOSTS = [f"wn-{number}" for number in range(20)]


class TestRuleForHosts:
    """Probe jobs are jobs of the cluster, but no evidence for its hosts or against them."""

    def test_failed_probe_jobs_do_not_exclude_their_host(self, alps, run_well, break_host, at):
        run_well(alps, HOSTS)
        break_host(alps, "wn-bad", failures=12)
        Job.objects.filter(host__startswith="wn-bad").update(name="opsportal-probe-1234")
        assert find_failing_hosts(at=at) == []
        assert exclude_failing_hosts(at=at) == 0

    def test_good_probe_jobs_do_not_end_a_run_of_failures(self, alps, run_well, break_host, at):
        run_well(alps, HOSTS)
        break_host(alps, "wn-bad", failures=6)
        run_well(alps, ["wn-bad"], jobs_each=9, ran=MINUTE)
        Job.objects.filter(host="wn-bad").update(name="opsportal-probe-1234")
        [failing] = find_failing_hosts(at=at)
        assert (failing.failed, failing.ended) == (6, 6)

    def test_good_probe_jobs_elsewhere_do_not_make_a_host_stand_out(
        self, alps, run_well, break_host, at
    ):
        for host in HOSTS:
            break_host(alps, host, failures=3)
        run_well(alps, HOSTS, jobs_each=3)
        break_host(alps, "wn-bad", failures=9)
        run_well(alps, ["probed"], jobs_each=400)
        Job.objects.filter(host="probed").update(name="opsportal-probe-1234")
        failing_hosts = [host for host in find_failing_hosts(at=at) if host.host == "wn-bad"]
        assert len(failing_hosts) == 1
        assert select_broken_hosts(failing_hosts, at=at) == []


@pytest.mark.django_db(transaction=True)
def test_second_worker_leaves_a_cluster_alone_on_which_the_first_submits(
    fake,
    farm,
    probes,
    excluded,
    at,
    monkeypatch,
):
    plan_probe_jobs(at=at)
    submitted = []

    def submit_slowly(job, submitted_at):
        submitted.append(job.name)
        # Long after its claim has ended, another worker looks for work.
        ProbeJob.objects.update(due_at=at)
        other = threading.Thread(target=run_and_close)
        other.start()
        other.join(timeout=30)
        assert not other.is_alive()
        return True

    def run_and_close():
        try:
            tasks.probe_on(cluster_id=farm.pk)
        finally:
            connections.close_all()

    monkeypatch.setattr(probe_jobs_module, "_send", submit_slowly)
    monkeypatch.setattr(tasks.timezone, "now", lambda: at)
    monkeypatch.setattr(probe_jobs_module, "MOST_A_RUN", 1)
    tasks.probe_on(cluster_id=farm.pk)
    assert len(submitted) == 1


def test_run_ends_with_the_first_job_that_the_scheduler_does_not_answer(
    fake,
    farm,
    probes,
    settings,
    at,
):
    settings.HOST_PROBE_HOURS = 1
    for minute in range(80):
        plan_probe_jobs(at=at + minute * MINUTE)
    assert ProbeJob.objects.count() > 1
    fake.mode("down")
    send_probe_jobs(at=at + 80 * MINUTE)
    assert ProbeJob.objects.filter(attempts=0).count() == ProbeJob.objects.count() - 1
    failed = ProbeJob.objects.get(attempts=1)
    # Its job may appear until the commands of the scheduler have ended for certain.
    assert failed.due_at >= at + 85 * MINUTE


def test_job_that_was_claimed_again_is_not_given_up(
    fake,
    farm,
    probes,
    excluded,
    at,
):
    plan_probe_jobs(at=at)
    stale = ProbeJob.objects.select_related("cluster").get()
    ProbeJob.objects.update(attempts=1, due_at=at + 20 * MINUTE)
    assert not probe_jobs_module._store_loss(stale, at + PATIENCE)
    assert ProbeJob.objects.get().ended_at is None


def test_job_that_could_not_be_submitted_says_nothing_of_the_host(
    fake,
    farm,
    probes,
    excluded,
    at,
):
    for minutes in (0, 5):
        probe_once(at + minutes * MINUTE)
    fake.mode("down")
    plan_probe_jobs(at=at + 10 * MINUTE)
    send_probe_jobs(at=at + 10 * MINUTE)
    give_up_on_probe_jobs(at=at + 20 * MINUTE)
    assert ProbeJob.objects.get(state="lost").sent_at is None
    assert [job.good for job in finished_jobs_of(excluded)] == [True, True]
    fake.mode("ok")
    probe_once(at + 25 * MINUTE)
    assert HostExclusion.objects.get().ended_as == "probed"


def test_lost_job_of_which_only_a_service_that_is_down_did_not_end_is_good(
    fake,
    farm,
    probes,
    excluded,
    at,
):
    _, mount = probes
    mount.service = Service.objects.create(slug="cvmfs", name="CVMFS")
    mount.save()
    StateInterval.objects.create(
        service=mount.service, state="down", started_at=at, cause="incident"
    )
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    report(ProbeJob.objects.get(), at + MINUTE, names=["disk"])
    assert give_up_on_probe_jobs(at=at + PATIENCE + 5 * MINUTE) == 1
    job = ProbeJob.objects.get()
    assert (job.state, job.good) == ("lost", True)


def test_job_ends_although_one_of_its_probes_was_deleted(
    fake,
    farm,
    probes,
    excluded,
    at,
):
    disk, _ = probes
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    job = ProbeJob.objects.get()
    report(job, at + MINUTE, names=["mount"])
    disk.delete()
    report(job, at + MINUTE, names=["disk"])
    job.refresh_from_db()
    assert (job.state, job.good) == ("ended", True)


def test_names_of_probes_are_not_changed(browse, admin, db):
    probe = Probe.objects.create(name="disk", script="true")
    page = browse(admin).get(f"/admin/hosts/probe/{probe.pk}/change/").content.decode()
    assert 'name="script"' in page
    assert 'name="name"' not in page
    assert 'name="name"' in browse(admin).get("/admin/hosts/probe/add/").content.decode()


def test_lists_of_hosts_in_names_of_jobs_are_not_probed(
    farm,
    probes,
    run_well,
    settings,
    at,
):
    settings.HOST_PROBE_HOURS = 1
    Host.objects.all().delete()
    run_well(farm, ["wn[03-07]", "a,b", "wn-8"], ended_at=at)
    for minute in range(80):
        plan_probe_jobs(at=at + minute * MINUTE)
    assert set(ProbeJob.objects.values_list("host", flat=True)) == {"wn-8"}


@pytest.mark.django_db(transaction=True)
def test_note_comes_as_it_was_printed_and_its_secrets_are_masked(
    fake,
    farm,
    excluded,
    at,
    settings,
    live_server,
    tmp_path,
):
    settings.PORTAL_URL = live_server.url
    scripts = {
        "quotes": "cat <<'X'\ncouldn't open \"C:\\x\" <b>, 5 % free\nX\nexit 1",
        "secret": "echo login --password=hunter2 DB_TOKEN=abcdef0123456789",
        "stubborn": "trap '' TERM; while :; do sleep 1; done",
    }
    for name, script in scripts.items():
        Probe.objects.create(name=name, script=script, timeout_seconds=1, active=True)
    plan_probe_jobs(at=at)
    send_probe_jobs(at=at)
    run_script(fake, ProbeJob.objects.get(), tmp_path)
    results = ProbeResult.objects.values_list("probe__name", "message")
    notes = dict(results)
    assert notes["quotes"] == 'couldn\'t open "C:\\x" <b>, 5 % free'
    assert notes["stubborn"] == "not ready after 1 s"
    assert "login" in notes["secret"]
    assert "hunter2" not in notes["secret"]
    assert "abcdef" not in notes["secret"]


def test_submitting_costs_the_same_for_any_number_of_hosts(
    fake,
    farm,
    probes,
    excluded,
    at,
):
    plan_probe_jobs(at=at)
    with CaptureQueriesContext(connection) as queries:
        send_probe_jobs(at=at)
    names = [f"more-{number}.example.org" for number in range(200)]
    Host.objects.bulk_create(
        [Host(cluster=farm, name=name, listed_at=at + timedelta(days=2)) for name in names]
    )
    ProbeJob.objects.all().delete()
    plan_probe_jobs(at=at + 6 * MINUTE)
    with CaptureQueriesContext(connection) as more_queries:
        send_probe_jobs(at=at + 6 * MINUTE)
    assert len(more_queries) == len(queries)
    read = " ".join(query["sql"] for query in more_queries)
    assert "LIMIT 1" in read.partition('FROM "clusters_host"')[2]
    assert Cluster.objects.count() == 1
