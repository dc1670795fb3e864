"""What every catalogue of datasets must do.

Derive a test class from `CatalogueContract` and give it a fixture `catalogue` that has `HELD` and
nothing else.
"""

import pytest

from apps.production.domain.outputs.datasets import (
    CatalogueError,
    DataFile,
    Dataset,
    DatasetCatalogue,
    DefinesDatasets,
    ListsFiles,
)

HELD = (
    Dataset("nova.raw.2026", files=1200, events=24_000_000, size_bytes=6 * 10**12),
    Dataset("nova.raw.empty", files=0, events=0, size_bytes=0),
    Dataset("nova.raw.uncounted"),
)
#: The files of the first of them, for a catalogue that can list files.
FILES = [
    DataFile("raw_1001_01.root", 1001),
    DataFile("raw_1001_02.root", 1001),
    DataFile("odd name", None),
]


class CatalogueContract:
    def test_finds_what_it_has_and_leaves_out_the_rest(self, catalogue: DatasetCatalogue):
        datasets = catalogue.find(
            [held.name for held in HELD] + ["nova.raw", "NOVA.RAW.2026", "%", ""]
        )
        assert datasets == {held.name: held for held in HELD}

    def test_asked_for_nothing_it_finds_nothing(self, catalogue: DatasetCatalogue):
        assert catalogue.find([]) == {}

    def test_takes_many_names_at_once_and_strange_ones(self, catalogue: DatasetCatalogue):
        names = [f"no.such.{n}" for n in range(2000)] + ["'; --", "ü", "a\0b", "x" * 1000]
        assert catalogue.find(names) == {}

    def test_lists_files_if_it_can(self, catalogue: DatasetCatalogue):
        if not isinstance(catalogue, ListsFiles):
            pytest.skip("this catalogue lists no files")
        assert catalogue.files_of(HELD[0].name) == FILES
        assert catalogue.files_of(HELD[1].name) == []
        assert catalogue.files_of("no.such") == []

    def test_defines_datasets_if_it_may(self, catalogue: DatasetCatalogue):
        if not hasattr(catalogue, "define") or not catalogue.can_define():
            pytest.skip("this catalogue lets nobody define datasets")
        assert isinstance(catalogue, DefinesDatasets)
        names = [file.name for file in FILES]
        for name, part in (("nova.raw_part1of2", names[:1]), ("nova.raw_part2of2", names[1:])):
            for _ in range(2):  # once more changes nothing
                catalogue.define(name, HELD[0].name, part)
            assert [file.name for file in catalogue.files_of(name)] == part
            assert catalogue.files_of(name)[0].run == 1001
            assert catalogue.find([name])[name].files == len(part)
        with pytest.raises(CatalogueError, match="another dataset"):
            catalogue.define("nova.raw_part1of2", HELD[0].name, names)
        with pytest.raises(CatalogueError, match="no file"):
            catalogue.define("nova.raw_part3of2", HELD[0].name, ["elsewhere.root"])
        assert catalogue.find([held.name for held in HELD]) == {held.name: held for held in HELD}
