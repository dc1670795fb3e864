from importlib.metadata import EntryPoint

import pytest

from apps.clusters.schedulers.registry import SCHEDULERS
from tests.factories import clusters
from tests.jobs.planned import Planned


@pytest.fixture
def planned(monkeypatch):
    """The scheduler whose accounting the test writes, known to the registry."""
    monkeypatch.setitem(
        SCHEDULERS._found,
        "planned",
        EntryPoint("planned", "tests.jobs.planned:Planned", SCHEDULERS.group),
    )
    for name, value in {"records": [], "asked": [], "fault": None, "fault_after": 0}.items():
        monkeypatch.setattr(Planned, name, value)
    return Planned


@pytest.fixture
def alps(db, planned):
    return clusters.cluster("alps", "planned")


@pytest.fixture
def jura(db, planned):
    return clusters.cluster("jura", "planned")
