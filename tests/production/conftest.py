import pytest

from apps.statusboard.models import Service
from tests.factories.people import person
from tests.factories.requests import AT


@pytest.fixture(autouse=True)
def today(monkeypatch):
    """The edges' clock stands at the moment in which the tests' requests are written."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: AT)


@pytest.fixture
def both(nova):
    """Somebody who is a liaison of NOvA and an approver."""
    return person("two-hats", ("liaison", nova), ("approver", None))


@pytest.fixture
def samweb(db):
    return Service.objects.create(slug="samweb", name="SAM web")
