"""The search box."""

import re
from urllib.parse import quote

import pytest
from django.db import connection
from django.db.models import Q
from django.utils import timezone
from django.utils.html import escape

from apps.accounts.models import ClusterLogin, User
from apps.archive.domain.search.word_index import index_batch
from apps.datasets.models import InputFile, OutputFile
from apps.diagnosis.models import FailureGroup
from apps.jobs.domain.records.jobs import has_raw_id, jobs_for_list, matches_host
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.enums import State
from apps.statusboard.models import Service
from tests.factories.jobs import failed, record, store
from tests.factories.requests import draft
from tests.pages import count_queries, text_of
from tests.portal.shared_world import (
    approver,
    dune,
    liaison,
    nova,
    now,
    shared_world,
    shifter,
    world,
)

__all__ = ["approver", "dune", "liaison", "nova", "now", "shared_world", "shifter", "world"]


def found(client, words):
    """Return the results that the search box shows while the user types."""
    return client.get("/find/", {"q": words}, headers={"HX-Request": "true"}).context["results"]


@pytest.mark.parametrize("words", ["4711", "NOVA-0001", "nova-0001", "rock muons", "samweb"])
def test_search_goes_straight_to_the_only_thing_found(world, client, liaison, words):
    client.force_login(liaison)
    places = {"4711": f"/jobs/{world.job.pk}/", "samweb": "/services/samweb/"}
    response = client.get("/find/", {"q": words})
    assert response.headers["Location"] == places.get(words, "/requests/NOVA-0001/")


def test_failure_group_is_found_by_its_number_by_those_who_see_it(
    world, now, client, liaison, other_liaison
):
    group = FailureGroup.objects.get()
    client.force_login(liaison)
    for words in (f"F-{group.pk}", f"f-{group.pk}"):
        assert client.get("/find/", {"q": words}).headers["Location"] == group.get_absolute_url()
    assert client.get("/find/", {"q": f"F-{group.pk}0"}).status_code == 200
    client.force_login(other_liaison)
    assert client.get("/find/", {"q": f"F-{group.pk}"}).status_code == 200


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
    return store(
        world.job.cluster,
        failed(1, job_id="8443211_1", **host),
        record(2, job_id="8443211_2", **host),
    )


@pytest.mark.parametrize("words", ["8443211", "wn-0301", "wn-0301.fnal.gov"])
def test_search_finds_an_array_by_its_id_and_a_host_without_its_domain(
    array, client, liaison, other_liaison, words
):
    client.force_login(liaison)
    html = client.get("/find/", {"q": words}).content.decode()
    assert (">8443211_1<" in html, ">8443211_2<" in html) == (True, True)
    name = "job" if words == "8443211" else "host"
    assert f'<a href="/jobs/?{name}={words}">all</a>' in html
    first = re.search(r'<td>\s*<a[^>]*href="([^"]*)"', html.partition("<h1>")[2])[1]
    assert (first == f"/hosts/{words}/") == (name == "host")
    assert len(client.get("/jobs/", {name: words}).context["page"].rows) == 2
    client.force_login(other_liaison)
    assert "Nothing has this name" in client.get("/find/", {"q": words}).content.decode()


@pytest.mark.parametrize("words", ["8443219", "8443211_7", "8443211_7.batch", "8443211_7.extern"])
def test_search_leads_to_a_task_by_each_of_its_ids(world, client, liaison, other_liaison, words):
    """Slurm counts tasks of arrays as jobs of their own: `sacct` prints that number, too."""
    task = failed(7, job_id="8443211_7", raw_id=8443219, spool_id="8443211")
    store(world.job.cluster, failed(6, job_id="8443211_6", spool_id="8443211"), task)
    job = Job.objects.get(job_id="8443211_7")
    client.force_login(liaison)
    assert client.get("/find/", {"q": words}).headers["Location"] == f"/jobs/{job.pk}/"
    client.force_login(other_liaison)
    assert "Nothing has this name" in client.get("/find/", {"q": words}).content.decode()


def test_job_list_finds_a_task_by_its_number_in_the_scheduler(world, client, liaison):
    task = failed(7, job_id="8443211_7", raw_id=8443219, spool_id="8443211")
    store(world.job.cluster, failed(6, job_id="8443211_6", spool_id="8443211"), task)
    client.force_login(liaison)
    for number, jobs in (("8443219", 1), ("8443211", 2), ("9" * 40, 0), ("٣", 0)):
        assert len(client.get("/jobs/", {"job": number}).context["page"].rows) == jobs, number


def test_search_says_what_is_found_if_nothing_is(world, client, liaison):
    client.force_login(liaison)
    page = client.get("/find/", {"q": "8443999"}).content.decode()
    assert "<code>JobIDRaw</code>" in page
    assert "Jobs are found once they have ended" in page


def test_search_names_known_errors_by_code_and_title(world, client, liaison):
    client.force_login(liaison)
    page = client.get("/find/", {"q": "memory"}).content.decode()
    for error in found(client, "memory").errors:
        assert escape(error.title) in page
        assert error.get_absolute_url() == (error.url if error.jobs else error.about_url)


def test_search_finds_failure_groups_by_words_of_title_and_line(
    world, now, client, liaison, other_liaison
):
    group = FailureGroup.objects.get()
    FailureGroup.objects.update(
        title="Killed for using more memory than requested", line="slurmstepd: <n> oom_kill events"
    )
    client.force_login(liaison)
    assert found(client, "memory killed").groups == [group]
    assert found(client, "memory lost").groups == []
    assert found(client, "killed slurmstepd oom-kill").groups == [group]
    assert found(client, "slurmstepd").groups == [], "one word is part of too many lines"
    client.force_login(other_liaison)
    assert found(client, "memory killed").groups == []


def test_search_finds_known_errors_and_their_jobs(world, now, client, liaison, other_liaison):
    client.force_login(liaison)
    html = client.get("/find/", {"q": "samweb-5"}).content.decode()
    link = re.search(r'href="([^"]+)">SAMWEB-5XX</a>', html) or re.search(r"^(.*)$", "")
    response = client.get("/find/", {"q": "SAMWEB-5XX"})
    address = (
        response.headers["Location"]
        if response.status_code == 302
        else link[1].replace("&amp;", "&")
    )
    assert "4711" in client.get(address).content.decode()
    client.force_login(other_liaison)
    assert "4711" not in client.get("/find/", {"q": "samweb-5xx"}, follow=True).content.decode()


def test_search_counts_the_failures_of_errors_that_match_by_title(world, client, liaison):
    """Words match across separators, in ID and title alike."""
    client.force_login(liaison)
    for words in ("samweb 5xx", "SAMWeb server error"):
        [error] = found(client, words).errors
        assert (error.name, error.jobs) == ("SAMWEB-5XX", 1)


def test_name_of_a_service_also_finds_its_incident_group_and_errors(
    world, at, now, client, shifter, other_liaison
):
    samweb = Service.objects.get(name="samweb")
    outage = open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=at)
    client.force_login(shifter)
    results = found(client, "samweb")
    assert results.services == [samweb]
    assert outage in results.incidents
    assert results.groups == [FailureGroup.objects.get()]
    assert "SAMWEB-5XX" in {error.name for error in results.errors}
    client.force_login(other_liaison)
    assert found(client, "samweb").groups == []


def test_hosts_are_found_by_the_beginning_of_their_names(
    world, at, now, client, liaison, other_liaison
):
    store(world.job.cluster, failed(5, host="wn-0199.fnal.gov"), failed(6, host="wn-0201"))
    recompute_dirty_hours(at=at)
    client.force_login(liaison)
    assert found(client, "WN-01").hosts == ["wn-0199.fnal.gov"]
    assert client.get("/find/?q=wn-01").headers["Location"] == "/hosts/wn-0199.fnal.gov/"
    client.force_login(other_liaison)
    assert found(client, "wn-01").hosts == []


@pytest.mark.parametrize("words", ["prod.fcl", "reco prod.fcl"])
def test_search_finds_words_of_scripts(world, client, liaison, other_liaison, words):
    index_batch(at=timezone.now())
    client.force_login(liaison)
    assert (
        client.get("/find/", {"q": words}).headers["Location"] == f"/archive/{world.archived.pk}/"
    )
    client.force_login(other_liaison)
    assert "Nothing has this name" in client.get("/find/", {"q": words}).content.decode()


def test_search_finds_an_archived_job_that_has_not_finished(world, client, liaison):
    world.job.delete()
    client.force_login(liaison)
    assert (
        client.get("/find/", {"q": "4711"}).headers["Location"] == f"/archive/{world.archived.pk}/"
    )


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        (matches_host("wn-1"), "job_on_host"),
        (matches_host("wn-1.b"), "job_on_host"),
        (Q(spool_id="1"), "job_in_spool"),
        (has_raw_id("1"), "job_by_raw_id"),
    ],
)
def test_search_reads_jobs_by_an_index(world, shifter, condition, index):
    other = {
        "id": "n + 1000000",
        "job_id": "'x' || n",
        "raw_id": "n",
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
    count_queries(client, "/find/?q=nothing")
    for number in (2, 5):
        for task in range(number):
            store(
                world.job.cluster,
                failed(number * 10 + task, job_id=f"99_{number}{task}", spool_id="99"),
            )
        counts.append(count_queries(client, "/find/?q=99"))
    assert counts[0] == counts[1]


def test_search_shows_nothing_of_another_experiment(world, client, other_liaison):
    client.force_login(other_liaison)
    for words in ("4711", "NOVA-0001", "rock muons", "wn-0233"):
        html = client.get("/find/", {"q": words}).content.decode()
        assert "Nothing has this name" in html
        assert f'class="button main" href="/search/?q={quote(words)}"' in html
        assert f'class="button" href="/failures/?hours=720&amp;q={quote(words)}"' in html


@pytest.mark.parametrize("words", ["", " ", "'; drop table", "%", "a" * 5000, "<script>"])
def test_search_takes_any_words(world, client, shifter, words):
    client.force_login(shifter)
    response = client.get("/find/", {"q": words})
    assert response.status_code in (200, 302)
    assert "<script>alert" not in response.content.decode()


@pytest.mark.parametrize(
    "path", ["/find/?q=%00", "/requests/NOVA%00/", "/jobs/?user=%00", "/archive/?job=a%00b"]
)
def test_nul_in_an_address_is_refused(client, shifter, path):
    client.force_login(shifter)
    assert client.get(path).status_code == 400


def test_people_are_found_by_those_who_see_them(client, shifter, liaison, other_liaison):
    User.objects.filter(pk=liaison.pk).update(first_name="Marta", last_name="Nowak")
    ClusterLogin.objects.create(user=liaison, login="mnowak")
    for seeing in (shifter, liaison):
        client.force_login(seeing)
        for words in (liaison.username.upper(), "nowak marta"):
            assert found(client, words).people == [liaison], (seeing, words)
    page = client.get("/find/", {"q": "Nowak"})
    text = text_of(page)
    assert "Marta Nowak" in text
    assert f'href="/requests/?requester={liaison.username}"' in text
    assert 'href="/users/mnowak/"' in text
    assert found(client, "ow").people == []
    client.force_login(other_liaison)
    assert found(client, "nowak").people == []


def test_output_file_is_found_by_its_name_by_those_who_see_its_request(
    world, client, liaison, other_liaison
):
    request = Request.objects.get(key="NOVA-0001")
    stage = request.stages.order_by("position").first()
    OutputFile.objects.create(
        stage=stage, key="99_0", name="fd_muon_0042.root", size_bytes=9, at=timezone.now()
    )
    client.force_login(liaison)
    response = client.get("/find/", {"q": "fd_muon_0042.root"})
    place = f"/submissions/NOVA-0001/files/outputs/?stage={stage.position + 1}&q=fd_muon_0042.root"
    assert response.headers["Location"] == place
    assert "fd_muon_0042.root" in text_of(client.get(place))

    assert client.get("/find/", {"q": "/pnfs/nova/fd_muon_0042.root"}).headers["Location"] == place

    client.force_login(other_liaison)
    assert not found(client, "fd_muon_0042.root")


def test_input_file_is_found_in_all_stages_that_read_it_by_those_who_see_them(
    world, client, liaison, other_liaison
):
    first = Request.objects.get(key="NOVA-0001").stages.get()
    second = draft(liaison, first.request.experiment).stages.get(position=0)
    for stage in (first, second):
        InputFile.objects.create(stage=stage, name="fd_raw_0042.root", changed_at=timezone.now())
    client.force_login(liaison)
    results = found(client, "root://xrootd.example.org//pnfs/fd_raw_0042.root")
    assert [file.stage for file in results.input_files] == [second, first]
    text = text_of(client.get("/find/", {"q": "fd_raw_0042.root"}))
    key = second.request.key
    place = f"/submissions/{key}/files/list/?stage={second.position + 1}&amp;q=fd_raw_0042.root"
    assert f'href="{place}"' in text
    assert f"{second.name} · waiting" in text

    first.input_files.all().delete()
    response = client.get("/find/", {"q": "fd_raw_0042.root"})
    assert response.headers["Location"] == place.replace("&amp;", "&")
    assert "fd_raw_0042.root" in text_of(client.get(response.headers["Location"]))
    assert not found(client, "fd_raw_004")

    client.force_login(other_liaison)
    assert not found(client, "fd_raw_0042.root")
