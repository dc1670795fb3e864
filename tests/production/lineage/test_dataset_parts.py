"""A split request's parts read datasets that the portal defines: each file in one, once,
whatever is killed.
"""

import json
from datetime import timedelta

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields
from apps.production.domain.lifecycle.moves import check_request, make_move, submit_request
from apps.production.domain.lineage import dataset_parts, links
from apps.production.domain.lineage.dataset_parts import define_parts
from apps.production.domain.lineage.splits import SplitUnit
from apps.production.domain.outputs.datasets import catalogue_of
from apps.production.enums import Verb
from apps.production.models import DatasetPart, Request
from apps.production.tasks import define_waiting
from tests.factories.requests import AT, draft, stage

FILES = [f"raw_{n}.root" for n in range(10)]


@pytest.fixture(autouse=True)
def today(monkeypatch):
    monkeypatch.setattr("django.utils.timezone.now", lambda: AT)


@pytest.fixture
def catalogue(tmp_path, settings):
    """Return a function that writes the catalogue."""

    def write(files=FILES, **more) -> None:
        raw = {
            "name": "nova.raw",
            "files": len(files) or 1,
            "file_list": [{"name": name} for name in files],
        }
        (tmp_path / "datasets.json").write_text(json.dumps({"datasets": [raw], **more}))

    settings.DATASET_CATALOGUE = f"file:{tmp_path}/datasets.json"
    write(definitions="parts.json")
    return write


@pytest.fixture
def whole(nova, liaison):
    stages = (
        stage("reco", input_dataset="nova.raw", events=1000, jobs=10),
        stage("calibration", input_dataset="nova.raw", events=1000, jobs=10),
    )
    return draft(liaison, nova, stages=stages)


def split(whole, by, size=400):
    wanted = Request.objects.get(pk=whole.pk)
    return links.split_request(
        request=wanted, by_what=SplitUnit.EVENTS, size=size, by=by, at=AT, reason="too large"
    )


def files_of(name: str, settings) -> list[str]:
    return [file.name for file in catalogue_of(settings.DATASET_CATALOGUE).files_of(name)]


def submit(part, by):
    return submit_request(request=Request.objects.get(pk=part.pk), by=by, at=AT)


def test_parts_pass_their_checks_without_hands(catalogue, whole, liaison, settings):
    parts = split(whole, liaison)
    with pytest.raises(InvalidFields, match="The portal will define it soon"):
        submit(parts[0], liaison)
    define_waiting()
    names = [f"nova.raw_part{n}of3" for n in (1, 2, 3)]
    found = [files_of(name, settings) for name in names]
    assert [len(files) for files in found] == [4, 4, 2]
    assert [file for files in found for file in files] == FILES
    for part in parts:
        assert check_request(request=submit(part, liaison), at=AT).state == "awaiting_approval"
    event = events_of(parts[2]).get(kind="request.dataset_defined")
    assert event.data == {"dataset": names[2], "whole": "nova.raw", "files": 2}
    assert define_parts(at=AT) == 0


def test_what_was_killed_goes_on_and_new_files_change_no_part(
    catalogue, whole, liaison, settings, monkeypatch
):
    split(whole, liaison)

    def killed(**kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dataset_parts, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            define_parts(at=AT)
    catalogue([*FILES, "raw_new.root", "raw_newer.root"], definitions="parts.json")
    assert define_parts(at=AT) == 3
    assert [name for n in (1, 2, 3) for name in files_of(f"nova.raw_part{n}of3", settings)] == FILES


def test_why_a_dataset_could_not_be_defined_is_told_and_tried_again(catalogue, whole, liaison):
    parts = split(whole, liaison)
    catalogue([], definitions="parts.json")
    assert define_parts(at=AT) == 0
    with pytest.raises(
        InvalidFields, match="could not define it yet: the catalogue lists too few files"
    ):
        submit(parts[0], liaison)
    catalogue(definitions="parts.json")
    assert define_parts(at=AT + timedelta(minutes=4)) == 0
    assert define_parts(at=AT + timedelta(minutes=6)) == 3


def test_nothing_is_defined_for_a_part_that_was_given_up(catalogue, whole, liaison):
    part, *_ = split(whole, liaison)
    make_move(verb=Verb.CANCEL, request=part, by=liaison, at=AT)
    assert define_parts(at=AT) == 2
    assert DatasetPart.objects.get(defined_at=None).request == part


def test_a_catalogue_that_does_not_let_the_portal_is_left_alone(catalogue, whole, liaison, browse):
    catalogue()
    data = {"by": "events", "size": 400, "reason": "too large"}
    page = browse(liaison).post(f"/requests/{whole.key}/split/", data).content.decode()
    assert "Define these datasets, or enter others" in page
    catalogue(definitions="../elsewhere.json")
    split(whole, liaison)
    assert not DatasetPart.objects.exists()


def test_the_page_says_that_the_portal_defines_them(catalogue, whole, liaison, browse):
    data = {"by": "events", "size": 400, "reason": "too large"}
    page = browse(liaison).post(f"/requests/{whole.key}/split/", data).content.decode()
    assert "The portal defines these datasets in the catalogue" in page
