import pytest

from capture.journal.journal import Journal
from capture.watch import polling
from capture.watch.base import Watch
from tests.archive.conftest import portal, spool  # noqa: F401


@pytest.fixture(params=[Watch.INOTIFY, Watch.POLLING])
def watch(request, monkeypatch):
    """Each source of file events; a poll comes soon."""
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.02)
    return request.param


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    yield journal
    journal.close()
