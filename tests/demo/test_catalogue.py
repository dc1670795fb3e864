"""The dataset catalogue of the demo: its growing datasets only grow,
and nothing the demo reads is missing.
"""

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.demo.simulation.catalogue import write_catalogue
from apps.production.domain.outputs.datasets import FileCatalogue

NOW = 1_795_000_000
DAY = 86_400


@settings(max_examples=30)
@given(moments=st.lists(st.integers(NOW, NOW + 3 * DAY), min_size=2, max_size=5).map(sorted))
def test_growing_dataset_keeps_its_files_and_adds_new_ones(tmp_path_factory, moments):
    path = tmp_path_factory.mktemp("catalogue") / "datasets.json"
    listings = []
    for moment in moments:
        write_catalogue(path, moment)
        listings.append(
            [file.name for file in FileCatalogue(str(path)).files_of("protodune_raw_2026")]
        )
    assert len(set(listings[-1])) == len(listings[-1])
    for (earlier, later), (before, after) in zip(
        pairwise(listings), pairwise(moments), strict=True
    ):
        assert later[: len(earlier)] == earlier
        assert len(later) - len(earlier) == after // 600 - before // 600


def test_catalogue_of_an_old_demo_stays_small(tmp_path):
    path = tmp_path / "datasets.json"
    write_catalogue(path, NOW)
    write_catalogue(path, NOW + 400 * DAY)
    assert len(FileCatalogue(str(path)).files_of("protodune_raw_2026")) == 30 * 24 * 6
    write_catalogue(path, NOW + 400 * DAY)
    assert [file.name for file in tmp_path.iterdir()] == ["datasets.json"]
    assert json.loads(path.read_text())["since"] > NOW
