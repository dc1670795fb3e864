"""The list of datasets and the page of one: what they show, to whom, and when there is nothing."""

import re
from datetime import timedelta
from urllib.parse import quote, urlencode

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.datasets.models import Catalogue, KnownDataset, OutputTotals
from apps.datasets.web import graph, views
from apps.production.enums import RequestState
from apps.production.models import StageCounts, StageLocation
from tests.factories import people
from tests.pages import text_of

LIST = "/datasets/"


def page_of(name: str) -> str:
    return f"/datasets/dataset/?{urlencode({'name': name})}"


def datasets_in(page: str) -> list[str]:
    """Return the names in the first column of a list."""
    return re.findall(r'<td>\s*<a class="mono dataset"[^>]*>([^<]*)</a>', page)


@pytest.fixture(autouse=True)
def now(monkeypatch, at):
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)


@pytest.fixture
def known(at):
    """Return a function that stores an answer of the catalogue `sam`."""
    catalogue = Catalogue.objects.create(name="sam", kind="sam", base_url="/x")

    def store(name, **values):
        row = {"exists": True, "answered_at": at - timedelta(hours=3), "is_waiting": False}
        return KnownDataset.objects.create(
            catalogue=catalogue, name=name, requested_at=at, due_at=at, **{**row, **values}
        )

    return store


def test_lists_without_datasets(browse, liaison):
    assert "No datasets yet" in text_of(browse(liaison).get(LIST))
    assert "No inputs from elsewhere" in text_of(browse(liaison).get(f"{LIST}?made=no"))


def test_list_shows_who_made_it_and_what_catalogues_answered(produce, browse, liaison, known):
    request = produce(("raw", "nova.calib"), ("", "nova.reco"))
    known("nova.calib", files=1200, events=61_200_000, size_bytes=2_400_000_000_000)
    known("nova.reco", exists=False)
    page = text_of(browse(liaison).get(LIST))
    assert datasets_in(page) == ["nova.reco", "nova.calib"]
    assert request.get_absolute_url() in page
    assert "1 stage1" in page
    assert "v09_72" in page
    assert ">1,200</td>" in page
    assert "2.4 TB" in page
    assert "does not exist," in page
    assert f'{page_of("nova.calib")}#used-by">1</a>' in page


def test_list_is_filtered_and_sorted(produce, browse, liaison):
    produce(("", "alpha.reco"))
    produce(("", "beta.reco"), state=RequestState.DRAFT)
    produce(("", "gen.{e}"), scan="e = 1, 2")

    def listed(**query) -> list[str]:
        return datasets_in(text_of(browse(liaison).get(f"{LIST}?{urlencode(query)}")))

    assert listed() == ["gen.{e}", "beta.reco", "alpha.reco"]
    assert listed(sort="name") == ["alpha.reco", "beta.reco", "gen.{e}"]
    assert listed(q="RECO") == ["beta.reco", "alpha.reco"]
    assert listed(q="gen.2") == ["gen.{e}"]
    assert listed(q="gen.3") == []
    assert listed(state="draft") == ["beta.reco"]
    assert listed(release="v09_72", q="alpha") == ["alpha.reco"]
    assert listed(release="v1") == []
    assert listed(experiment="NOVA", q="beta") == ["beta.reco"]
    page = text_of(browse(liaison).get(f"{LIST}?q=nothing"))
    assert "No datasets match these filters" in page
    assert "Invalid filter" in text_of(browse(liaison).get(f"{LIST}?experiment=DUNE"))


def test_list_has_pages(produce, browse, liaison, monkeypatch):
    monkeypatch.setattr(views, "PAGE_SIZE", 2)
    for number in range(3):
        produce((f"raw{number}", f"reco{number}"))
    page = text_of(browse(liaison).get(LIST))
    assert datasets_in(page) == ["reco2", "reco1"]
    older = re.search(r'href="([^"]+)" rel="next"', page)[1].replace("&amp;", "&")
    assert datasets_in(text_of(browse(liaison).get(f"{LIST}{older}"))) == ["reco0"]
    inputs = f"{LIST}?made=no"
    assert datasets_in(text_of(browse(liaison).get(inputs))) == ["raw2", "raw1"]
    assert datasets_in(text_of(browse(liaison).get(f"{inputs}&page=2"))) == ["raw0"]


def test_inputs_are_what_no_request_makes(produce, produce_for_dune, browse, liaison, approver):
    produce(("raw.b", "calib"), ("", "reco"))
    produce(("calib", "tuple"))
    produce(("raw.a", "x"))
    produce(("dune.reco", "y"))
    produce_for_dune(("dune.raw", "dune.reco"))

    def listed(user, **query) -> list[str]:
        address = f"{LIST}?{urlencode({'made': 'no', **query})}"
        return datasets_in(text_of(browse(user).get(address)))

    assert listed(liaison) == ["dune.reco", "raw.a", "raw.b"]
    assert listed(liaison, sort="name", q="RAW") == ["raw.a", "raw.b"]
    assert listed(approver) == ["dune.raw", "raw.a", "raw.b"]
    assert listed(approver, experiment="DUNE") == ["dune.raw"]
    assert listed(liaison, experiment="DUNE") == []


def test_each_role_sees_the_datasets_of_its_requests(
    produce, produce_for_dune, browse, liaison, other_liaison, approver, shifter, admin
):
    produce(("", "nova.reco"))
    produce_for_dune(("", "dune.reco"))
    for user, names in [
        (people.person("nobody"), []),
        (liaison, ["nova.reco"]),
        (other_liaison, ["dune.reco"]),
        (approver, ["dune.reco", "nova.reco"]),
        (shifter, ["dune.reco", "nova.reco"]),
        (admin, ["dune.reco", "nova.reco"]),
    ]:
        client = browse(user)
        assert datasets_in(text_of(client.get(LIST))) == names
        for name in ("nova.reco", "dune.reco"):
            expected = 200 if name in names else 404
            assert client.get(page_of(name)).status_code == expected


def test_page_of_a_dataset(produce, browse, liaison, known, at):
    first = produce(("raw", "calib"), ("", "reco"))
    second = produce(("reco", "tuple"))
    known("reco", files=1164, events=59_300_000, size_bytes=3_400_000_000_000)
    StageLocation.objects.create(
        stage=first.stages.get(position=1), note="/pnfs/<b>", at=at, by="liaison"
    )
    page = text_of(browse(liaison).get(page_of("reco")))
    assert f"{first.key}</a>, stage 2 stage2" in page
    assert '<a href="#used-by">1 stage</a>' in page
    assert "stage2.fcl" in page
    assert "exists" in page
    assert "1,164" in page
    assert "/pnfs/&lt;b&gt;" in page
    assert f'href="{page_of("calib")}"' in page
    assert f'href="{page_of("tuple")}"' in page
    assert second.get_absolute_url() in page
    assert f"/submissions/{first.key}/" in page
    assert f"/archive/?request={first.key}&amp;stage=stage2" in page
    assert page.count("<path") == 3


def test_draft_that_plans_a_dataset_is_marked(produce, browse, liaison, approver):
    draft = produce(("raw", "reco"), state=RequestState.DRAFT)
    reader = produce(("reco", "tuple"), state=RequestState.DRAFT)
    page = text_of(browse(approver).get(page_of("reco")))
    assert f'Planned by the draft <a href="{draft.get_absolute_url()}">' in page
    assert "Made by <a" not in page
    assert f"draft {draft.key} · 1 stage1" in page
    for request in (draft, reader):
        assert f"{request.key}</a> <small> draft · 1 stage1" in page

    maker = produce(("raw", "reco"))
    produce(("raw", "reco"), state=RequestState.DRAFT)
    page = text_of(browse(liaison).get(page_of("reco")))
    assert f'Made by <a href="{maker.get_absolute_url()}">{maker.key}</a>, stage 1' in page


def test_page_of_raw_data(produce, browse, liaison):
    produce(("raw", "reco"))
    page = text_of(browse(liaison).get(page_of("raw")))
    assert "No request that you can see makes it." in page
    assert "No catalogue is connected." in page
    assert 'id="made-by"' not in page


def test_failed_catalogue_says_why(produce, browse, liaison, known):
    produce(("raw", "reco"))
    known("reco", exists=None, answered_at=None, is_waiting=True)
    Catalogue.objects.update(error="503 <Service> Unavailable")
    page = text_of(browse(liaison).get(page_of("reco")))
    assert "no answer yet" in page
    assert "503 &lt;Service&gt; Unavailable" in page
    assert "not asked" in text_of(browse(liaison).get(page_of("raw")))


@pytest.mark.parametrize(
    "name", ["a/b", "user:set.v1", "a b&c=d", "../x", "50%", "<script>", "é“", "x" * 300, "a?#"]
)
def test_every_name_has_a_page(produce, browse, liaison, name):
    produce((name, "reco"))
    client = browse(liaison)
    page = text_of(client.get(page_of("reco")))
    assert f"name={quote(name, safe='')}" in page
    assert "<script>" not in page.replace("<script src", "")
    assert client.get(page_of(name)).status_code == 200


def test_names_without_a_page(produce, browse, liaison):
    produce(("raw", "reco"))
    for query in ("", "?name=", "?name=nothing", f"?name={'x' * 600}"):
        assert browse(liaison).get(f"/datasets/dataset/{query}").status_code == 404


def test_page_of_a_cycle_and_of_a_long_chain(produce, browse, liaison):
    produce(("a", "b"))
    produce(("b", "a"))
    assert "A dataset is made from itself here." in text_of(browse(liaison).get(page_of("a")))
    for number in range(12):
        produce((f"d{number}", f"d{number + 1}"))
    assert "longer than what is shown" in text_of(browse(liaison).get(page_of("d0")))


def test_outputs_without_a_name_are_shown(produce, browse, liaison):
    produce(("raw", ""), ("", "reco"))
    page = text_of(browse(liaison).get(page_of("reco")))
    assert "output without a name" in page
    assert "\0" not in page


def test_column_of_many_datasets_is_shortened_in_the_graph(produce, browse, liaison):
    for number in range(graph.MOST_IN_COLUMN + 1):
        produce(("raw", f"reco{number}"))
    page = text_of(browse(liaison).get(page_of("raw")))
    assert page.count("<rect") == 1 + graph.MOST_IN_COLUMN
    assert "2 more" in page
    assert page.count("<path") == graph.MOST_IN_COLUMN


def test_datasets_of_a_scan_are_listed_by_point(produce, browse, liaison):
    produce(("", "gen.{e}"), scan="e = 1, 2")
    page = text_of(browse(liaison).get(page_of("gen.{e}")))
    assert datasets_in(page) == ["gen.1", "gen.2"]
    assert "e = 2" in page
    assert "2 points" in text_of(browse(liaison).get(LIST))


def test_queries_do_not_grow_with_datasets(produce, browse, liaison, known):
    client = browse(liaison)

    def count(address: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        return len(queries)

    addresses = (LIST, f"{LIST}?made=no", page_of("shared"))
    produce(("raw", "shared"), ("", "x.{e}"), scan="e = 1, 2")
    few = [count(address) for address in addresses]
    for number in range(6):
        produce(("raw", "shared"), ("", f"y{number}.{{e}}"), scan="e = 1, 2")
        produce((f"raw{number}", f"z{number}"))
        known(f"z{number}", files=1)
    assert [count(address) for address in addresses] == few


def test_request_page_links_its_datasets(produce, browse, liaison):
    request = produce(("raw/a", "calib"), ("", "gen.{e}"), scan="e = 1, 2")
    page = text_of(browse(liaison).get(request.get_absolute_url()))
    for name in ("raw/a", "calib", "gen.{e}"):
        assert f'href="/datasets/dataset/?name={quote(name, safe="")}">{name}</a>' in page


def test_search_finds_datasets_by_part_of_their_name(
    produce, produce_for_dune, browse, liaison, other_liaison
):
    produce(("raw", "nova.reco.v1"), ("", "nova.reco.v2"), title="Two")
    produce(("raw", "nova.reco.v2"), title="Three")
    produce_for_dune(("raw", "dune.reco.v1"))
    client = browse(liaison)
    page = text_of(client.get("/find/?q=Reco"))
    assert page.count(">nova.reco.v2</a>") == 1
    assert ">nova.reco.v1</a>" in page
    assert "dune.reco" not in page
    assert 'href="/datasets/?q=Reco">all</a>' in page
    assert client.get("/find/?q=reco.v1").headers["Location"] == page_of("nova.reco.v1")
    assert "dataset/?name=" not in text_of(client.get("/find/?q=re"))
    location = browse(other_liaison).get("/find/?q=reco.v1").headers["Location"]
    assert location == page_of("dune.reco.v1")


def test_search_finds_datasets_that_requests_only_read(produce, produce_for_dune, browse, liaison):
    produce(("nova.raw.a", "x"))
    produce(("nova.raw.b", "y"))
    produce_for_dune(("dune.raw.a", "z"))
    client = browse(liaison)
    page = text_of(client.get("/find/?q=raw"))
    assert page.index(">nova.raw.b</a>") < page.index(">nova.raw.a</a>")
    assert "dune.raw" not in page
    assert 'href="/datasets/?made=no&amp;q=raw">all</a>' in page
    assert client.get("/find/?q=raw.a").headers["Location"] == page_of("nova.raw.a")


def test_made_by_shows_the_output_files_that_files_shows(produce, browse, liaison):
    request = produce(("raw", "nova.reco"))
    OutputTotals.objects.create(
        stage=request.stages.get(),
        files=3,
        counting_files=2,
        counting_events=5_000,
        counting_bytes=3_000_000_000,
    )
    page = " ".join(text_of(browse(liaison).get(page_of("nova.reco"))).split())
    assert "2 files, 5,000 events, 3 GB" in page
    assert f'href="/submissions/{request.key}/files/">Files</a>' in page


def test_list_and_page_show_what_jobs_reported_if_no_catalogue_answered(
    produce, browse, liaison, known
):
    request = produce(("raw", "counted"), ("", "named"), ("", "answered"))
    stages = list(request.stages.order_by("position"))
    StageCounts.objects.create(stage=stages[0], files_out=200, events_out=400_000)
    # A file that two jobs list has two rows, and is counted once.
    OutputTotals.objects.create(stage=stages[0], files=201, counting_files=201)
    OutputTotals.objects.create(
        stage=stages[1], files=57, counting_files=57, counting_events=5_700, counting_bytes=10**9
    )
    OutputTotals.objects.create(stage=stages[2], files=9, counting_files=9)
    known("answered", files=8)
    client = browse(liaison)
    page = " ".join(text_of(client.get(LIST)).split())
    assert ">200 </td> <td" in page
    assert ">201" not in page
    assert ">400,000 </td>" in page
    assert "57</td> <td" in page
    assert "5,700</td>" in page
    assert ">1 GB</td>" in page
    assert page.count("<small>reports of jobs</small>") == 2
    assert ">8</td>" in page
    assert ">9</td>" not in page
    assert "200 files, 400,000 events" in " ".join(text_of(client.get(page_of("counted"))).split())
    OutputTotals.objects.filter(stage=stages[0]).delete()
    files = text_of(client.get(f"/submissions/{request.key}/files/?stage=1"))
    assert "200 files · 400,000 events, counted by jobs" in " ".join(files.split())
