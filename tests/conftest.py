"""Fixtures for every test: the database, and parts of the system for the tests of their mark."""

import fcntl
import os
import sys
from pathlib import Path

import pytest
from django.contrib import admin as back_office
from django.db import connection
from django.test import Client, TransactionTestCase

from apps.core.domain import quotas
from tests.database import copy_rows, restore_rows
from tests.programs.elasticsearch_server import elasticsearch
from tests.programs.kafka_server import kafka
from tests.programs.s3_server import s3
from tests.programs.slurm_server import slurm
from tests.servers import OURS
from tests.sessions import open_session

__all__ = ["elasticsearch", "kafka", "s3", "slurm"]


@pytest.fixture(autouse=True, scope="session")
def patience():
    """A busy machine may need longer to compile the catalogue of known errors than a page waits
    for its marks.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apps.diagnosis.domain.known_errors.current.PAGE_SECONDS", 30.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def short_logins():
    """Log clients in without the queries of a login, which take a fortieth of the time of tests of
    pages.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "force_login", open_session)
        yield


@pytest.fixture(autouse=True, scope="session")
def short_back_office():
    """Leave the list of all models out of pages of the back office, most of the time of a page.

    `tests/production/test_admin_lists.py` opens the lists with it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(back_office.site, "enable_nav_sidebar", False)
        yield


@pytest.fixture(autouse=True)
def counted_quotas():
    """Count quotas again after a test in which the cache failed."""
    quotas._Pause.until = 0.0


@pytest.fixture(autouse=True)
def no_known_errors_of_other_tests():
    """A process keeps the patterns of a version of the catalogue,
    whose number is given again after a rollback.
    """
    if module := sys.modules.get("apps.diagnosis.domain.known_errors.current"):
        module._patterns = ("", ())


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb):
    """Leave the databases of a server that goes with the run: to drop each takes seconds."""
    return django_db_keepdb or OURS in os.environ


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings, django_db_blocker):
    """The first worker migrates a database, and all copy it:
    to migrate takes each of them four seconds of CPU.
    """
    base = os.environ.get(OURS, "")
    is_ours = base and Path(base).name in os.environ["DATABASE_URL"]
    if is_ours and "PYTEST_XDIST_WORKER" in os.environ:
        options, own = connection.settings_dict["TEST"], connection.settings_dict["TEST"]["NAME"]
        made = Path(base) / "template"
        with (Path(base) / "template.lock").open("w") as lock, django_db_blocker.unblock():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                options["NAME"], name = "migrated", connection.settings_dict["NAME"]
                connection.creation.create_test_db(verbosity=0, serialize=False)
                connection.close()
                connection.settings_dict["NAME"], options["NAME"] = name, own
                made.touch()
        options["TEMPLATE"] = "migrated"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """After a test that commits, restore the rows instead of flushing the database."""
    with django_db_blocker.unblock():
        rows = copy_rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: restore_rows(rows))
        yield
