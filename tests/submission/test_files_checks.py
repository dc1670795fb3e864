"""What keeps a queued request with files back: workers ask the catalogue, pages show its answer."""

from datetime import timedelta

import pytest

from apps.production.domain.outlook import read_outlook
from apps.production.models import Request
from apps.submission.domain.dispatch.start import automatic_start_of, find_obstacle, start_next
from apps.submission.models import FilesCheck
from tests.factories.requests import AT

MINUTE = timedelta(minutes=1)


@pytest.fixture
def queued(reading, catalogue):
    """Return a queued request whose four jobs read a dataset of two files: too few."""
    catalogue("raw_0.root", "raw_1.root")
    return reading()


def test_pages_ask_no_catalogue(client, liaison, queued, cluster, tmp_path):
    # Whoever asks now would see that there is no catalogue.
    (tmp_path / "datasets.json").unlink()
    client.force_login(liaison)
    page = client.get(f"/submissions/{queued.key}/").content.decode()
    assert "Starts automatically on" in page
    assert "The catalogue was asked" not in page
    assert not FilesCheck.objects.exists()


def test_worker_stores_what_it_learned_and_the_page_shows_its_age(
    client, liaison, queued, cluster, tmp_path
):
    assert start_next(cluster=cluster, at=AT) is None
    check = FilesCheck.objects.get()
    assert (check.request, check.checked_at) == (queued, AT)
    assert check.error
    (tmp_path / "datasets.json").unlink()
    client.force_login(liaison)
    page = client.get(f"/submissions/{queued.key}/").content.decode()
    assert "Not starting now:" in page
    assert "The catalogue was asked for its input files" in page
    queued.refresh_from_db()
    start = automatic_start_of(queued, AT)
    assert (start.obstacle, start.files_checked_at) == (check.error, AT)


def test_request_starts_once_its_files_are_there(queued, cluster, catalogue):
    assert start_next(cluster=cluster, at=AT) is None
    catalogue(*[f"raw_{number}.root" for number in range(10)])
    assert start_next(cluster=cluster, at=AT + MINUTE) == queued
    assert FilesCheck.objects.get().error == ""


def test_unchanged_answer_is_noted_every_minute(queued, cluster):
    for seconds, noted in ((0, 0), (30, 0), (61, 61)):
        start_next(cluster=cluster, at=AT + timedelta(seconds=seconds))
        assert FilesCheck.objects.get().checked_at == AT + timedelta(seconds=noted)


def test_answer_about_an_earlier_version_does_not_count(queued, cluster):
    start_next(cluster=cluster, at=AT)
    assert find_obstacle(Request.objects.get(pk=queued.pk), cluster, read_outlook(AT))
    Request.objects.filter(pk=queued.pk).update(version=queued.version + 1)
    changed = Request.objects.get(pk=queued.pk)
    assert find_obstacle(changed, cluster, read_outlook(AT)) == ""
    assert automatic_start_of(changed, AT).files_checked_at is None
