"""The pages of a host, a site and a user: figures from totals, for the jobs that a user may see."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.clusters.models import Host, Site
from apps.diagnosis.models import FailureGroup
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, Job
from tests.factories import clusters
from tests.factories.jobs import failed, record, store
from tests.factories.verdicts import verdict
from tests.pages import page_of, text_of


@pytest.fixture
def cluster(db):
    return clusters.cluster()


@pytest.fixture
def jobs(cluster, nova, dune):
    """Jobs of the last hours on two hosts, of two experiments and users."""
    ended_at = timezone.now() - timedelta(hours=3)
    mine = {"ended_at": ended_at, "user": "novapro", "account": "nova"}
    store(
        cluster,
        *[record(number, host="wn1", **mine) for number in range(1, 4)],
        failed(4, host="wn1", **mine),
        failed(5, host="wn2", **mine),
        failed(6, host="wn1", **mine | {"user": "dunepro", "account": "dune"}),
    )
    site = Site.objects.create(name="FNAL")
    Job.objects.update(site=site)
    Job.objects.filter(user="dunepro").update(experiment=dune)
    Job.objects.filter(user="novapro").update(experiment=nova)
    Host.objects.create(
        cluster=cluster, name="wn1", cpu_model="EPYC 7543", cores=64, listed_at=timezone.now()
    )
    recompute_dirty_hours(at=timezone.now())


def figures(page):
    """Return the numbers of jobs and of failed jobs, and the addresses behind them."""
    numbers = page[page.index("figures") : page.index("Failure rate")]
    return re.findall(r'<a href="([^"]+)">([\d,]+)</a>', numbers)


def test_host_shows_the_jobs_that_the_user_may_see(client, jobs, shifter, liaison):
    page = page_of(client, shifter, "/hosts/wn1/")
    assert [count for _, count in figures(page)] == ["5", "2"]
    assert "EPYC 7543, 64 cores" in page
    assert 'href="/sites/FNAL/"' in page
    assert "FNAL 50 %" in page
    page = page_of(client, liaison, "/hosts/wn1/")
    assert [count for _, count in figures(page)] == ["4", "1"]


def test_page_says_which_jobs_are_not_counted_yet(client, jobs, cluster, shifter):
    Collection.objects.filter(cluster=cluster).update(
        collected_until=timezone.now() - timedelta(hours=2)
    )
    page = " ".join(page_of(client, shifter, "/hosts/wn1/").split())
    assert "Jobs of alps are counted up to" in page


def test_each_number_equals_the_list_behind_it(client, jobs, shifter):
    for path in ("/hosts/wn1/", "/sites/FNAL/", "/users/novapro/", "/hosts/wn1/?period=24h"):
        page = page_of(client, shifter, path)
        for address, count in figures(page):
            listed = page_of(client, shifter, address.replace("&amp;", "&"))
            assert listed.count('<a class="mono" href="/jobs/') == int(count), path


@pytest.mark.parametrize("path", ["/hosts/wn9/", "/sites/CERN/", "/users/nobody/", "/hosts/a/b/"])
def test_unknown_slice_is_not_found(client, jobs, shifter, path):
    client.force_login(shifter)
    assert client.get(path).status_code == 404


def test_slice_without_visible_jobs_is_not_found(client, jobs, liaison):
    client.force_login(liaison)
    assert client.get("/users/dunepro/").status_code == 404


def test_host_with_any_name_has_a_page(client, jobs, shifter):
    name = "wn/1\n<b>"
    Job.objects.filter(host="wn1").update(host=name)
    client.force_login(shifter)
    page = text_of(client.get(reverse("jobs:host", args=[name])))
    assert "<b>" not in page[page.index("<h1>") : page.index("</h1>")]


def test_queries_do_not_grow_with_jobs(client, cluster, jobs, shifter):
    client.force_login(shifter)

    def count():
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/hosts/wn1/").status_code == 200
        return len(queries)

    count()
    before = count()
    ended_at = timezone.now() - timedelta(hours=3)
    store(cluster, *[failed(n, host="wn1", ended_at=ended_at) for n in range(20, 40)])
    recompute_dirty_hours(at=timezone.now())
    assert count() <= before


def test_failure_groups_of_a_host_are_those_of_its_visible_failed_jobs(
    client, jobs, nova, liaison, other_liaison
):
    group = FailureGroup.objects.create(
        fingerprint="f",
        verdict="service",
        title="samweb is down",
        status_at=timezone.now(),
        first_seen_at=timezone.now(),
        last_seen_at=timezone.now(),
    )
    job = Job.objects.get(job_id="4")
    verdict(job, at=job.ended_at, group=group)
    path = "/failures/of/host/wn1/"
    assert f"F-{group.pk} samweb is down" in page_of(client, liaison, path)
    assert f"F-{group.pk}" not in page_of(client, other_liaison, path)
    assert f"F-{group.pk}" not in page_of(client, liaison, "/failures/of/host/wn2/")
    assert client.get("/failures/of/cluster/alps/").status_code == 404


def test_rate_of_a_host_stands_beside_that_of_its_site(client, jobs, shifter, dune):
    client.force_login(shifter)
    line = text_of(client.get("/hosts/wn1/rate/"))
    assert "failed in 24 h, 40 % (FNAL 50 %)" in line
    for address, count in re.findall(r'<a href="([^"]+)">(\d+)', line):
        listed = page_of(client, shifter, address.replace("&amp;", "&"))
        assert listed.count('<a class="mono" href="/jobs/') == int(count)
    assert "failed" not in text_of(client.get("/hosts/wn9/rate/"))
