"""The options `log_owners` and `check_log_rights` of a cluster:
refused with a clear message before it is used.
"""

import pytest
from django.core.exceptions import ValidationError

from apps.clusters.models import Cluster


@pytest.mark.parametrize(
    "owners", ["", "prodsvc", "prodsvc, 4711", "svc-nova, svc.dune,0", "host$", ","]
)
def test_accounts_and_uids_are_taken(owners):
    Cluster(
        name="alps", scheduler="slurm", options={"log_owners": owners, "bin": "/opt/slurm/bin"}
    ).clean()


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        (["prodsvc"], "log_owners: write text with account names or uids"),
        (4711, "log_owners: write text with account names or uids"),
        ("prod svc", "“prod svc” is no account. Write account names or uids separated by commas"),
        ("prodsvc; root", "is no account"),
        ("prodsvc, -1", "“-1” is no account"),
        ("99999999999", "99999999999 is no uid"),
    ],
)
def test_anything_else_is_refused_beside_the_field(owners, message):
    with pytest.raises(ValidationError) as error:
        Cluster(name="alps", scheduler="slurm", options={"log_owners": owners}).clean()
    assert message in error.value.message_dict["options"][0]


def test_options_are_an_object():
    with pytest.raises(ValidationError) as error:
        Cluster(name="alps", scheduler="slurm", options=["log_owners"]).clean()
    assert "Write an object" in error.value.message_dict["options"][0]


@pytest.mark.parametrize("value", ["true", 1, None, "no"])
def test_check_of_rights_is_true_or_false(value):
    with pytest.raises(ValidationError) as error:
        Cluster(name="alps", scheduler="slurm", options={"check_log_rights": value}).clean()
    assert error.value.message_dict["options"] == ["check_log_rights: write true or false."]
    Cluster(name="alps", scheduler="slurm", options={"check_log_rights": True}).clean()
