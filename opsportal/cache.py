"""The portal's cache in Redis."""

from functools import cached_property
from typing import Any

from django.core.cache.backends import redis
from django.core.cache.backends.redis import RedisCacheClient

from opsportal.servers import redis_pool


class Client(RedisCacheClient):
    """Connects to the server, or to the primary of the service, that `REDIS_URL` names."""

    _pools: dict[int, Any]
    _servers: list[str]
    _pool_options: dict[str, Any]

    def _get_connection_pool(self, write: bool) -> Any:
        if 0 not in self._pools:
            self._pools[0] = redis_pool(self._servers[0], **self._pool_options)
        return self._pools[0]


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
        return Client(servers, retry=one_retry, **options)
