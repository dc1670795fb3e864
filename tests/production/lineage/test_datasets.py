"""The catalogue in a file keeps the contract, and says what is wrong with the file."""

import json
import os

import pytest

from apps.production.domain.outputs.datasets import CatalogueError, FileCatalogue, catalogue_of
from tests.contracts.catalogue import FILES, HELD, CatalogueContract


def write(path, *rows) -> None:
    path.write_text(json.dumps({"datasets": rows}))


class TestFile(CatalogueContract):
    @pytest.fixture
    def catalogue(self, tmp_path):
        rows = [
            {name: value for name, value in vars(held).items() if value is not None}
            for held in HELD
        ]
        rows[0]["file_list"] = [vars(file) for file in FILES]
        content = {"datasets": rows, "definitions": "parts.json"}
        (tmp_path / "datasets.json").write_text(json.dumps(content))
        return FileCatalogue(str(tmp_path / "datasets.json"))


def test_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "datasets.json"
    write(path, {"name": "a", "events": 1})
    catalogue = catalogue_of(f"file:{path}")
    assert catalogue.find(["a"])["a"].events == 1
    write(path, {"name": "a", "events": 2})
    os.utime(path, ns=(1, 1))
    assert catalogue.find(["a"])["a"].events == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"datasets": 3}',
        '{"datasets": ["a"]}',
        '{"datasets": [{"events": 1}]}',
        "\xff",
    ]
    + [
        f'{{"datasets": [{{"name": "a", "events": {wrong}}}]}}'
        for wrong in ("-1", "1.5", '"1"', "true")
    ]
    + ['{"datasets": [{"name": 3}]}', '{"datasets": [{"name": "a", "file_list": [{"run": 1}]}]}'],
)
def test_broken_file_is_a_clear_fault(tmp_path, text):
    path = tmp_path / "datasets.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CatalogueError, match="not a catalogue"):
        FileCatalogue(str(path)).find(["a"])


def test_missing_file_and_unknown_plugin_are_clear_faults(tmp_path):
    with pytest.raises(CatalogueError, match="cannot be read"):
        FileCatalogue(str(tmp_path / "none.json")).find(["a"])
    with pytest.raises(CatalogueError, match="no plugin"):
        catalogue_of("sam:https://example.org")


def test_no_setting_is_no_catalogue():
    assert catalogue_of("") is None
