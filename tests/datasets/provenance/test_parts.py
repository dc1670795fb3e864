"""Parts of datasets in the provenance: the list, the graph, the page and the API."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.datasets.domain import steps
from apps.datasets.domain.provenance import provenance_of
from apps.datasets.web.graph import draw_graph
from apps.production.models import DatasetPart
from tests.factories import people

ONE = "/api/v1/datasets/provenance/"


@pytest.fixture
def define(at):
    """Return a function that records a part of a dataset, which one request reads."""

    def make(name, whole, *, reader, split_from, is_held=True, total=12):
        return DatasetPart.objects.create(
            request=reader,
            split_from=split_from,
            name=name,
            whole=whole,
            first=0,
            last=total,
            total=total,
            files=["a.root"],
            is_held=is_held,
            due_at=at,
            defined_at=at,
        )

    return make


@pytest.fixture
def recovered(produce, define):
    """Return the recovery of a request, which reads the missing files of its input."""
    produce(("raw", "calib"))
    original = produce(("calib", "reco"))
    recovery = produce(("calib_missing", "reco"))
    define("calib_missing", "calib", reader=recovery, split_from=original)
    return recovery


def named(entries):
    """Return the steps and names of entries, each with whether it is a part."""
    return [(entry.distance, entry.name, entry.part is not None) for entry in entries]


def test_whole_dataset_comes_before_its_part(recovered, liaison):
    provenance = provenance_of("calib_missing", liaison)
    assert named(provenance.made_from) == [(1, "calib", False), (2, "raw", False)]
    assert named(provenance.used_by) == [(1, "reco", False)]
    assert not provenance.has_cycle


def test_outputs_of_a_recovery_are_made_from_the_whole_dataset_too(recovered, liaison):
    provenance = provenance_of("reco", liaison)
    assert named(provenance.made_from) == [
        (1, "calib_missing", True),
        (1, "calib", False),
        (2, "raw", False),
    ]
    part = provenance.made_from[0].part
    assert (part.whole, part.request) == ("calib", recovered)


def test_part_is_made_from_the_whole_dataset(recovered, liaison):
    provenance = provenance_of("calib", liaison)
    assert named(provenance.used_by) == [
        (1, "reco", False),
        (1, "calib_missing", True),
        (2, "reco", False),
    ]
    # Parts are not stages that read it.
    assert provenance.uses == 1


def test_shares_of_a_split_are_parts(produce, define, liaison):
    whole = produce(("raw", "reco"))
    for number in (1, 2):
        name = f"raw_part{number}"
        reader = produce((name, "reco"))
        define(name, "raw", reader=reader, split_from=whole, is_held=False)
    provenance = provenance_of("raw", liaison)
    parts = [entry.name for entry in provenance.used_by if entry.part]
    assert sorted(parts) == ["raw_part1", "raw_part2"]
    boxes = {box.label: box for box in draw_graph(provenance).boxes}
    assert boxes["raw_part1"].line == f"part: share of {whole.key}"


def test_graph_has_the_part_between_its_dataset_and_the_outputs(recovered, liaison):
    graph = draw_graph(provenance_of("calib_missing", liaison))
    assert [box.name for box in graph.boxes] == ["raw", "calib", "calib_missing", "reco"]
    assert len(graph.paths) == 3
    current = graph.boxes[2]
    assert current.is_current
    assert current.line.startswith("part: missing in NOVA-")


def test_part_of_a_part_that_is_the_whole_is_reported_as_a_cycle(produce, define, liaison):
    request = produce(("a", "out"))
    define("a", "b", reader=request, split_from=request)
    define("b", "a", reader=request, split_from=request)
    assert provenance_of("a", liaison).has_cycle


def test_same_part_of_several_requests_is_one_step(recovered, produce, define, liaison):
    copy = produce(("calib_missing", "other"))
    define("calib_missing", "calib", reader=copy, split_from=recovered)
    provenance = provenance_of("calib", liaison)
    assert [entry.part.request for entry in provenance.used_by if entry.part] == [copy]
    assert len(provenance.parts.parts) == 2


def test_too_many_parts_are_cut_off_and_say_so(produce, define, liaison, monkeypatch):
    monkeypatch.setattr(steps, "MOST_REQUESTS", 2)
    whole = produce(("raw", "reco"))
    for number in range(3):
        define(f"raw_part{number}", "raw", reader=whole, split_from=whole, is_held=False)
    provenance = provenance_of("raw", liaison)
    assert provenance.is_cut
    assert len(provenance.parts.parts) == 2


def test_page_names_the_part_in_its_lists(recovered, browse, liaison):
    text = browse(liaison).get("/datasets/dataset/?name=reco").content.decode()
    section = text.partition('id="made-from"')[2].partition("</section>")[0]
    assert "?name=calib_missing" in section
    assert "the 12 files missing in" in section
    assert "no request that you can see" in section  # raw


def test_api_returns_parts(recovered, api, liaison):
    dataset = api(liaison).get(ONE, {"name": "reco"}).json()
    first = dataset["made_from"][0]
    original = first["part"].pop("made_from_request")
    assert first == {
        "name": "calib_missing",
        "distance": 1,
        "made_by": None,
        "part": {
            "name": "calib_missing",
            "whole": "calib",
            "request": recovered.key,
            "is_recovery": True,
        },
    }
    assert original != recovered.key
    assert dataset["made_from"][1]["part"] is None
    part = api(liaison).get(ONE, {"name": "calib_missing"}).json()
    assert [row["whole"] for row in part["part_of"]] == ["calib"]
    whole = api(liaison).get(ONE, {"name": "calib"}).json()
    assert [row["name"] for row in whole["parts"]] == ["calib_missing"]


def test_parts_of_requests_of_others_are_hidden(
    produce, produce_for_dune, define, api, liaison, shifter
):
    ours = produce(("raw", "reco"))
    theirs = produce_for_dune(("raw_part", "dune.reco"))
    define("raw_part", "raw", reader=theirs, split_from=theirs)
    define("raw_of_both", "raw", reader=ours, split_from=theirs)
    for user, parts in [(liaison, []), (shifter, ["raw_of_both", "raw_part"])]:
        dataset = api(user).get(ONE, {"name": "raw"}).json()
        assert [row["name"] for row in dataset["parts"]] == parts
    assert api(people.person("nobody")).get(ONE, {"name": "raw_part"}).status_code == 404


def test_queries_do_not_grow_with_parts(produce, define, liaison):
    whole = produce(("raw", "reco"))

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            provenance_of("raw", liaison)
        return len(queries)

    define("raw_part", "raw", reader=whole, split_from=whole)
    few = count()
    for number in range(5):
        define(f"raw_part{number}", "raw", reader=whole, split_from=whole)
    assert count() == few
