"""Values of earlier requests that the form offers while one types."""

import pytest

from tests.factories.requests import request_in, stage

KNOWN = "/requests/known/?kind="


@pytest.fixture
def earlier(nova, dune, liaison, other_liaison, approver):
    stages = (
        stage("generation", release="v09_71"),
        stage("reco", release="v09_73", input_dataset="nova.mc.sim"),
    )
    request_in("submitted", by=liaison, experiment=nova, approver=approver, stages=stages)
    secret = (stage("secret", release="v99", output_dataset="dune.secret"),)
    request_in("submitted", by=other_liaison, experiment=dune, approver=approver, stages=secret)


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ("release", ["v09_73", "v09_71"]),
        ("release&text=71", ["v09_71"]),
        ("configuration&text=RECO", ["reco.fcl"]),
        ("dataset&text=nova.mc", ["nova.mc.sim", "nova.mc.reco", "nova.mc.generation"]),
        ("dataset&text=secret", []),
    ],
)
def test_values_are_those_of_ones_experiments_the_last_first(
    asked, values, earlier, liaison, browse
):
    found = browse(liaison).get(f"{KNOWN}{asked}").json()["values"]
    assert sorted(found) == sorted(values)
    assert found[:1] == values[:1] or "dataset" in asked


def test_values_are_for_liaisons_of_their_experiments(
    earlier, liaison, other_liaison, shifter, client, browse
):
    assert browse(other_liaison).get(f"{KNOWN}release").json()["values"] == ["v99"]
    assert browse(shifter).get(f"{KNOWN}release").json()["values"] == []
    assert browse(liaison).get(f"{KNOWN}password").json()["values"] == []
    assert client.get(f"{KNOWN}release").status_code == 302
