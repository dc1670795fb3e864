"""Home, the page of a job, and the search box."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.archive.domain.search.word_index import index_batch
from apps.archive.models import Blob
from apps.diagnosis.domain.impact.recount import mark_incidents, recount_impact
from apps.jobs.domain.jobs import jobs_for_list, matches_host
from apps.jobs.domain.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, Job
from apps.statusboard.domain.incidents import open_incident
from apps.statusboard.enums import State
from opsportal.version import VERSION
from tests.factories import clusters, statusboard
from tests.factories.jobs import failed, record, store


def page_of(client, user, path: str) -> str:
    client.force_login(user)
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def queries(client, path: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path).status_code == 200
    return len(captured)


def test_job_page_says_the_verdict_before_the_evidence(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    places = [
        page.index(text) for text in ("Service problem: retry", "HTTP error: 503", "#SBATCH", "OPSPORTAL_REQUEST")
    ]
    assert places == sorted(places)
    assert "failed · exit 65" in page


def test_home_claims_nothing_of_jobs_to_who_has_no_role(world, client, shifter, django_user_model):
    page = page_of(client, django_user_model.objects.create_user("newcomer"), "/")
    assert "You have no role yet." in page
    assert "No job failed" not in page
    assert "No approved requests" not in page
    assert ">0</td>" not in page
    assert "You have no role yet." not in page_of(client, shifter, "/")


def test_home_says_when_the_jobs_of_an_outage_are_being_counted(client, shifter):
    now = timezone.now()
    samweb = statusboard.service("samweb", now)
    outage = open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=now, started_at=now)
    assert "Failed jobs are being counted." in page_of(client, shifter, "/")
    recount_impact(incident_id=outage.pk, at=now)
    page = page_of(client, shifter, "/")
    assert "No job is known to have failed because of an outage." in page
    assert "Failed jobs are being counted." not in page
    mark_incidents([outage.pk])  # jobs that it met were collected since
    assert "Failed jobs are being counted." in page_of(client, shifter, "/")


def test_job_page_escapes_everything_a_job_can_say(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    for text in ('<script>alert("log")', "<script>alert(1)", "<b>reco", "<img src=x>"):
        assert text not in page
    assert "&lt;img src=x&gt;" in page


def test_job_page_without_script_log_or_verdict(world, client, shifter):
    (job,) = store(world.job.cluster, record(99, started_at=None, ended_at=world.job.ended_at))
    page = page_of(client, shifter, f"/jobs/{job.pk}/")
    assert "Not captured" in page
    assert "The job never started." in page


def test_job_page_with_damaged_contents(world, client, shifter):
    Blob.objects.update(data=b"x")
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    assert page.count("<b>Content damaged</b>") == 2
    assert "Service problem: retry" in page


def test_job_page_tells_whether_its_services_were_out(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    outages = page[page.index('id="outages"') : page.index('id="timeline"')]
    assert '<span class="state down">yes</span>' in outages
    assert f"/services/incidents/{world.incident.pk}/" in outages


def test_job_page_hides_a_request_of_another_experiment(world, client, other_liaison, dune):
    Job.objects.filter(pk=world.job.pk).update(experiment=dune)
    page = page_of(client, other_liaison, f"/jobs/{world.job.pk}/")
    assert f'href="/requests/{world.request.key}/"' not in page


def test_job_page_asks_no_more_for_more_tasks(world, client, shifter):
    client.force_login(shifter)
    times = {"submitted_at": world.job.submitted_at, "ended_at": world.job.ended_at, "spool_id": world.job.spool_id}
    store(world.job.cluster, failed(1, **times))
    path = f"/jobs/{world.job.pk}/"
    queries(client, path)
    before = queries(client, path)
    store(world.job.cluster, *[failed(number, **times) for number in range(2, 8)])
    assert queries(client, path) == before


@pytest.fixture
def now(at, monkeypatch):
    """Let the home page be opened half an hour after the world's jobs ended."""
    monkeypatch.setattr(timezone, "now", lambda: at + timedelta(minutes=1))


def test_home_counts_what_failed_and_links_to_it(world, now, client, shifter):
    page = page_of(client, shifter, "/")
    assert "1 of 1 jobs" in page
    link = page[page.index('href="/failures/jobs/') + 6 :].split('"')[0].replace("&amp;", "&")
    assert "4711" in page_of(client, shifter, link)


def test_home_counts_the_jobs_that_a_service_hit_today_and_links_to_them(world, now, client, shifter, other_liaison):
    page = page_of(client, shifter, "/")
    services = page[page.index('id="services"') :]
    link = services[services.index('href="/failures/jobs/') + 6 :]
    assert link.split(">")[1] == "1 failed job</a"
    assert "4711" in page_of(client, shifter, link.split('"')[0].replace("&amp;", "&"))
    assert 'href="/failures/jobs/?service' not in page_of(client, other_liaison, "/")


def test_home_says_how_many_have_no_verdict_yet(world, now, client, shifter):
    store(world.job.cluster, failed(5, ended_at=world.job.ended_at), record(6))
    recompute_dirty_hours(at=world.job.ended_at)
    page = page_of(client, shifter, "/")
    assert "2 of 3 jobs" in page
    assert "Log analysis pending" in page


def test_home_shows_a_liaison_only_the_own_experiment(world, now, client, other_liaison, liaison):
    assert "0 of 0 jobs" in page_of(client, other_liaison, "/")
    assert "1 of 1 jobs" in page_of(client, liaison, "/")


def test_home_asks_no_more_for_more_services(world, client, shifter, at):
    client.force_login(shifter)
    queries(client, "/")
    before = queries(client, "/")
    for name in ("dcache", "cvmfs", "condb"):
        service = statusboard.service(name, at - timedelta(days=2))
        open_incident(service=service, state=State.DEGRADED, title="slow", by=shifter, at=at)
    assert queries(client, "/") == before


def test_every_page_shows_the_version_at_its_foot(world, client, shifter):
    foot = f'<footer class="foot">opsportal {VERSION}'
    assert foot in client.get("/accounts/login/").content.decode()
    assert foot in page_of(client, shifter, "/")


def test_strip_speaks_on_every_page_only_while_something_is_wrong(world, now, client, shifter, at):
    from apps.statusboard.domain.incidents import close_incident

    assert '<b class="s-down">1 down</b>' in page_of(client, shifter, "/accounts/settings/")
    close_incident(incident=world.incident, by=shifter, at=at, reason="back")
    assert 'class="alerts"' not in page_of(client, shifter, "/accounts/settings/")


@pytest.mark.parametrize("words", ["4711", "NOVA-0001", "nova-0001", "rock muons", "samweb"])
def test_search_goes_straight_to_the_only_thing_found(world, client, liaison, words):
    client.force_login(liaison)
    places = {"4711": f"/jobs/{world.job.pk}/", "samweb": "/services/samweb/"}
    response = client.get("/find/", {"q": words})
    assert response.headers["Location"] == places.get(words, "/requests/NOVA-0001/")


def test_search_by_host_and_user_lists_jobs_and_leads_to_all(world, client, liaison):
    store(world.job.cluster, failed(5, host="wn-0233"))
    client.force_login(liaison)
    page = client.get("/find/", {"q": "wn-0233"}).content.decode()
    assert ">4711<" in page
    assert 'href="/jobs/?host=wn-0233"' in page


@pytest.fixture
def array(world):
    """Two tasks of an array, which ran on hosts with a domain."""
    host = {"spool_id": "8443211", "host": "wn-0301.fnal.gov"}
    return store(world.job.cluster, failed(1, job_id="8443211_1", **host), record(2, job_id="8443211_2", **host))


@pytest.mark.parametrize("words", ["8443211", "wn-0301", "wn-0301.fnal.gov"])
def test_search_finds_an_array_by_its_id_and_a_host_without_its_domain(array, client, liaison, other_liaison, words):
    client.force_login(liaison)
    html = client.get("/find/", {"q": words}).content.decode()
    assert (">8443211_1<" in html, ">8443211_2<" in html) == (True, True)
    name = "job" if words == "8443211" else "host"
    assert f'<a href="/jobs/?{name}={words}">all</a>' in html
    assert len(client.get("/jobs/", {name: words}).context["page"].rows) == 2
    client.force_login(other_liaison)
    assert "No results" in client.get("/find/", {"q": words}).content.decode()


def test_search_finds_known_errors_and_their_jobs(world, now, client, liaison, other_liaison):
    client.force_login(liaison)
    html = client.get("/find/", {"q": "samweb-5"}).content.decode()
    link = re.search(r'href="([^"]+)">SAMWEB-5XX</a>', html) or re.search(r"^(.*)$", "")
    response = client.get("/find/", {"q": "SAMWEB-5XX"})
    address = response.headers["Location"] if response.status_code == 302 else link[1].replace("&amp;", "&")
    assert "4711" in client.get(address).content.decode()
    client.force_login(other_liaison)
    assert "4711" not in client.get("/find/", {"q": "samweb-5xx"}, follow=True).content.decode()


@pytest.mark.parametrize("words", ["prod.fcl", "reco prod.fcl"])
def test_search_finds_words_of_scripts(world, client, liaison, other_liaison, words):
    index_batch(at=timezone.now())
    client.force_login(liaison)
    assert client.get("/find/", {"q": words}).headers["Location"] == f"/archive/{world.archived.pk}/"
    client.force_login(other_liaison)
    assert "No results" in client.get("/find/", {"q": words}).content.decode()


def test_search_finds_an_archived_job_that_has_not_finished(world, client, liaison):
    world.job.delete()
    client.force_login(liaison)
    assert client.get("/find/", {"q": "4711"}).headers["Location"] == f"/archive/{world.archived.pk}/"


@pytest.mark.parametrize(
    ("condition", "index"),
    [(matches_host("wn-1"), "job_on_host"), (matches_host("wn-1.b"), "job_on_host"), (Q(spool_id="1"), "job_in_spool")],
)
def test_search_reads_jobs_by_an_index(world, shifter, condition, index):
    other = {
        "id": "n + 1000000",
        "job_id": "'x' || n",
        "spool_id": "(n / 20)::text",
        "host": "'wn-' || n % 500 || '.fnal.gov'",
        "ended_at": "ended_at - n * interval '1 s'",
    }
    columns = [f'"{column.column}"' for column in Job._meta.concrete_fields]
    values = [other.get(column.strip('"'), column) for column in columns]
    with connection.cursor() as cursor:
        rows = f"SELECT {', '.join(values)} FROM jobs_job, generate_series(1, 20000) n"
        cursor.execute(f"INSERT INTO jobs_job ({', '.join(columns)}) {rows}")
        cursor.execute("ANALYZE jobs_job")
    plan = jobs_for_list(shifter).filter(condition).order_by("-ended_at", "-pk")[:20].explain()
    assert index in plan
    assert "Seq Scan on jobs_job" not in plan


def test_search_asks_no_more_for_more_jobs(world, client, shifter):
    client.force_login(shifter)
    counts = []
    queries(client, "/find/?q=nothing")
    for number in (2, 5):
        for task in range(number):
            store(world.job.cluster, failed(number * 10 + task, job_id=f"99_{number}{task}", spool_id="99"))
        counts.append(queries(client, "/find/?q=99"))
    assert counts[0] == counts[1]


def test_search_shows_nothing_of_another_experiment(world, client, other_liaison):
    client.force_login(other_liaison)
    for words in ("4711", "NOVA-0001", "rock muons", "wn-0233"):
        assert "No results" in client.get("/find/", {"q": words}).content.decode()


@pytest.mark.parametrize("words", ["", " ", "'; drop table", "%", "a" * 5000, "<script>"])
def test_search_takes_any_words(world, client, shifter, words):
    client.force_login(shifter)
    response = client.get("/find/", {"q": words})
    assert response.status_code in (200, 302)
    assert "<script>alert" not in response.content.decode()


@pytest.mark.parametrize("path", ["/find/?q=%00", "/requests/NOVA%00/", "/jobs/?user=%00", "/archive/?job=a%00b"])
def test_nul_in_an_address_is_refused(client, shifter, path):
    client.force_login(shifter)
    assert client.get(path).status_code == 400


@pytest.mark.parametrize("name", ["liaison", "approver", "shifter", "admin", "newcomer"])
def test_every_link_that_home_and_the_search_offer_opens(world, client, request, django_user_model, name):
    made = {"newcomer": lambda: django_user_model.objects.create_user("newcomer")}
    user = made[name]() if name in made else request.getfixturevalue(name)
    links = set(re.findall(r'href="(/[^"#]*)', page_of(client, user, "/"))) - {"/accounts/logout/"}
    links = {link.replace("&amp;", "&") for link in links if not link.startswith("/static/")}
    assert "/requests/queue/" in links
    assert ("/requests/start/" in links) == (name == "liaison")
    assert [link for link in links if client.get(link, follow=True).status_code != 200] == []


def test_home_says_how_far_accounting_is_read(client, shifter):
    now = timezone.now()
    cluster = clusters.cluster(collects=True)
    read = Collection.objects.create(cluster=cluster, collected_until=now - timedelta(hours=3))
    page = " ".join(page_of(client, shifter, "/").split())
    assert f"Jobs of {cluster.name} are counted up to" in page
    assert "its accounting is being read." in page
    assert "No job failed" not in page
    Collection.objects.update(last_error="sacct: connection refused")
    assert "its accounting cannot be read." in " ".join(page_of(client, shifter, "/").split())
    Collection.objects.update(collected_until=now, last_error="")
    assert "No job failed in the last 24 hours" in page_of(client, shifter, "/")
    assert f"Jobs of {read.cluster.name}" not in page_of(client, shifter, "/")
