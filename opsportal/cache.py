"""The portal's cache in Redis."""

from functools import cached_property

from django.core.cache.backends import redis
from django.core.cache.backends.redis import RedisCacheClient


class RedisCache(redis.RedisCache):
    """Retries once, immediately, so that no request waits for the pauses of the client."""

    @cached_property
    def _cache(self) -> RedisCacheClient:
        # Imported here, because many commands never use the cache.
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        one_retry = Retry(NoBackoff(), 1)
        servers = self._servers  # type: ignore[attr-defined]
        options = self._options  # type: ignore[attr-defined]
        client_class = self._class  # type: ignore[attr-defined]
        client: RedisCacheClient = client_class(servers, retry=one_retry, **options)
        return client
