"""Equal copies of output files that do not count: which there are, and their downloads."""

import csv
import io
import json

import pytest

from apps.datasets.domain import copies
from apps.datasets.domain.copies import equal_copies
from apps.datasets.models import OutputFile
from apps.production.enums import RequestState
from tests.factories.requests import AT, request_in, stage


@pytest.fixture
def reco(liaison, nova, approver):
    """Return a stage with output files: of each number the first counts."""
    request = request_in(
        RequestState.RUNNING,
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("reco"),),
    )
    reco = request.stages.get()
    for name, number, key, counts, changes in [
        ("a", 0, "1_0", True, {}),
        ("a", 0, "2_0", False, {}),  # the same name
        ("a_again", 0, "3_0", False, {}),
        ("b", 1, "1_1", True, {}),
        ("b_other_sum", 1, "2_1", False, {"checksum": "adler32:2"}),
        ("b_other_size", 1, "3_1", False, {"size_bytes": 6}),
        ("b_no_sum", 1, "4_1", False, {"checksum": ""}),
        ("c_of_failed_job", 2, "1_2", False, {}),
        ("unknown_job", None, "9", False, {}),
    ]:
        values = {"size_bytes": 5, "checksum": "adler32:1"} | changes
        OutputFile.objects.create(
            stage=reco, key=key, name=name, number=number, counts=counts, at=AT, by="x", **values
        )
    return reco


def found(reco):
    rows = []
    for equal in equal_copies(reco):
        rows.append((equal.copy.name, equal.copy.key, equal.counting.key, equal.is_name_in_use))
    return rows


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_only_equal_copies_of_what_counts(reco, monkeypatch, batch):
    monkeypatch.setattr(copies, "_BATCH", batch)
    assert found(reco) == [("a", "2_0", "1_0", True), ("a_again", "3_0", "1_0", False)]


def test_copy_that_counts_now_is_no_copy(reco):
    OutputFile.objects.filter(number=0).update(counts=False)
    OutputFile.objects.filter(name="a_again").update(counts=True)
    assert found(reco) == [("a", "1_0", "3_0", False), ("a", "2_0", "3_0", False)]


def test_downloads(client, reco, liaison, other_liaison):
    url = f"/submissions/{reco.request.key}/files/download/"
    client.force_login(liaison)
    query = {"stage": 1, "what": "copies"}
    text = b"".join(client.get(url, query).streaming_content).decode()
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["name"], first["is_name_in_use"]) == ("a", "True")
    assert second == {
        "name": "a_again",
        "job_id": "3_0",
        "size_bytes": "5",
        "checksum": "adler32:1",
        "counting_name": "a",
        "counting_job_id": "1_0",
        "is_name_in_use": "False",
    }
    listed = json.loads(b"".join(client.get(url, {**query, "format": "json"}).streaming_content))
    assert [row["is_name_in_use"] for row in listed] == [True, False]
    assert client.get(url, {**query, "format": "sam"}).status_code == 404
    client.force_login(other_liaison)
    assert client.get(url, query).status_code == 404
