"""The page and the API of the search in logs and scripts."""

from typing import Any

import pytest
from django.urls import reverse

from apps.archive.models import ArchivedJob
from apps.diagnosis.domain.groups.where_else import hash_line
from apps.jobs.models import Job
from apps.portal.pages import text_search
from apps.search.api import views
from apps.search.domain.engine import candidate_checks
from apps.search.domain.engine.base import Hits, SearchScope
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.query.clauses import Query
from apps.search.models import LogIndex
from tests.factories import people
from tests.factories.archive import captured_job, store
from tests.pages import text_of
from tests.portal.conftest import AT, LOG
from tests.search.kept_logs import job, keep_log

pytestmark = pytest.mark.django_db


def test_page_shows_marked_lines_with_links_newest_first(logs, browse, shifter) -> None:
    mine, other = logs
    page = browse(shifter).get("/search/", {"q": '"cannot open"'})
    text = page.content.decode()
    assert "art: &lt;b&gt;<mark>cannot open</mark>&lt;/b&gt; libA.so" in text
    assert f'href="/jobs/{mine.pk}/log/?stream=stderr&amp;at=6#b6"' in text
    assert f'href="/jobs/{other.pk}/log/?stream=stdout&amp;at=6#b6"' in text
    archived = ArchivedJob.objects.get()
    assert f'href="/archive/{archived.pk}/#L2"' in text
    results = page.context["page"].results
    assert [(result.hit.source, result.hit.key) for result in results] == [
        ("log", mine.pk),
        ("log", other.pk),
        ("script", archived.pk),
    ]


def test_facets_count_and_narrow_down(logs, browse, shifter) -> None:
    client = browse(shifter)
    page = client.get("/search/", {"q": '"cannot open"'}).context["page"]
    facets = {}
    for title, values in page.facets.items():
        facets[title] = {value.name: value.count for value in values}
    assert facets["Found in"] == {"log": 2, "script": 1}
    assert facets["Experiment"] == {"NOvA": 2, "DUNE": 1}
    dune = next(value for value in page.facets["Experiment"] if value.name == "DUNE")
    narrowed = client.get("/search/" + dune.query).context["page"]
    assert narrowed.text == '"cannot open" experiment:DUNE'
    assert [result.hit.key for result in narrowed.results] == [logs[1].pk]
    (on,) = narrowed.facets["Experiment"]
    assert on.on
    assert len(client.get("/search/" + on.query).context["page"].results) == 3


def test_nothing_of_other_experiments_is_in_hits_counts_and_facets(logs, browse) -> None:
    liaison = people.person("nova-only", ("liaison", people.nova()))
    client = browse(liaison)
    page = client.get("/search/", {"q": '"cannot open"'})
    assert "DUNE" not in page.content.decode()
    assert page.context["page"].counted == 2
    answer = client.get("/api/v1/search/", {"q": "cannot in:log"}).json()
    assert [result["job"] for result in answer["results"]] == [logs[0].pk]
    assert client.get("/api/v1/search/", {"q": "experiment:DUNE"}).json()["results"] == []


def test_page_without_facets_uses_the_whole_width(logs, browse, shifter) -> None:
    client = browse(shifter)
    for query, has_column in (("cannot", True), ("", False)):
        page = client.get("/search/", {"q": query}).content.decode()
        assert ('class="side"' in page) == has_column
        assert ('aria-label="Filters"' in page) == has_column


def test_errors_are_shown_with_the_piece(logs, browse, shifter) -> None:
    client = browse(shifter)
    page = client.get("/search/", {"q": "x since:foo"})
    assert page.context["page"].problem.startswith("since:foo: “foo” is no time.")
    for query in ("x since:foo", "/(/", "x" * 2_000):
        answer = client.get("/api/v1/search/", {"q": query})
        assert answer.status_code == 400
        assert answer.json()["q"]
    assert client.get("/api/v1/search/", {"q": "x", "after": "junk"}).status_code == 400
    assert client.get("/search/", {"q": "cannot", "after": "junk"}).status_code == 200


def test_what_is_not_searched_is_said(logs, browse, shifter) -> None:
    LogIndex.objects.update(complete=False)
    client = browse(shifter)
    assert "still being indexed" in client.get("/search/", {"q": "x"}).content.decode()
    assert (
        "still being indexed" not in client.get("/search/", {"q": "x in:script"}).content.decode()
    )
    store(captured_job(9, script=b"new"))
    gaps = client.get("/api/v1/search/", {"q": "x"}).json()["not_searched"]
    assert "1 newest scripts are not indexed yet." in gaps


class HastyEngine(PostgresEngine):
    """Stops after each step."""

    def search(self, query: Query, scope: SearchScope, **options: Any) -> Hits:
        return super().search(query, scope, **options | {"seconds": 0.0})


def test_a_search_that_runs_out_of_time_goes_on_where_it_stopped(
    logs, browse, shifter, monkeypatch
) -> None:
    monkeypatch.setattr(candidate_checks, "FIRST_STEP", 1)
    monkeypatch.setattr(candidate_checks, "MOST_STEP", 1)
    monkeypatch.setattr(views, "engine_in_use", HastyEngine)
    client = browse(shifter)
    address = "/api/v1/search/?q=/cannot.*open/"
    hits = []
    stops = 0
    for _ in range(10):
        answer = client.get(address).json()
        hits += [result["found_in"] for result in answer["results"]]
        stops += answer["searched_back_to"] is not None
        address = answer["next"]
        if address is None:
            break
    assert stops > 1
    assert hits == ["log", "log", "script"]


def test_expressions_and_environments(logs, browse, shifter) -> None:
    client = browse(shifter)
    page = client.get("/search/", {"q": r"/input.output \w+/ -nothing"}).content.decode()
    assert "<mark>Input/output error</mark>" in page
    found = client.get("/api/v1/search/", {"q": "PATH in:environment"}).json()["results"]
    assert [result["found_in"] for result in found] == ["environment"]
    member = people.person("nova-shifter", ("shifter", people.nova()))
    hidden = browse(member).get("/api/v1/search/", {"q": "PATH in:environment"}).json()
    assert hidden["results"] == []


def test_the_search_box_leads_to_the_search(logs, browse, shifter) -> None:
    page = browse(shifter).get(reverse("portal:find"), {"q": "zz <b>"}).content.decode()
    assert 'href="/search/?q=zz%20%3Cb%3E"' in page


def test_facets_say_of_which_hits_they_are(logs, browse, shifter, monkeypatch) -> None:
    client = browse(shifter)
    text = text_of(client.get("/search/", {"q": '"cannot open"'}))
    assert "The filters count all 3 hits." in text
    assert "Site and verdict count logs alone" in text
    text = text_of(client.get("/search/", {"q": '"cannot open" in:log'}))
    assert "The filters count all 2 hits." in text
    assert "count logs alone" not in text

    monkeypatch.setattr(text_search, "COUNTED", 2)
    monkeypatch.setattr(text_search, "SIZE", 1)
    page = client.get("/search/", {"q": '"cannot open"'})
    assert "the newest 2 hits." in page.content.decode()
    shown = page.context["page"]
    assert sum(value.count for value in shown.facets["Found in"]) == shown.counted == 2
    older = client.get("/search/" + shown.next_query)
    assert "2 hits from here on." in older.content.decode()


def test_each_facet_leads_to_as_many_hits_as_it_counts(logs, browse, shifter) -> None:
    for number, stage in ((7, "Reco"), (8, "RECO")):
        row = job(number, at=AT, experiment=people.nova(), stage=stage)
        keep_log(row, LOG)
    client = browse(shifter)
    page = client.get("/search/", {"q": '"cannot open" in:log'}).context["page"]
    assert [value.count for value in page.facets["Stage"]] == [3, 1]
    for values in page.facets.values():
        for value in values:
            if not value.on:
                narrowed = client.get("/search/" + value.query).context["page"]
                assert narrowed.counted == value.count, value


def test_matching_line_leads_to_where_else(logs, browse, shifter) -> None:
    mine, _ = logs
    client = browse(shifter)
    page = client.get("/search/", {"q": '"cannot open"'}).content.decode()
    link = f"/jobs/{mine.pk}/log/where-else/?stream=stderr&amp;at=6"
    assert f'href="{link}"' in page
    assert page.count("Where else?</a>") == 2  # a script has none
    address = client.get(link.replace("&amp;", "&")).headers["location"]
    template = hash_line("art: <b>cannot open</b> libA.so: Input/output error")
    assert address == f"/failures/where-else/?template={template:016x}"


def test_a_saved_view_keeps_the_whole_query(logs, browse, shifter) -> None:
    client = browse(shifter)
    query = r'"cannot open" -"x & y + \" é" /a\/b+/ in:log since:30d'
    shown = client.get("/search/", {"q": query})
    saved = {
        "path": "/search/",
        "query": shown.context["view_query"],
        "name": "Cannot open",
    }
    back = client.post("/accounts/views/", saved)
    page = client.get(back.headers["location"])
    assert page.context["page"].text == query
    assert page.context["current_view"].name == "Cannot open"
    older = client.get(back.headers["location"] + "&after=junk")
    assert older.context["current_view"].name == "Cannot open"
    for result in page.context["page"].results:
        assert result.hit.source == "log"


def test_a_view_that_is_too_long_is_refused_with_the_reason(logs, browse, shifter) -> None:
    client = browse(shifter)
    query = client.get("/search/", {"q": "é" * 500}).context["view_query"]
    saved = {"path": "/search/", "query": query, "name": "Long"}
    page = client.post("/accounts/views/", saved, follow=True).content.decode()
    assert "These filters are too long to be kept." in page


def test_job_whose_id_is_the_query_comes_first(logs, browse, shifter, other_liaison) -> None:
    mine, _ = logs
    Job.objects.filter(pk=mine.pk).update(job_id="4711_2", spool_id="4711")
    for query, title in (("4711_2", "Job 4711_2"), ("4711", "Jobs of array 4711")):
        page = browse(shifter).get("/search/", {"q": query})
        assert [job.pk for job in page.context["page"].jobs] == [mine.pk]
        text = text_of(page)
        assert f"<h2>{title}</h2>" in text
        assert text.index(f'href="/jobs/{mine.pk}/"') < text.index("No results")
    hidden = browse(other_liaison).get("/search/", {"q": "4711_2"}).context["page"]
    assert hidden.jobs == []
    words = browse(shifter).get("/search/", {"q": "4711_2 cannot"}).context["page"]
    assert words.jobs == []
