"""Redis or Valkey: reachable, safe for messages, of a supported version, with the same clock."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from redis import Redis, RedisError

from apps.portal.pages.doctor.clock import clock_finding
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning
from apps.portal.pages.doctor.support import REDIS, VALKEY, version_finding
from opsportal.servers import redis_client

#: Share of its memory that a broker may use before it is nearly full.
FULL_SHARE = 0.9


def check_broker(at: datetime) -> Iterator[DoctorFinding]:
    """Check that Redis answers and keeps what it is given."""
    try:
        with closing(_client()) as client:
            figures: Mapping[str, Any] = client.info()
    except (RedisError, OSError, ValueError) as error:
        yield problem(
            "Redis",
            f"does not answer: {type(error).__name__}: {error}",
            "Start it (`systemctl start redis-server`), or correct REDIS_URL.",
        )
        return
    if figures.get("role") == "slave":
        yield problem(
            "Redis", "a replica, which accepts no changes", "Let REDIS_URL name the primary server."
        )
        return
    yield ok("Redis", "answers")
    program = VALKEY if "valkey_version" in figures else REDIS
    version = figures.get("valkey_version") or figures["redis_version"]
    parts = [int(part) for part in str(version).split(".")]
    yield version_finding(program, parts)
    yield _eviction(figures)
    yield _persistence(figures)


def check_clock(at: datetime) -> Iterator[DoctorFinding]:
    """Compare the clock of this host with the clock of Redis."""
    with closing(_client()) as client:
        before = datetime.now(UTC)
        seconds, microseconds = client.time()
        after = datetime.now(UTC)
    theirs = datetime.fromtimestamp(seconds + microseconds / 1_000_000, UTC)
    yield clock_finding("Redis", theirs=theirs, before=before, after=after)


def _client() -> Redis:
    return redis_client(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=5)


def _eviction(figures: Mapping[str, Any]) -> DoctorFinding:
    name = "memory of Redis"
    policy = figures.get("maxmemory_policy", "noeviction")
    limit_bytes = figures.get("maxmemory", 0)
    if policy != "noeviction":
        judge = problem if limit_bytes else warning
        return judge(
            name,
            f"maxmemory-policy is {policy}: messages can be evicted, and their tasks are lost",
            "Set `maxmemory-policy noeviction` in redis.conf and restart Redis.",
        )
    used_bytes = figures.get("used_memory", 0)
    if limit_bytes and used_bytes > FULL_SHARE * limit_bytes:
        return warning(
            name,
            f"{used_bytes / limit_bytes:.0%} of maxmemory is used",
            "Raise `maxmemory` in redis.conf, or start the workers that take the messages.",
        )
    return ok(name, f"noeviction, {used_bytes / 1_000_000:.0f} MB used")


def _persistence(figures: Mapping[str, Any]) -> DoctorFinding:
    name = "disk of Redis"
    statuses = (figures.get("rdb_last_bgsave_status"), figures.get("aof_last_write_status"))
    if "err" in statuses:
        return problem(
            name, "Redis cannot write to its disk", "Free space on its disk, and read Redis' log."
        )
    if not figures.get("aof_enabled"):
        return warning(
            name,
            "messages do not survive a crash of Redis",
            "Set `appendonly yes` in redis.conf and restart Redis.",
        )
    return ok(name, "messages survive a crash")
