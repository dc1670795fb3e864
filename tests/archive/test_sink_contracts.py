"""The sinks that need no other server keep the contract of every sink."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from apps.archive.capture.entry import CapturedJob
from apps.archive.models import ArchivedJob
from apps.archive.selectors import read_blob
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
