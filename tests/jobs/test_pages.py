"""The job list, the progress panel, the report, the API: who sees what,
and nothing that a job says is believed.
"""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.clusters.models import Site
from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.records.jobs import (
    array_siblings,
    jobs_for_list,
    other_attempts,
    totals_as_of,
)
from apps.jobs.domain.totals import totals
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.domain.totals.totals import wasted_hours
from apps.jobs.enums import PROBE_JOB_PREFIX
from apps.jobs.models import Job
from tests.factories.jobs import AT, failed, record, store
from tests.factories.verdicts import verdict
from tests.pages import text_of

HOUR = timedelta(hours=1)

HOSTILE = "<script>alert(1)</script>\"'&{{ x }}"


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


@pytest.fixture
def as_shifter(client, shifter):
    client.force_login(shifter)
    return client


def listed(client, **query):
    answer = client.get(reverse("jobs:list"), query)
    assert answer.status_code == 200
    return [job.job_id for job in answer.context["page"].rows]


def listed_at(client, address):
    return [job.job_id for job in client.get(reverse("jobs:list") + address).context["page"].rows]


def test_list_shows_only_jobs_of_own_experiments(alps, nova, dune, as_liaison):
    store(alps, record(1), record(2, account="dune"), record(3, account="nobody"))
    assert listed(as_liaison) == ["1"]


def test_list_shows_the_opg_everything(alps, nova, dune, as_shifter):
    store(alps, record(1), record(2, account="dune"), record(3, account="nobody"))
    assert sorted(listed(as_shifter)) == ["1", "2", "3"]


def test_list_needs_a_login(client, db):
    assert client.get(reverse("jobs:list")).status_code == 302


def test_list_goes_from_page_to_page_without_loss(alps, nova, as_liaison):
    store(alps, *[record(n, ended_at=AT - timedelta(minutes=n // 3)) for n in range(120)])
    seen, query = [], ""
    for _ in range(3):
        page = as_liaison.get(reverse("jobs:list") + query).context["page"]
        seen += [job.job_id for job in page.rows]
        query = page.next_query
    assert query == ""
    assert sorted(seen, key=int) == [str(n) for n in range(120)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"job": "1"}, ["1"]),
        ({"job": "86"}, ["86_3"]),
        ({"job": " 86_3 "}, ["86_3"]),
        ({"state": "any_failure"}, ["2"]),
        ({"state": "timeout"}, ["2"]),
        ({"state": "failed"}, []),
        ({"state": "interrupted"}, ["4"]),
        ({"cluster": "alps"}, ["1", "2", "4"]),
        ({"experiment": "NOVA"}, ["1", "2", "4", "86_3"]),
        ({"host": "node02"}, ["2"]),
        ({"user": "novapro", "account": "NOVA"}, ["86_3"]),
        ({"exit_code": "42"}, ["4"]),
        ({"request": "NOVA-0007"}, ["1"]),
        ({"request": "NOVA-0007", "stage": "RECO"}, ["1"]),
        ({"request": "NOVA-0007", "stage": "merge"}, []),
        ({"state": "not_completed"}, ["2", "4"]),
        ({"stage": "-"}, ["2", "4", "86_3"]),
        ({"site": "Fermilab"}, ["1", "2", "4"]),
        ({"site": "-"}, ["86_3"]),
        ({"ended_from": "2026-11-20T11:30:00+00:00"}, ["2"]),
        ({"ended_to": "2026-11-20T11:30:00+00:00"}, ["1", "4", "86_3"]),
        ({"started_from": "2026-11-20T11:00:00+00:00"}, ["2"]),
        ({"started_to": "2026-11-20T11:00:00+00:00"}, ["1", "4", "86_3"]),
        ({"started_hour": "11"}, ["2"]),
        ({"started_hour": "10"}, ["1", "4", "86_3"]),
        ({"ended_from": "2026-11-20", "ended_to": "2026-11-20"}, []),
    ],
)
def test_filter_keeps_the_jobs_it_names(alps, jura, nova, as_liaison, query, expected):
    one, *_ = store(
        alps,
        record(1),
        record(
            2,
            state=JobState.TIMEOUT,
            host="node02",
            started_at=AT - timedelta(minutes=30),
            ended_at=AT - timedelta(minutes=10),
        ),
        record(4, state=JobState.CANCELLED, exit_code=42),
    )
    store(jura, record(89, job_id="86_3", spool_id="86", account="NOVA"))
    attach_origin(origins={one.pk: ("NOVA-0007", "reco")}, at=AT)
    Job.objects.filter(cluster=alps).update(site=Site.objects.create(name="Fermilab"))
    assert sorted(listed(as_liaison, **query)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster", "nosuch"),
        ("site", "nosuch"),
        ("experiment", "DUNE"),
        ("state", "exploded"),
        ("exit_code", "many"),
        ("exit_code", "9" * 30),
        ("ended_from", "yesterday"),
        ("ended_to", "2026-13-45"),
        ("job", "x" * 100),
    ],
)
def test_filter_with_wrong_input_says_so_beside_the_field(
    alps, nova, dune, as_liaison, name, value
):
    store(alps, record(1))
    answer = as_liaison.get(reverse("jobs:list"), {name: value})
    assert answer.status_code == 200
    assert list(answer.context["filter"].form.errors) == [name]
    assert answer.context["page"].rows == []
    assert "errorlist" in answer.content.decode()


@pytest.mark.parametrize(
    "query", [{"after": "nonsense"}, {"ended_from": "9999-12-31 23:59"}, {"ended_to": "0001-01-01"}]
)
def test_list_survives_odd_addresses(alps, nova, as_liaison, query):
    assert as_liaison.get(reverse("jobs:list"), query).status_code == 200


def test_list_escapes_what_jobs_say(alps, nova, as_liaison):
    store(alps, record(1, name=HOSTILE, host=HOSTILE, user=HOSTILE, comment=HOSTILE))
    page = as_liaison.get(reverse("jobs:list")).content.decode()
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page


def queries_of(client, address):
    client.get(address)  # what is loaded once: the session, the person's roles
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    return len(queries)


@pytest.mark.parametrize("address", ["/jobs/", "/statistics/"])
def test_page_takes_as_many_queries_for_three_jobs_as_for_one(alps, nova, as_liaison, address):
    now = timezone.now()
    counts = []
    for total in (1, 3):
        store(
            alps,
            *[
                record(n, host=f"node{n}", ended_at=now - timedelta(minutes=n))
                for n in range(total)
            ],
            at=now,
        )
        recompute_dirty_hours(at=now)
        counts.append(queries_of(as_liaison, address))
    assert counts[0] == counts[1] < 24


def test_list_says_what_to_do_when_no_cluster_is_collected(as_shifter):
    assert b"No cluster collected yet" in as_shifter.get(reverse("jobs:list")).content


def test_why_a_cluster_cannot_be_asked_is_told_to_the_opg_alone(alps, client, shifter, liaison):
    store(alps, record(1))
    alps.collection.last_error = "sacct: /secret/place"
    alps.collection.save()
    for person, told in [(shifter, True), (liaison, False)]:
        client.force_login(person)
        page = client.get(reverse("jobs:list")).content.decode()
        assert "unreachable" in page
        assert ("/secret/place" in page) is told
        assert "sacct" not in page.partition('id="as-of"')[2].partition("</small>")[0]


def test_cluster_that_was_never_read_has_no_time_of_a_reading(alps, as_shifter):
    store(alps, record(1))
    alps.collection.last_error = "sacct: refused"
    alps.collection.last_success_at = None
    alps.collection.save()
    page = text_of(as_shifter.get(reverse("jobs:list")))
    assert "unreachable</span> never read" in page
    assert "Jobs of alps are not counted: its accounting could not be read yet." in page
    assert "since –" not in page


# Parts for other pages


def test_home_parts_render_with_their_documented_context(alps, nova, liaison):
    store(alps, failed(1))
    recompute_dirty_hours(at=AT)
    context = {"waste": wasted_hours(liaison, at=AT), "as_of": totals_as_of()}
    assert "2.0 h of 2.0 h" in render_to_string("jobs/_wasted_hours.html", context)


def test_facts_tell_efficiency_and_escape_everything(alps, nova, liaison):
    texts = (
        "name",
        "comment",
        "host",
        "user",
        "account",
        "partition",
        "work_dir",
        "submit_line",
        "reason",
    )
    (job,) = store(alps, record(1, **dict.fromkeys(texts, HOSTILE)))
    page = render_to_string("jobs/_facts.html", {"job": jobs_for_list(liaison).first() or job})
    assert "75 %" in page
    assert "<script>" not in page


def test_attempts_and_siblings_are_of_the_same_job(alps, nova):
    first, second, task, _ = store(
        alps,
        record(7, job_id="7_1", spool_id="7", state=JobState.REQUEUED),
        record(7, job_id="7_1", spool_id="7", attempt=2),
        failed(8, job_id="7_2", spool_id="7"),
        record(9),
    )
    assert other_attempts(second) == [first]
    assert array_siblings(second) == [task]
    context = {"job": second, "attempts": [first], "siblings": [task]}
    page = render_to_string("jobs/_attempts.html", context, RequestFactory().get("/"))
    assert "7_2" in page


@pytest.fixture
def counted(alps, nova):
    """Jobs of which two have failed, one has a verdict, and one was requeued."""
    now = timezone.now()
    ended = {"submitted_at": now - 3 * HOUR, "started_at": now - 2 * HOUR, "ended_at": now - HOUR}
    jobs = store(
        alps,
        record(1, host="wn-0233.fnal.gov", **ended),
        failed(2, host="wn-0233.fnal.gov", **ended),
        failed(3, host="wn-0233", **ended),
        record(4, host="wn-02330", state=JobState.REQUEUED, **ended),
    )
    verdict(jobs[1], at=now)
    recompute_dirty_hours(at=now)
    return jobs


def totals_in(html):
    return " ".join(
        re.sub("<[^>]+>", "", html[html.index('<p class="notice">') : html.index("</p>")]).split()
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "",
            (
                "4 jobs: 1 completed, 2 failed, 1 interrupted · 8.0 h of core time, 4.0 h wasted "
                "· finished in the last"
            ),
        ),
        (
            "cluster=alps&state=any_failure",
            "2 jobs · 4.0 h of core time, 4.0 h wasted · finished in the last 24 hours",
        ),
        (
            "host=wn-0233",
            "3 jobs: 1 completed, 2 failed, 0 interrupted · 6.0 h of core time, 4.0 h wasted",
        ),
        ("host=wn-0233.fnal.gov", "2 jobs: 1 completed, 1 failed, 0 interrupted"),
    ],
)
def test_list_shows_totals_of_its_jobs(counted, as_liaison, query, expected):
    assert expected in totals_in(as_liaison.get(f"/jobs/?{query}").content.decode())


def test_every_total_equals_the_list_behind_it(counted, as_liaison):
    html = as_liaison.get("/jobs/").content.decode()
    notice = html[html.index('<p class="notice">') : html.index("</p>")]
    links = re.findall(r'href="([^"]+)"\s*>(\d+)', notice)
    assert len(links) == 4
    for address, count in links:
        assert len(
            listed_at(as_liaison, address.removeprefix("/jobs/").replace("&amp;", "&"))
        ) == int(count)


@pytest.fixture
def with_probe_job(counted, alps):
    """The same, and a probe job on one of their hosts that finished after them."""
    now = timezone.now()
    (probe_job,) = store(
        alps,
        record(
            5,
            name=f"{PROBE_JOB_PREFIX}5f0c",
            host="wn-0233",
            submitted_at=now - HOUR,
            started_at=now - HOUR,
            ended_at=now - HOUR / 2,
        ),
    )
    recompute_dirty_hours(at=now)
    return probe_job


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["1", "2", "3", "4"]),
        ("sort=finished", ["1", "2", "3", "4"]),
        ("probes=hide", ["1", "2", "3", "4"]),
        ("state=&host=&probes=show", ["1", "2", "3", "4", "5"]),
        ("probes=only", ["5"]),
        ("job=5", ["5"]),
        ("host=wn-0233", ["1", "2", "3", "5"]),
        ("host=wn-0233&probes=hide", ["1", "2", "3"]),
        ("probes=maybe", []),
    ],
)
def test_probe_jobs_are_hidden_unless_something_is_asked_for(
    with_probe_job, as_liaison, query, expected
):
    assert sorted(listed_at(as_liaison, f"?{query}")) == expected


def test_form_says_whether_probe_jobs_are_hidden(with_probe_job, as_liaison):
    for query, chosen in (("", "hide"), ("host=wn-0233", "show"), ("probes=only", "only")):
        page = as_liaison.get(f"/jobs/?{query}").content.decode()
        assert f'<option value="{chosen}" selected>' in page


def test_totals_agree_with_the_lists_whether_probe_jobs_are_hidden_or_not(
    with_probe_job, as_liaison
):
    for query in ("", "probes=hide", "host=wn-0233&probes=hide", "host=wn-0233", "probes=only"):
        page = as_liaison.get(f"/jobs/?{query}").content.decode()
        notice = page[page.index('<p class="notice">') : page.index("</p>")]
        for address, count in re.findall(r'href="([^"]+)"\s*>(\d+)', notice):
            behind = address.removeprefix("/jobs/").replace("&amp;", "&")
            assert len(listed_at(as_liaison, behind)) == int(count), (query, address)
    assert "5 jobs: 2 completed" in totals_in(as_liaison.get("/jobs/").content.decode())
    page = as_liaison.get("/jobs/").content.decode()
    assert "finished in the last 24 hours; totals count probe jobs, too" in totals_in(page)


def test_api_lists_probe_jobs_unless_told_not_to(with_probe_job, as_liaison):
    for query, expected in (("", 5), ("probes=hide", 4), ("probes=only", 1)):
        assert len(as_liaison.get(f"/api/v1/jobs/?{query}").json()["results"]) == expected


def test_list_that_is_too_long_to_count_says_so(counted, as_liaison, monkeypatch):
    monkeypatch.setattr(totals, "MOST_COUNTED", 2)
    assert "More than 2 jobs" in totals_in(as_liaison.get("/jobs/?host=wn-0233").content.decode())


def test_list_shows_verdicts(counted, as_liaison):
    html = as_liaison.get("/jobs/").content.decode()
    assert html.count(">Retry</small>") == 1
    assert '<th class="wide">Verdict</th>' in html


# API


def test_api_lists_and_shows_own_jobs_only(alps, nova, dune, api, liaison):
    mine, theirs = store(alps, failed(1), record(2, account="dune"))
    answer = api(liaison).get("/api/v1/jobs/")
    assert [job["job_id"] for job in answer.json()["results"]] == ["1"]
    one = api(liaison).get(f"/api/v1/jobs/{mine.pk}/").json()
    assert (one["cluster"], one["experiment"], one["state"], one["request"]) == (
        "alps",
        "NOVA",
        "failed",
        "",
    )
    assert api(liaison).get(f"/api/v1/jobs/{theirs.pk}/").status_code == 404


def test_api_names_the_log_that_only_accounting_knows(alps, nova, liaison, api):
    [job] = store(alps, failed(1, work_dir="/data", stdout_path="job.out"))
    shown = api(liaison).get(f"/api/v1/jobs/{job.pk}/").json()
    assert (shown["log_path"], shown["error_log_path"]) == ("/data/job.out", "")
    assert shown["log_path_source"] == "accounting"


def test_api_takes_the_filters_of_the_list(alps, nova, api, liaison):
    store(alps, failed(1), record(2))
    assert [
        job["job_id"]
        for job in api(liaison).get("/api/v1/jobs/?state=any_failure").json()["results"]
    ] == ["1"]
    assert api(liaison).get("/api/v1/jobs/?exit_code=many").status_code == 400


def test_api_reads_only(alps, nova, api, liaison):
    (job,) = store(alps, record(1))
    assert api(liaison).post("/api/v1/jobs/", {}).status_code == 405
    assert api(liaison).delete(f"/api/v1/jobs/{job.pk}/").status_code == 405


def test_api_takes_as_many_queries_for_three_jobs_as_for_one(alps, nova, api, liaison):
    counts = []
    for total in (1, 3):
        store(alps, *[record(number) for number in range(total)])
        counts.append(queries_of(api(liaison), "/api/v1/jobs/"))
    assert counts[0] == counts[1] < 10


def test_list_is_sorted_by_wall_time_and_core_hours(alps, nova, as_liaison):
    store(
        alps,
        record(1, wall_seconds=60, cpus=8),
        record(2, wall_seconds=300, cpus=1),
        record(3, wall_seconds=120, cpus=1),
    )
    for sort, expected in {
        "-wall": ["2", "3", "1"],
        "wall": ["1", "3", "2"],
        "-core": ["1", "2", "3"],
        "core": ["3", "2", "1"],
    }.items():
        assert listed(as_liaison, sort=sort) == expected, sort
    page = as_liaison.get(reverse("jobs:list"), {"sort": "-core"}).text
    assert '<th class="number wide sorted" aria-sort="descending">' in page


def test_sorted_list_goes_from_page_to_page_and_says_how_many_jobs_it_sorts(
    alps, nova, as_liaison, monkeypatch
):
    store(alps, *[record(n, wall_seconds=60 * (n % 7)) for n in range(1, 61)])
    first = as_liaison.get(reverse("jobs:list"), {"sort": "-wall"})
    second = as_liaison.get(reverse("jobs:list") + first.context["page"].next_query)
    jobs = [*first.context["page"].rows, *second.context["page"].rows]
    assert len({job.pk for job in jobs}) == 60
    walls = [job.wall_seconds for job in jobs]
    assert walls == sorted(walls, reverse=True)
    monkeypatch.setattr("apps.jobs.domain.records.jobs.MOST_SORTED", 5)
    assert len(listed(as_liaison, sort="-wall")) == 5
