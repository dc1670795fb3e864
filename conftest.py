"""Fixtures that every test may use."""

import gc
import secrets
import sys
from datetime import UTC, datetime

import pytest
import pytest_rerunfailures
from _pytest import runner
from _pytest.unraisableexception import gc_collect_iterations_key
from django.db.models.expressions import Col
from django.test import Client
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from rest_framework.test import APIClient

from apps.core.domain.background import celery_app
from tests.factories import people
from tests.frames import call_with_large_frame

# Rewriting the modules of the tests takes a process nine seconds of CPU. So they are kept, also
# where the environment says not to write bytecode.
sys.dont_write_bytecode = False

# Python looks for garbage after each 700 new objects. With memory to spare, less often saves a
# twentieth of the time.
gc.set_threshold(20_000, 10, 10)

# pytest-rerunfailures asks its server three questions a test, byte by byte: a fiftieth of the time.
# Their answers matter to a test whose process dies, and that shall fail at once.
pytest_rerunfailures.ClientStatusDB.set_test_reruns = lambda *_: None
pytest_rerunfailures.ClientStatusDB.get_test_failures = lambda *_: 0
pytest_rerunfailures.ClientStatusDB.get_suite_reruns = lambda *_: 0

# Django finds the hash of a column by binding the arguments of its constructor. A query with an
# order needs that of each column it selects: a thirtieth of the time of tests of the database.
Col.__hash__ = lambda column: hash((column.alias, column.target.column))


def pytest_configure(config):
    """Set what makes tests quick or self-contained: cheap password hashes,
    static files without collecting them.

    No example of Hypothesis has a time limit, as it does itself where it finds `CI` in the
    environment.
    """
    from django.conf import settings

    hypothesis_settings.register_profile(
        "unhurried",
        hypothesis_settings.default,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    hypothesis_settings.load_profile("unhurried")
    # At its end, pytest collects garbage twice, for warnings that `pyproject.toml` ignores.
    config.stash[gc_collect_iterations_key] = 0
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    settings.WHITENOISE_AUTOREFRESH = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Run each test, with its fixtures, as pytest does, in memory that holds all its frames; with
    `--reruns`, as the plugin does that repeats a failed one.
    """
    repeats = item.config.getoption("reruns") is not None
    protocol = pytest_rerunfailures if repeats else runner
    return call_with_large_frame(protocol.pytest_runtest_protocol, item, nextitem)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Start slow tests first, so that at the end no process waits for the last of them.

    Groups of pytest-xdist start before single tests.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    """Keep what is loaded and collected by now out of each collection of garbage:
    a sixth of the processor's time.

    The web server loads the Celery application before its first request, too: threads that use it
    while another still makes it find half of it.
    """
    celery_app()
    gc.collect()
    gc.freeze()


@pytest.fixture
def at() -> datetime:
    """A fixed moment, aware."""
    return datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def nova(db):
    return people.nova()


@pytest.fixture
def dune(db):
    return people.dune()


@pytest.fixture
def liaison(nova):
    """A liaison of NOvA."""
    return people.liaison_of(nova)


@pytest.fixture
def other_liaison(dune):
    """A liaison of DUNE, who must see nothing of NOvA's."""
    return people.liaison_of(dune)


@pytest.fixture
def approver(db):
    return people.approver()


@pytest.fixture
def second_approver(db):
    return people.person("opg-two", ("approver", None))


@pytest.fixture
def shifter(db):
    return people.shifter()


@pytest.fixture
def admin(db):
    return people.person("admin-one", ("admin", None))


@pytest.fixture
def replace_key(settings):
    """Return a function that replaces `SECRET_KEY`, and keeps the former one valid or not."""
    former = settings.SECRET_KEY

    def replace(*, keep: bool) -> None:
        settings.SECRET_KEY = secrets.token_urlsafe(50)
        settings.SECRET_KEY_FALLBACKS = [former] if keep else []

    return replace


@pytest.fixture
def browse():
    """Return a client that is logged in as this person."""

    def login(user) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return login


@pytest.fixture
def api():
    """Return an API client that is this person's."""

    def login(user) -> APIClient:
        client = APIClient()
        client.force_authenticate(user)
        client.credentials(
            HTTP_AUTHORIZATION="Bearer of-the-test"
        )  # which the middleware looks for
        return client

    return login


@pytest.fixture
def world(nova, dune, liaison, approver, shifter, at, tmp_path, settings):
    """One of everything, of NOvA; see `tests/factories/world.py`."""
    from tests.factories import world

    settings.LOG_ROOTS = [tmp_path]
    return world.build(
        nova=nova, liaison=liaison, approver=approver, shifter=shifter, roots=tmp_path, at=at
    )
