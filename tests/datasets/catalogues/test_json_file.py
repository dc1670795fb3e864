"""The catalogue in a JSON file keeps the contract of every catalogue of files."""

import json
from pathlib import Path

import pytest

from apps.datasets.catalogues.base import (
    CatalogueConfiguration,
    CatalogueFile,
    MakesDatasets,
    Refused,
    Unclear,
)
from apps.datasets.catalogues.registry import open_catalogue
from tests.contracts.file_catalogue import TRUTH, FileCatalogueContract, Harness, TrueFile


class JSONHarness(Harness):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.path = directory / "datasets.json"
        self.write(extra=0)

    def write(self, extra: int) -> None:
        datasets = []
        for name, files in TRUTH.items():
            file_list = [{"name": file.name, "run": file.run} for file in files]
            datasets.append(
                {
                    "name": name,
                    "files": len(files) + extra,
                    "events": sum(file.events for file in files),
                    "size_bytes": sum(file.size for file in files),
                    "file_list": file_list,
                }
            )
        content = {"datasets": datasets, "definitions": "parts.json"}
        self.path.write_text(json.dumps(content))

    def catalogue(self, **options: str):
        return open_catalogue("json", CatalogueConfiguration(str(self.path), options=options))

    def expected(self, file: TrueFile) -> CatalogueFile:
        return CatalogueFile(file.name, runs=(file.run,))

    def miscount(self) -> None:
        self.write(extra=1)


class TestJSONFile(FileCatalogueContract):
    @pytest.fixture
    def harness(self, tmp_path) -> Harness:
        return JSONHarness(tmp_path)


def catalogue_of(path: Path, content: str):
    path.write_text(content)
    return open_catalogue("json", CatalogueConfiguration(str(path)))


def test_a_dataset_without_a_list_is_not_empty(tmp_path):
    content = json.dumps({"datasets": [{"name": "counted", "files": 7}, {"name": "uncounted"}]})
    catalogue = catalogue_of(tmp_path / "datasets.json", content)
    assert catalogue.describe("counted").files == 7
    assert catalogue.describe("uncounted").files is None
    for name in ("counted", "uncounted"):
        with pytest.raises(Refused, match="does not list"):
            list(catalogue.files(name))


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"datasets": [{"name": 1}]}', "<html>"])
def test_a_bad_file_is_unclear(tmp_path, content):
    catalogue = catalogue_of(tmp_path / "datasets.json", content)
    for call in (catalogue.describe, catalogue.files, lambda name: catalogue.existing([name])):
        with pytest.raises(Unclear):
            call("run4711")


def test_a_missing_file_is_unclear(tmp_path):
    catalogue = open_catalogue("json", CatalogueConfiguration(str(tmp_path / "none.json")))
    with pytest.raises(Unclear, match=r"none\.json"):
        catalogue.describe("run4711")


def test_makes_datasets_once(tmp_path):
    catalogue = JSONHarness(tmp_path).catalogue()
    assert isinstance(catalogue, MakesDatasets)
    files = [file.name for file in TRUTH["run4711"][:2]]
    for _ in range(2):
        catalogue.make_dataset(
            name="recovery_314", files=files, source="run4711", description="missing"
        )
    assert [file.name for file in catalogue.files("recovery_314")] == files
    with pytest.raises(Refused, match="differ"):
        catalogue.make_dataset(
            name="recovery_314", files=files[:1], source="run4711", description="missing"
        )
    with pytest.raises(Refused, match="no file"):
        catalogue.make_dataset(
            name="other", files=["no_such"], source="run4711", description="missing"
        )


def test_an_unknown_kind_is_refused():
    with pytest.raises(Refused, match="json"):
        open_catalogue("no-such-kind", CatalogueConfiguration("https://example.org"))


def test_a_json_file_takes_no_credential(tmp_path):
    configuration = CatalogueConfiguration(str(tmp_path / "datasets.json"), "/etc/token")
    with pytest.raises(Refused, match="credential"):
        open_catalogue("json", configuration)
