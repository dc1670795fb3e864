"""Datasets are made in catalogues of files of a stage: stored by a page, made by workers."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets import tasks
from apps.datasets.domain.catalogue_queue import catalogues_to_ask_about
from apps.datasets.domain.ledger import NewFile, add_files, give_up_files
from apps.datasets.domain.making import (
    MAKINGS,
    catalogues_that_make,
    make_datasets,
    order_dataset,
)
from apps.datasets.enums import MakingState
from apps.datasets.models import Catalogue, MadeDataset, OutputFile
from apps.production.enums import RequestState
from tests.contracts.file_catalogue import RAW
from tests.datasets.catalogues.server import Response
from tests.datasets.catalogues.test_rucio import RucioHarness
from tests.factories.requests import AT, request_in, stage

WHOLE = "exa-raw:run4711"
NAME = "exa-raw:mine"
S = MakingState


@pytest.fixture
def rucio(tmp_path, db):
    harness = RucioHarness(tmp_path)
    harness.row = Catalogue.objects.create(
        name="rucio",
        kind="rucio",
        base_url=harness.server.url,
        credential_file=str(tmp_path / "credential"),
        options={"account": "exaprod"},
    )
    yield harness
    harness.server.close()


@pytest.fixture
def running(rucio, liaison, nova, approver):
    """A running request that reads three files of a dataset of Rucio; one was given up."""
    request = request_in(
        RequestState.RUNNING,
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("reco", input_dataset=WHOLE, output_dataset="exa-reco:v1"),),
    )
    [reco] = request.stages.all()
    names = [f"exa-raw:{file.name}" for file in RAW[:3]]
    add_files(stages=[reco], files=[NewFile(name) for name in names], at=AT)
    give_up_files(stage=reco, later=[], names=names[2:], reason="Bad.", by="x", at=AT)
    return request


@pytest.fixture
def clock():
    class Clock:
        at = timezone.now()

        def __call__(self):
            return self.at

    return Clock()


def order(request, by, at, **changes):
    values = {"position": 0, "chosen": "missing", "catalogue": "rucio", "name": NAME} | changes
    return order_dataset(request=request, by=by, at=at, **values)


def kinds(request):
    return [event.kind for event in events_of(request) if event.kind.startswith("making")]


def test_dataset_is_made_once_by_a_worker(rucio, running, liaison, clock):
    made = order(running, liaison, clock.at)
    assert order(running, liaison, clock.at).pk == made.pk
    assert rucio.server.requests == []  # nothing is asked for the page
    assert list(catalogues_to_ask_about(MAKINGS, clock.at)) == [rucio.row]

    assert make_datasets(rucio.row, now=clock) == 1
    assert rucio.server.datasets["mine"] == RAW[:2]
    made.refresh_from_db()
    assert (made.state, made.made_at, made.file_count) == (S.MADE, clock.at, 2)
    assert (made.requested_by, made.source) == (liaison.username, WHOLE)
    assert kinds(running) == ["making.requested", "making.made"]
    assert make_datasets(rucio.row, now=clock) == 0
    # Again: nothing changes.
    assert order(running, liaison, clock.at).state == S.MADE
    assert kinds(running) == ["making.requested", "making.made"]


def test_killed_worker_is_followed_by_another_one(rucio, running, liaison, clock):
    made = order(running, liaison, clock.at)
    MAKINGS.claim(MAKINGS.due(clock.at), at=clock.at)
    rucio.server.datasets["mine"] = RAW[:1]
    rucio.server.properties["mine"] = {"account": "exaprod"}
    assert make_datasets(rucio.row, now=clock) == 0  # the claim still stands
    clock.at += MAKINGS.lease + timedelta(seconds=1)
    assert make_datasets(rucio.row, now=clock) == 1
    assert rucio.server.datasets["mine"] == RAW[:2]
    made.refresh_from_db()
    assert made.state == S.MADE


def test_catalogue_that_does_not_answer_is_asked_again(rucio, running, liaison, clock):
    made = order(running, liaison, clock.at)
    rucio.server.fault = lambda request: Response(503, b"busy", "text/plain")
    assert make_datasets(rucio.row, now=clock) == 0
    made.refresh_from_db()
    assert made.state == S.QUEUED
    assert made.last_error
    rucio.server.fault = lambda request: None
    clock.at += timedelta(minutes=10)
    assert make_datasets(rucio.row, now=clock) == 1
    made.refresh_from_db()
    assert (made.state, made.last_error) == (S.MADE, "")


def test_refused_dataset_says_why_and_can_be_ordered_again(rucio, running, liaison, clock):
    rucio.server.datasets["mine"] = RAW[3:4]
    made = order(running, liaison, clock.at)
    assert make_datasets(rucio.row, now=clock) == 1
    made.refresh_from_db()
    assert made.state == S.REFUSED
    assert "differ" in made.last_error
    assert rucio.server.datasets["mine"] == RAW[3:4]
    assert kinds(running)[-1] == "making.refused"
    again = order(running, liaison, clock.at, chosen="all")
    assert (again.pk, again.state, again.file_count) == (made.pk, S.QUEUED, 3)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"catalogue": "none"}, InvalidFields),
        ({"name": ""}, InvalidFields),
        ({"name": "two words"}, InvalidFields),
        ({"name": "other-scope:mine"}, InvalidFields),
        ({"name": "x" * 501}, InvalidFields),
        ({"position": 7}, InvalidFields),
        ({"chosen": "outputs", "name": "exa-reco:x"}, InvalidTransition),
        ({"chosen": "done"}, InvalidTransition),
    ],
)
def test_what_cannot_be_made_is_not_stored(running, liaison, clock, changes, error):
    with pytest.raises(error):
        order(running, liaison, clock.at, **changes)
    assert not MadeDataset.objects.exists()


def test_name_has_one_list_of_files(running, liaison, clock):
    order(running, liaison, clock.at)
    with pytest.raises(InvalidFields):
        order(running, liaison, clock.at, chosen="all")


def test_output_files_that_count(running, liaison, clock):
    [reco] = running.stages.all()
    for name, counts in (("exa-reco:a", True), ("exa-reco:b", False)):
        OutputFile.objects.create(
            stage=reco, key="1", name=name, size_bytes=1, counts=counts, at=AT, by="x"
        )
    made = order(running, liaison, clock.at, chosen="outputs", name="exa-reco:mine")
    assert (made.files, made.source) == (["exa-reco:a"], "exa-reco:v1")


def test_only_those_who_may(running, shifter, other_liaison, approver, clock):
    for user in (shifter, other_liaison):
        with pytest.raises(NotAllowed):
            order(running, user, clock.at)
    assert order(running, approver, clock.at).state == S.QUEUED


def test_catalogues_that_make_none_are_not_offered(rucio, tmp_path):
    sam = {"kind": "sam", "base_url": "https://sam.example.org/sam/exa/api"}
    Catalogue.objects.create(name="sam", **sam)
    Catalogue.objects.create(name="sam2", **sam, options={"group": "exa", "user": "exapro"})
    Catalogue.objects.create(name="off", kind="rucio", base_url="https://x.example", active=False)
    assert [row.name for row in catalogues_that_make()] == ["rucio", "sam2"]


def test_pages(client, rucio, running, liaison, shifter, clock):
    files = reverse("submission:files", args=[running.key])
    url = reverse("datasets:make", args=[running.key])
    client.force_login(shifter)
    assert "Make dataset" not in client.get(files).content.decode()
    assert client.get(url).status_code == 403
    assert client.post(url, {}).status_code == 403

    client.force_login(liaison)
    assert "Make dataset in rucio" in " ".join(client.get(files).content.decode().split())
    text = client.get(url, {"stage": 1}).content.decode()
    assert 'value="exa-raw:nova_' in text
    assert client.get(url, {"stage": 2}).status_code == 404
    values = {"position": 0, "chosen": "missing", "catalogue": "rucio"}
    refused = client.post(url, values | {"name": "other:x"})
    assert refused.status_code == 400
    assert "must be in the scope" in refused.content.decode()
    assert client.post(url, values | {"name": NAME}).status_code == 302
    text = client.get(files).content.decode()
    assert "not made yet" in text
    assert rucio.server.requests == []

    tasks.make_in(catalogue_id=rucio.row.pk)
    text = client.get(files).content.decode()
    assert "made</b>" in text
    assert liaison.username in text


def test_api(api, running, liaison, shifter, rucio):
    url = f"/api/v1/made-datasets/{running.key}/"
    values = {"position": 0, "chosen": "missing", "catalogue": "rucio", "name": NAME}
    assert api(shifter).post(f"{url}make/", values, format="json").status_code == 403
    [made] = api(liaison).post(f"{url}make/", values, format="json").json()
    assert (made["name"], made["state"], made["file_count"]) == (NAME, "queued", 2)
    tasks.make_in(catalogue_id=rucio.row.pk)
    [made] = api(shifter).get(url).json()
    assert (made["state"], made["error"]) == ("made", "")
    assert made["made_at"]
