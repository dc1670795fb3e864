import pytest

from tests.factories.requests import request_in


@pytest.fixture
def queued(nova, liaison, approver):
    """Put a request of NOvA into the queue."""

    def make(**changes):
        return request_in("queued", by=liaison, experiment=nova, approver=approver, **changes)

    return make
