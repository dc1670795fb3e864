"""Results that pages share for a moment."""

import pytest
from django.core.cache import cache

from apps.core.short_cache import cached_for


@pytest.fixture
def calls():
    return []


@pytest.fixture
def make(calls):
    def count() -> int:
        calls.append(1)
        return len(calls) - 1

    return count


def test_a_result_is_kept_also_if_it_is_zero(make, calls):
    assert [cached_for(60, "test:short", make) for _ in range(2)] == [0, 0]
    assert len(calls) == 1
    cache.delete("test:short")
    assert cached_for(60, "test:short", make) == 1


def test_without_redis_it_is_made_each_time(make, monkeypatch):
    def fail(*args, **options):
        raise ConnectionError("Redis is down")

    monkeypatch.setattr(cache, "get", fail)
    monkeypatch.setattr(cache, "set", fail)
    assert [cached_for(60, "test:short", make) for _ in range(2)] == [0, 1]
