"""Datasets are looked up by workers; pages use the answers, and never take silence for “none”."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.datasets import tasks
from apps.datasets.catalogues import base
from apps.datasets.catalogues.registry import CATALOGUES
from apps.datasets.domain import look_ups
from apps.datasets.domain.catalogue_queue import catalogues_to_ask_about
from apps.datasets.domain.look_ups import (
    ABSENT_FOR,
    FRESH,
    KEPT,
    LOOK_UPS,
    BackOfficeCatalogues,
    ask_catalogue,
    forget_datasets,
)
from apps.datasets.models import Catalogue, KnownDataset
from apps.production.domain.outputs.datasets import (
    CatalogueError,
    DataFile,
    Dataset,
    find_datasets,
    listing_fault,
    may_define,
)

MINUTE = timedelta(minutes=1)


@dataclass
class Answers:
    """What a catalogue in memory knows, and the names that it was asked for."""

    datasets: dict[str, base.DatasetSummary] = field(default_factory=dict)
    listed: dict[str, list[base.CatalogueFile]] = field(default_factory=dict)
    error: base.CatalogueError | None = None
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def answers(monkeypatch):
    """The answers of each catalogue by its address."""
    by_address: dict[str, Answers] = {}

    class Remembered:
        knows_locations = False

        def __init__(self, address: str) -> None:
            self.answers = by_address.setdefault(address, Answers())

        @classmethod
        def from_configuration(cls, configuration):
            return cls(configuration.base_url)

        def describe(self, name: str) -> base.DatasetSummary:
            self.answers.asked.append(name)
            if self.answers.error:
                raise self.answers.error
            return self.answers.datasets.get(name, base.DatasetSummary(name, exists=False))

        def files(self, name: str) -> Iterator[base.CatalogueFile]:
            return iter(self.answers.listed[name])

    monkeypatch.setattr(CATALOGUES, "get", lambda _: Remembered)
    return by_address


@pytest.fixture
def clock(monkeypatch):
    """The time that the portal reads; tests set it."""

    class Clock:
        at = timezone.now()

        def __call__(self):
            return self.at

    clock = Clock()
    monkeypatch.setattr(look_ups.timezone, "now", clock)
    return clock


@pytest.fixture
def sam(db, answers):
    answers["sam.example.org"] = Answers()
    return Catalogue.objects.create(name="sam", kind="sam", base_url="sam.example.org")


def find(*names):
    return BackOfficeCatalogues().find(names)


def ask(row, clock):
    return ask_catalogue(row, now=clock)


def exists(name, **numbers):
    return base.DatasetSummary(name, exists=True, **numbers)


def test_unknown_dataset_is_queued_and_known_after_a_worker_has_asked(sam, answers, clock):
    answers[sam.base_url].datasets["raw"] = exists("raw", files=3, events=70, size_bytes=9)
    with pytest.raises(CatalogueError, match=r"none, raw are being looked up\. Check again"):
        find("raw", "none")
    assert answers[sam.base_url].asked == []  # no page waits for a catalogue

    assert list(catalogues_to_ask_about(LOOK_UPS, clock.at)) == [sam]
    assert ask(sam, clock) == 2
    assert list(catalogues_to_ask_about(LOOK_UPS, clock.at)) == []

    assert find("raw", "none") == {"raw": Dataset("raw", 3, 70, 9)}
    sam.refresh_from_db()
    assert (sam.answered_at, sam.error) == (clock.at, "")


def test_old_answer_is_used_while_the_catalogue_is_asked_again(sam, answers, clock):
    answers[sam.base_url].datasets["raw"] = exists("raw", files=3)
    with pytest.raises(CatalogueError):
        find("raw")
    ask(sam, clock)
    answers[sam.base_url].datasets["raw"] = exists("raw", files=4)
    clock.at += FRESH - MINUTE
    assert find("raw")["raw"].files == 3
    assert ask(sam, clock) == 0
    clock.at += MINUTE
    assert find("raw")["raw"].files == 3
    assert find("raw")["raw"].files == 3  # queued once
    assert ask(sam, clock) == 1
    assert find("raw")["raw"].files == 4


def test_absence_is_believed_for_a_day_alone(sam, answers, clock):
    with pytest.raises(CatalogueError):
        find("new")
    ask(sam, clock)
    answers[sam.base_url].error = base.TryLater("It takes too long.")
    clock.at += ABSENT_FOR - MINUTE
    assert find("new") == {}
    ask(sam, clock)
    clock.at += MINUTE
    with pytest.raises(CatalogueError, match=r"^sam: It takes too long\.$"):
        find("new")


@pytest.mark.parametrize(
    "error",
    [
        base.TryLater("It does not answer."),
        base.SignInNeeded("The token has expired."),
        base.Unclear("It answered with HTML."),
    ],
)
def test_catalogue_that_does_not_answer_is_named_and_asked_again_later(sam, answers, clock, error):
    answers[sam.base_url].error = error
    with pytest.raises(CatalogueError):
        find("one", "two")
    assert ask(sam, clock) == 0
    assert len(answers[sam.base_url].asked) == 1  # the others are not tried in vain
    with pytest.raises(CatalogueError, match=str(error)):
        find("one", "two")
    sam.refresh_from_db()
    assert (sam.error, sam.answered_at) == (str(error), None)

    answers[sam.base_url].error = None
    clock.at += 11 * MINUTE
    assert ask(sam, clock) == 2
    sam.refresh_from_db()
    assert sam.error == ""
    assert find("one", "two") == {}


def test_refusal_of_one_dataset_does_not_stop_the_others(sam, answers, clock, monkeypatch):
    answers[sam.base_url].datasets["zebra"] = exists("zebra")
    with pytest.raises(CatalogueError):
        find("bad name", "zebra")
    describe = CATALOGUES.get("sam").describe

    def refuse_one(self, name):
        if name == "bad name":
            raise base.Refused("A name has no space.")
        return describe(self, name)

    monkeypatch.setattr(CATALOGUES.get("sam"), "describe", refuse_one)
    assert ask(sam, clock) == 1
    assert find("zebra")["zebra"].name == "zebra"
    with pytest.raises(CatalogueError, match=r"sam: A name has no space\."):
        find("bad name", "zebra")
    sam.refresh_from_db()
    assert sam.error == ""


def test_several_catalogues_each_have_to_say_that_there_is_none(sam, answers, clock):
    metacat = Catalogue.objects.create(name="metacat", kind="metacat", base_url="mc.example.org")
    answers["mc.example.org"] = Answers({"raw": exists("raw", files=1)})
    with pytest.raises(CatalogueError):
        find("raw", "none")
    ask(sam, clock)
    with pytest.raises(CatalogueError, match="none, raw are being looked up"):
        find("raw", "none")
    ask(metacat, clock)
    assert find("raw", "none") == {"raw": Dataset("raw", 1)}
    metacat.active = False
    metacat.save()
    assert find("raw") == {}


def test_name_that_a_catalogue_cannot_have_is_none_of_its_datasets(sam, answers, clock):
    answers[sam.base_url].error = base.BadName("“raw” is not a name of MetaCat.")
    with pytest.raises(CatalogueError):
        find("raw")
    assert ask(sam, clock) == 1
    assert find("raw") == {}


def test_worker_killed_while_it_asks_loses_nothing(sam, answers, clock):
    with pytest.raises(CatalogueError):
        find("raw")
    answers[sam.base_url].error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ask(sam, clock)
    answers[sam.base_url].error = None
    assert ask(sam, clock) == 0  # its claim lasts for minutes
    clock.at += 11 * MINUTE
    assert ask(sam, clock) == 1
    assert find("raw") == {}


@pytest.mark.django_db(transaction=True)
def test_second_worker_leaves_a_catalogue_alone_that_the_first_asks(sam, answers, monkeypatch):
    with pytest.raises(CatalogueError):
        find("raw", "more")
    other_asked = []

    def slowly(row, now):
        other_asked.append(row.name)
        other = threading.Thread(target=run_and_close)
        other.start()
        other.join(timeout=30)
        assert not other.is_alive()

    def run_and_close():
        try:
            tasks.look_up_in(catalogue_id=sam.pk)
        finally:
            connections.close_all()

    monkeypatch.setattr(tasks, "ask_catalogue", slowly)
    tasks.look_up_in(catalogue_id=sam.pk)
    assert other_asked == ["sam"]


def test_number_of_queries_does_not_grow_with_names(sam, clock):
    def queries(names):
        with pytest.raises(CatalogueError):
            find(*names)
        ask(sam, clock)
        with CaptureQueriesContext(connection) as captured:
            assert find(*names) == {}
        return len(captured)

    assert queries(["a"]) == queries([f"name-{number}" for number in range(50)]) <= 3


def test_names_that_no_dataset_can_have_are_not_looked_up(sam, clock):
    assert find("x" * 501, "a\0b", "") == {}
    assert not KnownDataset.objects.exists()
    with pytest.raises(CatalogueError):
        find("x" * 500)


def test_look_ups_that_wait_are_bounded(sam, clock, monkeypatch):
    monkeypatch.setattr(look_ups, "MOST_WAITING", 5)
    for number in range(10):
        with pytest.raises(CatalogueError):
            find(f"typed-{number}")
    assert KnownDataset.objects.count() == 5
    ask(sam, clock)
    with pytest.raises(CatalogueError):
        find("typed-9")
    ask(sam, clock)
    assert find("typed-9") == {}


def test_files_are_asked_for_now_without_those_withdrawn(sam, answers, db):
    answers[sam.base_url].datasets["raw"] = exists("raw")
    answers[sam.base_url].listed["raw"] = [
        base.CatalogueFile("one.root", runs=(7, 5)),
        base.CatalogueFile("two.root", runs=None),
        base.CatalogueFile("three.root", retired=True),
    ]
    catalogue = BackOfficeCatalogues()
    assert catalogue.files_of("raw") == [DataFile("one.root", 5), DataFile("two.root")]
    assert catalogue.files_of("none") == []
    answers[sam.base_url].error = base.TryLater("It is away.")
    with pytest.raises(CatalogueError, match=r"It is away\."):
        catalogue.files_of("raw")


def test_setting_names_the_catalogues_of_the_back_office(sam, clock, settings):
    settings.DATASET_CATALOGUE = "portal"
    assert find_datasets(["raw"]) == (None, "raw is being looked up. Check again in a minute.")
    ask(sam, clock)
    assert find_datasets(["raw"]) == ({}, "")
    assert listing_fault("portal") == ""
    assert not may_define("portal")
    Catalogue.objects.all().delete()
    assert find_datasets(["raw"])[1] == "No catalogue in the back office is active."
    assert "no address" in find_datasets_with(settings, "portal:x")


def find_datasets_with(settings, value):
    settings.DATASET_CATALOGUE = value
    return find_datasets(["raw"])[1]


def test_answers_that_nobody_needs_are_forgotten(sam, clock):
    with pytest.raises(CatalogueError):
        find("old", "used")
    ask(sam, clock)
    clock.at += KEPT - MINUTE
    KnownDataset.objects.filter(name="used").update(requested_at=clock.at)
    clock.at += 2 * MINUTE
    assert forget_datasets(at=clock.at) == 1
    assert KnownDataset.objects.get().name == "used"


class TestPages:
    def test_catalogue_is_entered_in_the_back_office(self, browse, admin, tmp_path):
        client = browse(admin)
        values = {"name": "files", "kind": "json", "active": "on", "options": "{}"}
        values |= {"base_url": str(tmp_path / "datasets.json"), "credential_file": ""}
        url = "/admin/datasets/catalogue/add/"
        wrong = client.post(url, values | {"options": '{"speed": "high"}'})
        assert "has no option “speed”" in wrong.content.decode()
        wrong = client.post(url, values | {"options": '["a"]'})
        assert "Enter an object" in wrong.content.decode()
        wrong = client.post(url, values | {"kind": "nothing"})
        assert "“nothing” is not a choice for “Kind”" in wrong.content.decode()
        assert not Catalogue.objects.exists()
        assert "Answered at" not in client.get(url).content.decode()
        assert client.post(url, values).status_code == 302
        row = Catalogue.objects.get()
        assert row.kind == "json"
        change = client.get(f"/admin/datasets/catalogue/{row.pk}/change/").content.decode()
        assert "Answered at" in change

    def test_health_page_says_which_catalogue_does_not_answer(self, browse, admin, sam):
        Catalogue.objects.update(error="The token <b> has expired.")
        page = browse(admin).get("/health/").content.decode()
        assert "Catalogues" in page
        assert "The token &lt;b&gt; has expired." in page
        Catalogue.objects.all().delete()
        assert "<h2>Catalogues</h2>" not in browse(admin).get("/health/").content.decode()
