"""The portal's cache in Redis."""

from functools import cached_property

from django.core.cache.backends import redis
from django.core.cache.backends.redis import RedisCacheClient


class RedisCache(redis.RedisCache):
    """Retries once, immediately: no request waits for the pauses that the client would make."""

    @cached_property
    def _cache(self) -> RedisCacheClient:
        from redis.backoff import NoBackoff  # here, as many commands never use the cache
        from redis.retry import Retry

        one_retry = Retry(NoBackoff(), 1)
        client: RedisCacheClient
        client = self._class(self._servers, retry=one_retry, **self._options)  # type: ignore[attr-defined]
        return client
