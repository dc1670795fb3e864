"""The sinks that need no other server keep the contract of every sink."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.db import connection

from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from capture.wire.entry import CapturedJob
from tests.contracts.sink import BYTES, FACTS, Harness, SinkContract, a_job


class StoreHarness:
    url = other_url = "store:"  # there is only one
    keeps = (*BYTES, *FACTS)
    bad_job = a_job("9" * 65)

    def kept(self) -> list[CapturedJob]:
        rows = ArchivedJob.objects.select_related("cluster", "script", "environment", "description")
        return [_job(row) for row in rows]

    @contextmanager
    def away(self) -> Iterator[None]:
        before = connection.settings_dict["HOST"]
        connection.close()
        connection.settings_dict["HOST"] = "/nonexistent"
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["HOST"] = before


def _job(row: ArchivedJob) -> CapturedJob:
    return CapturedJob(
        cluster=row.cluster.name,
        scheduler=row.cluster.scheduler,
        job_id=row.job_id,
        submitted_at=row.submitted_at,
        script=read_blob(row.script),
        environment=read_blob(row.environment),
        description=read_blob(row.description) if row.description else b"",
        masked_names=tuple(row.masked_names),
        **{name: getattr(row, name) for name in FACTS if name != "masked_names"},
    )


class TestStore(SinkContract):
    @pytest.fixture
    def harness(self, transactional_db) -> Harness:
        return StoreHarness()


class FilesHarness:
    """Reads the tree by the names that are documented, as a tool of somebody else would."""

    keeps = BYTES
    bad_job = a_job("9" * 250)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"files://{directory}?period=daily"
        self.other_url = f"files://{directory}?period=yearly"

    def kept(self) -> list[CapturedJob]:
        return [_job_of(script) for script in self.directory.glob("*/*/job.*_script")]

    @contextmanager
    def away(self) -> Iterator[None]:
        """Put a file in the place of the directory."""
        aside = self.directory.with_name("aside")
        there = self.directory.exists()
        if there:
            self.directory.rename(aside)
        self.directory.write_text("no directory")
        yield
        self.directory.unlink()
        if there:
            aside.rename(self.directory)


def _job_of(script: Path) -> CapturedJob:
    start = script.name.removesuffix("_script")
    description = script.with_name(f"{start}_description")
    submitted = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=script.stat().st_mtime_ns // 1000
    )
    assert script.parent.name == f"{submitted:%Y%m%d}"
    return CapturedJob(
        cluster=script.parent.parent.name,
        scheduler="",
        job_id=unquote(start.removeprefix("job.").partition("~")[0]),
        submitted_at=submitted,
        captured_at=submitted,
        script=script.read_bytes(),
        environment=script.with_name(f"{start}_environment").read_bytes(),
        description=description.read_bytes() if description.exists() else b"",
    )


class TestFiles(SinkContract):
    @pytest.fixture
    def harness(self, tmp_path) -> Harness:
        return FilesHarness(tmp_path / "archive")
