"""Datasets in the API: the list, and one with its provenance."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.datasets.models import Catalogue, KnownDataset
from tests.factories import people

LIST = "/api/v1/datasets/"
ONE = "/api/v1/datasets/provenance/"


def test_list(produce, produce_for_dune, api, liaison, at):
    request = produce(("raw", "calib"), ("", "reco"))
    produce_for_dune(("", "dune.reco"))
    catalogue = Catalogue.objects.create(name="sam", kind="sam", base_url="/x", error="503")
    KnownDataset.objects.create(
        catalogue=catalogue,
        name="calib",
        exists=True,
        files=12,
        requested_at=at,
        due_at=at,
        answered_at=at,
    )
    listed = api(liaison).get(LIST).json()["results"]
    assert [row["name"] for row in listed] == ["reco", "calib"]
    row = listed[1]
    answer = row.pop("answer")
    assert row == {
        "name": "calib",
        "request": request.key,
        "experiment": "NOVA",
        "state": "running",
        "stage": 1,
        "stage_name": "stage1",
        "release": "v09_72",
        "configuration": "stage1.fcl",
        "uses": 1,
    }
    assert (answer["catalogue"], answer["files"], answer["catalogue_error"]) == ("sam", 12, "503")
    assert listed[0]["answer"] is None


def test_list_is_filtered_and_has_pages(produce, api, liaison):
    produce(("raw", "b.calib"), ("", "a.reco"), ("", "c.reco"))
    client = api(liaison)

    def names(**query) -> list[str]:
        return [row["name"] for row in client.get(LIST, query).json()["results"]]

    assert names(q="reco") == ["c.reco", "a.reco"]
    assert names(ordering="name") == ["a.reco", "b.calib", "c.reco"]
    assert names(experiment="NOVA", state="draft") == []
    assert client.get(LIST, {"experiment": "DUNE"}).status_code == 400
    first = client.get(LIST, {"page_size": 2, "ordering": "name"}).json()
    assert len(first["results"]) == 2
    second = client.get(first["next"]).json()
    assert [row["name"] for row in second["results"]] == ["c.reco"]
    assert client.post(LIST, {}).status_code == 405


def test_one_dataset(produce, api, liaison):
    request = produce(("raw", ""), ("", "reco/v1:x"))
    reader = produce(("reco/v1:x", "tuple"))
    dataset = api(liaison).get(ONE, {"name": "reco/v1:x"}).json()
    assert [(step["request"], step["stage"]) for step in dataset["made_by"]] == [(request.key, 2)]
    made_from = [(entry["distance"], entry["name"]) for entry in dataset["made_from"]]
    assert made_from == [(1, ""), (2, "raw")]
    assert dataset["made_from"][1]["made_by"] is None
    (used_by,) = dataset["used_by"]
    assert (used_by["name"], used_by["made_by"]["request"]) == ("tuple", reader.key)
    assert used_by["made_by"]["input"] == "reco/v1:x"
    assert dataset["uses"] == 1
    assert not dataset["is_cut"]
    assert not dataset["has_cycle"]
    assert "\\u0000" not in api(liaison).get(ONE, {"name": "reco/v1:x"}).content.decode()


def test_each_role_gets_the_datasets_of_its_requests(
    produce_for_dune, api, liaison, other_liaison, approver, shifter, admin
):
    produce_for_dune(("raw", "dune.reco"))
    for user, is_visible in [
        (people.person("nobody"), False),
        (liaison, False),
        (other_liaison, True),
        (approver, True),
        (shifter, True),
        (admin, True),
    ]:
        client = api(user)
        assert len(client.get(LIST).json()["results"]) == int(is_visible)
        for name in ("dune.reco", "raw"):
            status = client.get(ONE, {"name": name}).status_code
            assert status == (200 if is_visible else 404)


def test_name_is_needed(produce, api, liaison):
    produce(("raw", "reco"))
    assert api(liaison).get(ONE).status_code == 404
    assert api(liaison).get(ONE, {"name": "reco", "other": "1"}).status_code == 400


def test_queries_do_not_grow_with_datasets(produce, api, liaison):
    client = api(liaison)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            client.get(LIST)
        return len(queries)

    produce(("raw", "calib"), ("", "reco.{e}"), scan="e = 1, 2")
    few = count()
    for number in range(5):
        produce(("raw", f"calib{number}"), ("", f"reco{number}.{{e}}"), scan="e = 1, 2")
    assert count() == few
