"""The servers that `DATABASE_URL` and `REDIS_URL` name: one, or several of which one is in charge.

PostgreSQL's driver finds the primary among several hosts. Redis' driver asks Sentinels, which watch
a service, for its primary. Drivers are imported late: a process that only checks its settings needs
none.
"""

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

if TYPE_CHECKING:
    from redis import ConnectionPool, Redis

POSTGRESQL_SCHEMES = ("postgresql", "postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix", "sentinel", "sentinels")
SENTINEL_SCHEMES = ("sentinel", "sentinels")
#: What a URL `sentinels://…` may have besides its service, as redis-py names it.
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
SENTINEL_PORT = 26_379
POSTGRESQL_PORT = 5_432

#: A host that is gone, or cut off, is noticed within 14 s: 5 s of silence and 3 probes each 3 s, or
#: 10 s after bytes that it does not acknowledge.
SILENT_SECONDS = 5
PROBE_SECONDS = 3
PROBES = 3
UNACKNOWLEDGED_MS = 10_000
#: Seconds until a connection to PostgreSQL fails, for each of its hosts.
CONNECT_SECONDS = 5
CONNECT_SECONDS_OF_SEVERAL = 3

#: The server has a certificate for its name or address, which an authority has signed.
VERIFIED = {"ssl_cert_reqs": "required"}

_NOT_A_URL = "is not a URL: encode special characters in user and password, such as %40 for @"
_IPV6 = "has an IPv6 address among several hosts: give its name"
_SENTINEL_EXAMPLE = "sentinel://HOST:26379,HOST2:26379/0?service=NAME"


def split_hosts(hosts: str, default_port: int) -> list[tuple[str, int]]:
    """Return names and ports of `HOST:PORT,HOST2:PORT`. Raises `ValueError`."""
    servers = []
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            port = parts.port
        except ValueError:
            # The message of the error contains a part of the value.
            raise ValueError(_NOT_A_URL) from None
        if not parts.hostname:
            raise ValueError("has an empty name among its hosts")
        if ":" in parts.hostname and "," in hosts:
            raise ValueError(_IPV6)
        servers.append((parts.hostname, default_port if port is None else port))
    return servers


def _split_netloc(url: str) -> tuple[str, str]:
    """Return user and password with `@`, if there are any, and the hosts. Raises `ValueError`."""
    try:
        netloc = urlsplit(url).netloc
    except ValueError:
        if ",[" in url:
            raise ValueError(_IPV6) from None
        raise ValueError(_NOT_A_URL) from None
    credentials, at, hosts = netloc.rpartition("@")
    return credentials + at, hosts


def _check_scheme(url: str, schemes: tuple[str, ...]) -> None:
    if url.partition("://")[0] not in schemes:
        raise ValueError(f"must begin with {' or '.join(scheme + '://' for scheme in schemes)}")


def check_database_url(url: str) -> None:
    """Check a URL of PostgreSQL with one host or several. Raises `ValueError`."""
    _check_scheme(url, POSTGRESQL_SCHEMES)
    hosts_of(url)
    options = parse_qs(urlsplit(url).query)
    given_hosts = options.get("host", [""])[0].split(",")
    given_ports = options.get("port", [""])[0].split(",")
    if len(given_ports) > 1 and len(given_ports) != len(given_hosts):
        raise ValueError("has not as many ports as hosts")
    session = options.get("target_session_attrs", ["read-write"])[0]
    if session not in {"read-write", "primary", "any"}:
        raise ValueError("target_session_attrs must be read-write, primary or any")


def hosts_of(url: str) -> list[tuple[str, int]]:
    """Return names and ports of the hosts of PostgreSQL; none for a socket. Raises `ValueError`."""
    _, hosts = _split_netloc(url)
    return split_hosts(hosts, POSTGRESQL_PORT) if hosts else []


def database_settings(url: str) -> dict[str, Any]:
    """Return Django's settings of the database that a URL names.

    Several hosts, and their ports, are separated by commas, as libpq has them.
    """
    import dj_database_url

    options = connection_options(url)
    servers = hosts_of(url)
    is_list = len(servers) > 1
    if is_list:
        credentials, _ = _split_netloc(url)
        url = urlsplit(url)._replace(netloc=credentials).geturl()
    database: dict[str, Any] = dict(
        dj_database_url.parse(
            url, engine="opsportal.postgresql", conn_max_age=60, conn_health_checks=True
        )
    )
    if is_list:
        database["HOST"] = ",".join(host for host, _ in servers)
        database["PORT"] = ",".join(str(port) for _, port in servers)
    database["OPTIONS"] = options | database.get("OPTIONS", {})
    return database


def connection_options(url: str) -> dict[str, Any]:
    """Return the options of libpq that connections to this URL have besides those in the URL."""
    _, hosts = _split_netloc(url)
    in_url = parse_qs(urlsplit(url).query)
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": SILENT_SECONDS,
        "keepalives_interval": PROBE_SECONDS,
        "keepalives_count": PROBES,
        "tcp_user_timeout": UNACKNOWLEDGED_MS,
    }
    if "," in hosts + in_url.get("host", [""])[0]:
        # A host that is down must not use up the time of the one that is not.
        options["connect_timeout"] = CONNECT_SECONDS_OF_SEVERAL
        options["target_session_attrs"] = "read-write"
    return {name: value for name, value in options.items() if name not in in_url}


@dataclass(frozen=True)
class SentinelService:
    """A service of Redis or Valkey, and the Sentinels that know its primary."""

    sentinels: list[tuple[str, int]]
    service: str
    database: int
    user: str
    password: str
    sentinel_password: str
    #: Options of connections by TLS, to Sentinels and primary alike; empty without TLS.
    tls: dict[str, Any]

    @classmethod
    def parse(cls, url: str) -> "SentinelService":
        """Return what a URL `sentinel://…`, or `sentinels://…` for TLS, names.

        Raises `ValueError`.
        """
        credentials, hosts = _split_netloc(url)
        user, _, password = credentials.removesuffix("@").partition(":")
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        optional = {"sentinel_password"}
        tls: dict[str, Any] = {}
        if parts.scheme == "sentinels":
            optional.update(TLS_FILES)
            tls = VERIFIED | {name: options[name][0] for name in TLS_FILES if name in options}
        if not hosts or options.keys() - optional != {"service"}:
            raise ValueError(f"must name Sentinels and the service: {_SENTINEL_EXAMPLE}")
        database = parts.path.strip("/") or "0"
        if not (database.isascii() and database.isdigit()):
            raise ValueError(f"must name a database by its number: {_SENTINEL_EXAMPLE}")
        return cls(
            sentinels=split_hosts(hosts, SENTINEL_PORT),
            service=options["service"][0],
            database=int(database),
            user=unquote(user),
            password=unquote(password),
            sentinel_password=options.get("sentinel_password", [""])[0],
            tls=tls,
        )

    @property
    def broker_url(self) -> str:
        """The URL as Celery has it: one for each Sentinel. TLS is among its other settings."""
        credentials = ""
        if self.password:
            credentials = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        urls = []
        for host, port in self.sentinels:
            name = f"[{host}]" if ":" in host else host
            urls.append(f"sentinel://{credentials}{name}:{port}/{self.database}")
        return ";".join(urls)

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """The options of connections to Sentinels. One that is dead is not tried again."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options: dict[str, Any] = {
            "socket_connect_timeout": 1,
            "socket_timeout": 2,
            "retry": Retry(NoBackoff(), 0),
        }
        if self.sentinel_password:
            options["password"] = self.sentinel_password
        if self.tls:
            options |= {"ssl": True} | self.tls
        return options


def check_redis_url(url: str) -> None:
    """Check a URL of Redis or of Sentinels. Raises `ValueError`."""
    _check_scheme(url, REDIS_SCHEMES)
    if _names_sentinels(url):
        SentinelService.parse(url)
        return
    try:
        urlsplit(url).port  # noqa: B018 - parsed on access
    except ValueError:
        raise ValueError(_NOT_A_URL) from None


def redis_pool(url: str, **options: Any) -> "ConnectionPool":
    """Return connections to the server, or to the primary of the service, that a URL names."""
    from redis import ConnectionPool
    from redis.sentinel import Sentinel, SentinelConnectionPool

    if url.startswith("unix://"):
        return ConnectionPool.from_url(url, **options)
    options = _keepalive() | options
    if not _names_sentinels(url):
        return ConnectionPool.from_url(url, **options)
    service = SentinelService.parse(url)
    if service.tls:
        options |= {"ssl": True} | service.tls
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        service.sentinels, sentinel_kwargs=service.sentinel_options
    )
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        service.service,
        sentinel,
        db=service.database,
        username=service.user or None,
        password=service.password or None,
        **options,
    )


def redis_client(url: str, **options: Any) -> "Redis":
    """Return a client of its own for the server, or the primary, that a URL names."""
    from redis import Redis

    return Redis.from_pool(redis_pool(url, **options))


def broker_url(url: str) -> str:
    """Return `CELERY_BROKER_URL`."""
    if _names_sentinels(url):
        return SentinelService.parse(url).broker_url
    return url.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=", 1)


def broker_options(url: str) -> dict[str, Any]:
    """Return the options of Celery's connections that follow from the URL."""
    if url.startswith("unix://"):
        return {}
    options = _keepalive()
    if _names_sentinels(url):
        service = SentinelService.parse(url)
        options["master_name"] = service.service
        options["sentinel_kwargs"] = service.sentinel_options
    return options


def broker_tls(url: str) -> dict[str, Any]:
    """Return `CELERY_BROKER_USE_SSL`; options in a URL `rediss://…` win over it.

    Without it, Celery would accept any certificate of `rediss://`.
    """
    if _names_sentinels(url):
        return SentinelService.parse(url).tls
    return VERIFIED if url.startswith("rediss://") else {}


def _names_sentinels(url: str) -> bool:
    return url.partition("://")[0] in SENTINEL_SCHEMES


def _keepalive() -> dict[str, Any]:
    return {
        "socket_keepalive": True,
        "socket_keepalive_options": {
            socket.TCP_KEEPIDLE: SILENT_SECONDS,
            socket.TCP_KEEPINTVL: PROBE_SECONDS,
            socket.TCP_KEEPCNT: PROBES,
            socket.TCP_USER_TIMEOUT: UNACKNOWLEDGED_MS,
        },
    }
