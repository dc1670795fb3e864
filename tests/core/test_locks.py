"""Advisory locks of a session."""

import gc

import pytest

from apps.core.domain.locks import exclusive_lock

pytestmark = pytest.mark.django_db


def test_lock_that_is_abandoned_executes_nothing_when_it_is_collected(
    django_assert_num_queries,
):
    """The session may be executing another statement at that moment."""
    with django_assert_num_queries(1):
        lock = exclusive_lock(1, 2)
        assert lock.__enter__()
        del lock
        gc.collect()
