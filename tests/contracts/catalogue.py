"""What every catalogue of datasets must do.

Derive a test class from `CatalogueContract` and give it a fixture `catalogue` that has `HELD` and nothing else.
"""

from apps.production.datasets import Dataset, DatasetCatalogue

HELD = (
    Dataset("nova.raw.2026", files=1200, events=24_000_000, size_bytes=6 * 10**12),
    Dataset("nova.raw.empty", files=0, events=0, size_bytes=0),
    Dataset("nova.raw.uncounted"),
)


class CatalogueContract:
    def test_finds_what_it_has_and_leaves_out_the_rest(self, catalogue: DatasetCatalogue):
        found = catalogue.find([held.name for held in HELD] + ["nova.raw", "NOVA.RAW.2026", "%", ""])
        assert found == {held.name: held for held in HELD}

    def test_asked_for_nothing_it_finds_nothing(self, catalogue: DatasetCatalogue):
        assert catalogue.find([]) == {}

    def test_takes_many_names_at_once_and_strange_ones(self, catalogue: DatasetCatalogue):
        names = [f"no.such.{n}" for n in range(2000)] + ["'; --", "ü", "a\0b", "x" * 1000]
        assert catalogue.find(names) == {}
