"""One of everything, built once for the tests of a module: each begins with it,
and is rolled back to it.

A module imports all of these fixtures. Its tests must not commit.
"""

from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from apps.accounts.models import Experiment, User
from tests.factories import people
from tests.factories.requests import AT
from tests.factories.world import World, build


@dataclass
class SharedWorld:
    """The rows, as they were built, and the folder with the log of the job."""

    world: World
    dune: Experiment
    liaison: User
    approver: User
    shifter: User
    roots: Path


@pytest.fixture(scope="module")
def shared_world(django_db_setup, django_db_blocker, tmp_path_factory):
    roots = tmp_path_factory.mktemp("logs")
    with django_db_blocker.unblock(), transaction.atomic():
        nova, dune = people.nova(), people.dune()
        liaison = people.liaison_of(nova)
        approver = people.approver()
        shifter = people.shifter()
        with override_settings(LOG_ROOTS=[roots]):
            world = build(
                nova=nova, liaison=liaison, approver=approver, shifter=shifter, roots=roots, at=AT
            )
        yield SharedWorld(world, dune, liaison, approver, shifter, roots)
        transaction.set_rollback(True)


@pytest.fixture
def world(shared_world, db, settings):
    """See the fixture of this name in the root's conftest."""
    settings.LOG_ROOTS = [shared_world.roots]
    return deepcopy(shared_world.world)


@pytest.fixture
def nova(world):
    return world.nova


@pytest.fixture
def dune(shared_world, db):
    return deepcopy(shared_world.dune)


@pytest.fixture
def liaison(shared_world, db):
    return deepcopy(shared_world.liaison)


@pytest.fixture
def approver(shared_world, db):
    return deepcopy(shared_world.approver)


@pytest.fixture
def shifter(shared_world, db):
    return deepcopy(shared_world.shifter)


@pytest.fixture
def now(at, monkeypatch):
    """Let the home page be opened half an hour after the world's jobs ended."""
    monkeypatch.setattr(timezone, "now", lambda: at + timedelta(minutes=1))
