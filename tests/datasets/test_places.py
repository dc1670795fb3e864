"""Workers learn where the files of a dataset are, within bounds; silence is never “nowhere”."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.datasets.catalogues.base import (
    CatalogueFile,
    DatasetSummary,
    Location,
    Medium,
)
from apps.datasets.domain import places
from apps.datasets.domain.look_ups import BackOfficeCatalogues, ask_catalogue
from apps.datasets.domain.places import LOCATING_TIME, UNKNOWN_PLACES, DatasetPlaces, locate_files
from apps.datasets.models import Catalogue, KnownDataset
from apps.production.domain.outputs.datasets import CatalogueError, Dataset
from tests.contracts.file_catalogue import RAW
from tests.datasets.catalogues.server import Response
from tests.datasets.catalogues.test_rucio import RucioHarness, ndjson, replicas

DISK = Location("DISK_1", "/d", Medium.DISK)
TAPE = Location("TAPE_1", "/t", Medium.TAPE)
ODD = Location("ODD_1", "/o", Medium.UNKNOWN)


class InMemory:
    """A catalogue of one dataset, with the replicas of its files."""

    knows_locations = True

    def __init__(self, replicas_by_name, retired=()):
        self.replicas_by_name = replicas_by_name
        self.retired = retired
        self.chunks = []

    def files(self, name):
        for file in self.replicas_by_name:
            yield CatalogueFile(file, retired=file in self.retired)

    def locations(self, names):
        self.chunks.append(len(names))
        located = {}
        for name in names:
            if self.replicas_by_name[name] is not None:
                located[name] = self.replicas_by_name[name]
        return located


def on_disk(names):
    """Return a catalogue of files with names of one letter, all on disk."""
    replicas_by_name = {}
    for name in names:
        replicas_by_name[name] = [DISK]
    return InMemory(replicas_by_name)


def locate(catalogue, files=None, now=timezone.now):
    return locate_files(catalogue, DatasetSummary("raw", exists=True, files=files), now=now)


def test_a_file_counts_once_by_its_best_replica():
    catalogue = InMemory(
        {
            "both": [TAPE, DISK],
            "tape": [TAPE],
            "two tapes": [TAPE, replace(TAPE, site="TAPE_2")],
            "unreadable disk": [TAPE, replace(DISK, available=False)],
            "unreadable": [replace(DISK, available=False)],
            "nowhere": [],
            "undeclared": None,
            "somewhere": [ODD],
            "tape or somewhere": [TAPE, ODD],
            "retired": [],
        },
        retired=("retired",),
    )
    assert locate(catalogue) == DatasetPlaces(
        files=9, on_disk=1, on_tape_only=3, without_location=3, reason=""
    )


def test_large_datasets_are_not_located(monkeypatch):
    monkeypatch.setattr(places, "MOST_LOCATED", 3)
    catalogue = on_disk("abcd")
    for files in (4, None):
        answer = locate(catalogue, files)
        assert (answer.files, answer.on_disk) == (None, None)
        assert "locates the files of datasets of up to" in answer.reason
    assert catalogue.chunks == []
    assert locate(on_disk("abc"), 3).on_disk == 3


def test_files_are_located_in_chunks_until_it_takes_too_long(monkeypatch):
    monkeypatch.setattr(places, "CHUNK", 2)
    catalogue = on_disk("abcde")
    assert locate(catalogue).on_disk == 5
    assert catalogue.chunks == [2, 2, 1]

    times = iter(timezone.now() + LOCATING_TIME * number * 0.6 for number in range(5))
    slow = on_disk("abcde")
    answer = locate(slow, now=lambda: next(times))
    assert answer == DatasetPlaces(reason="The catalogue took longer than 2 minutes.")
    assert slow.chunks == [2]


def test_catalogue_without_locations_is_not_asked():
    catalogue = InMemory({"a": [DISK]})
    catalogue.knows_locations = False
    assert locate(catalogue) == UNKNOWN_PLACES


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


def find(name="exa-raw:run4711"):
    """Return the dataset as pages know it, or why it is unknown."""
    try:
        return BackOfficeCatalogues().find([name]).get(name)
    except CatalogueError as error:
        return str(error)


def ask(harness, at=None):
    moment = at or timezone.now()
    return ask_catalogue(harness.row, now=lambda: moment)


def test_worker_learns_where_files_are_and_pages_send_no_request(rucio):
    assert "is being looked up" in find()
    assert rucio.server.requests == []
    assert ask(rucio) == 1

    sent = len(rucio.server.requests)
    assert find() == Dataset(
        "exa-raw:run4711",
        files=12,
        size_bytes=sum(file.size for file in RAW),
        frozen=False,
        files_located=12,
        files_on_disk=4,
        files_on_tape_only=4,
        files_without_location=4,
    )
    assert find().is_complete is False
    assert len(rucio.server.requests) == sent


def test_dataset_is_complete_if_closed_and_all_its_files_have_a_location(rucio):
    rucio.server.datasets["run4711"] = [file for file in RAW if file.replicas]
    rucio.server.properties["run4711"] = {"open": False}
    find()
    ask(rucio)
    assert find().is_complete is True
    assert Dataset("raw", files=1, frozen=True).is_complete is None
    assert replace(find(), files=13).is_complete is False


def fail_replicas(response):
    def fault(request):
        return response if request.target.endswith("replicas/list") else None

    return fault


@pytest.mark.parametrize(
    ("response", "is_away"),
    [
        (Response(503, b"Overloaded"), True),
        (Response(401, b"No"), True),
        (ndjson([replicas(RAW[0])]), True),
        (Response(403, b"Forbidden"), False),
    ],
    ids=["away", "sign-in", "partial", "forbidden"],
)
def test_dataset_exists_although_its_files_cannot_be_located(rucio, response, is_away):
    find()
    rucio.server.fault = fail_replicas(response)
    ask(rucio)
    dataset = find()
    assert (dataset.files, dataset.files_located, dataset.files_on_disk) == (12, None, None)
    row = KnownDataset.objects.get()
    assert row.unlocated_reason
    rucio.row.refresh_from_db()
    assert rucio.row.error == (row.unlocated_reason if is_away else "")

    rucio.server.fault = lambda request: None
    later = timezone.now() + timedelta(hours=2)
    KnownDataset.objects.update(is_waiting=True, due_at=later, attempts=0)
    ask(rucio, later)
    row.refresh_from_db()
    assert (row.files_on_disk, row.unlocated_reason) == (4, "")


def test_numbers_are_stored_together_or_not_at_all(rucio):
    find()
    for numbers in (
        {"files_on_disk": 1},
        {"files_located": 1, "files_on_disk": 1, "files_on_tape_only": 0},
        {
            "files_located": 2,
            "files_on_disk": 1,
            "files_on_tape_only": 1,
            "files_without_location": 1,
        },
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            KnownDataset.objects.update(**numbers)
