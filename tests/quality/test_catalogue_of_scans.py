"""The catalogue is asked for the datasets of each point of a parameter scan."""

import json

import pytest

from apps.quality.checks.facts import Catalogued
from apps.quality.domain.facts import ask_catalogue
from tests.factories import requests


@pytest.mark.django_db
def test_the_catalogue_is_summed_over_points(liaison, nova, settings, tmp_path):
    known = [
        {"name": f"mc_{energy}", "files": 5, "events": events}
        for energy, events in ((1, 100), (2, 50))
    ]
    path = tmp_path / "datasets.json"
    path.write_text(json.dumps({"datasets": known}))
    settings.DATASET_CATALOGUE = f"file:{path}"
    stages = (
        requests.stage("one", output_dataset="mc_{energy}"),
        requests.stage("two", output_dataset="no_{energy}"),
    )
    request = requests.draft(liaison, nova, scan="energy = 1, 2", stages=stages)
    found, error = ask_catalogue(request)
    assert error == ""
    assert found == {"mc_{energy}": Catalogued(name="mc_{energy}", files=10, events=150)}
