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
        servers = self._servers  # type: ignore[attr-defined]
        options = self._options  # type: ignore[attr-defined]
        client_class = self._class  # type: ignore[attr-defined]
        client: RedisCacheClient = client_class(servers, retry=one_retry, **options)
        return client
