"""URLs with one server or several: what Django, libpq, Celery and Redis' driver make of them."""

import re

import pytest
from kombu import Connection
from kombu.utils.url import parse_url
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from redis import SSLConnection

from opsportal.env import BadEnvironment, Environment
from opsportal.servers import (
    SentinelService,
    broker_options,
    broker_url,
    connection_options,
    database_settings,
    redis_pool,
)
from opsportal.setup.database import LocalAdmin, choose_admin
from tests.opsportal.test_env import GOOD

SENTINELS = "sentinel://portal:p%40ss%2F@s1:26380,s2,s3/2?service=ops&sentinel_password=other"


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://u:p%40@db:5433/o", "db", 5433),
        ("postgresql://u:p%40@db/o", "db", ""),
        ("postgresql://u:p%40@db1:5433,db2:5434/o", "db1,db2", "5433,5434"),
        ("postgresql://u:p%40@db1,db2:5434/o", "db1,db2", "5432,5434"),
        ("postgresql://u:p%40@[fe80::1]:5434/o", "fe80::1", 5434),
    ],
)
def test_hosts_of_the_database(url, host, port):
    database = database_settings(url)
    parts = [database[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "NAME")]
    assert parts == ["u", "p@", host, port, "o"]
    assert database["OPTIONS"].get("target_session_attrs") == (
        "read-write" if "," in host else None
    )
    libpq = conninfo_to_dict(url)
    assert libpq["host"] == host


def test_hosts_may_be_options_as_well():
    database = database_settings("postgresql:///o?host=db1,db2&port=5433,5434&connect_timeout=2")
    options = database["OPTIONS"]
    assert (options["host"], options["port"], options["connect_timeout"]) == (
        "db1,db2",
        "5433,5434",
        2,
    )
    assert options["target_session_attrs"] == "read-write"


def test_other_connections_have_the_same_options_as_django():
    url = "postgresql://u@db1,db2/o?connect_timeout=9"
    options = connection_options(url)
    assert "connect_timeout" not in options
    libpq = conninfo_to_dict(make_conninfo(url, **options))
    for name, value in database_settings(url)["OPTIONS"].items():
        assert str(libpq[name]) == str(value)


def test_setup_takes_the_port_of_the_first_host():
    admin = choose_admin("local", "postgresql://u@localhost:5433,other/o")
    assert isinstance(admin, LocalAdmin)
    assert admin.port == 5433


def test_sentinels_and_their_service():
    service = SentinelService.parse(SENTINELS)
    assert service.sentinels == [("s1", 26380), ("s2", 26379), ("s3", 26379)]
    pool = redis_pool(SENTINELS, socket_timeout=3)
    assert pool.service_name == "ops"
    kwargs = pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"]) == ("portal", "p@ss/")
    assert (kwargs["db"], kwargs["socket_timeout"]) == (2, 3)
    asked = pool.sentinel_manager.sentinels[0].connection_pool.connection_kwargs
    assert (asked["host"], asked["port"], asked["password"]) == ("s1", 26380, "other")
    assert asked["retry"].get_retries() == 0, "one that is dead costs no time"


def test_celery_gets_every_sentinel_with_user_password_and_database():
    broker = Connection(broker_url(SENTINELS), transport_options=broker_options(SENTINELS))
    assert broker.transport_options["master_name"] == "ops"
    hosts = []
    for url in broker.alt:
        parts = parse_url(url)
        assert (parts["userid"], parts["password"]) == ("portal", "p@ss/")
        assert parts["virtual_host"] == "2"
        hosts.append((parts["hostname"], parts["port"]))
    assert hosts == [("s1", 26380), ("s2", 26379), ("s3", 26379)]


def test_files_of_tls_are_those_of_sentinels_and_primary():
    url = f"sentinels{SENTINELS.removeprefix('sentinel')}&ssl_ca_certs=/etc/ca%20of%20redis.pem"
    pool = redis_pool(url)
    sentinel_pool = pool.sentinel_manager.sentinels[0].connection_pool
    for connections in (pool, sentinel_pool):
        assert issubclass(connections.connection_class, SSLConnection)
        assert connections.connection_kwargs["ssl_ca_certs"] == "/etc/ca of redis.pem"
        assert connections.connection_kwargs["ssl_cert_reqs"] == "required"


@pytest.mark.parametrize("url", ["redis://queue:6379/0", "rediss://queue/1"])
def test_one_server_is_as_given(url):
    assert broker_url(url) == url
    assert redis_pool(url).connection_kwargs["host"] == "queue"


def test_a_socket_has_no_options_of_tcp():
    assert broker_url("unix:///run/v.sock?db=3") == "redis+socket:///run/v.sock?virtual_host=3"
    assert broker_options("unix:///run/v.sock?db=3") == {}
    assert redis_pool("unix:///run/v.sock?db=3").connection_kwargs["path"] == "/run/v.sock"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("DATABASE_URL", "postgresql://u@db1:5432,db2:port/o", "is not a URL"),
        ("DATABASE_URL", "postgresql://u@db1,[::1]/o", "has an IPv6 address among several hosts"),
        ("REDIS_URL", "sentinel://[::1]:1,s2/0?service=ops", "has an IPv6 address among several"),
        ("DATABASE_URL", "postgresql://u@db1,/o", "has an empty name among its hosts"),
        ("DATABASE_URL", "postgresql:///o?host=a,b,c&port=1,2", "has not as many ports as hosts"),
        (
            "DATABASE_URL",
            "postgresql://u@db1,db2/o?target_session_attrs=standby",
            "target_session_attrs must be read-write, primary or any",
        ),
        ("REDIS_URL", "sentinel://s1,s2/0", "must name Sentinels and the service"),
        ("REDIS_URL", "sentinel:///0?service=ops", "must name Sentinels and the service"),
        ("REDIS_URL", "sentinel://s1/0?service=ops&tls=1", "must name Sentinels and the service"),
        ("REDIS_URL", "sentinel://s1/0?service=ops&ssl_ca_certs=/f", "must name Sentinels and the"),
        ("REDIS_URL", "sentinel://s1/ops?service=ops", "must name a database by its number"),
        ("REDIS_URL", "sentinel://s1:x/0?service=ops", "is not a URL"),
        ("REDIS_URL", "sentinel://s1,/0?service=ops", "has an empty name among its hosts"),
    ],
)
def test_bad_url_is_named(monkeypatch, name, value, reason):
    for setting in Environment.model_fields:
        monkeypatch.delenv(setting, raising=False)
    for setting, good in (GOOD | {name: value}).items():
        monkeypatch.setenv(setting, good)
    with pytest.raises(BadEnvironment, match=f"^{name}: {re.escape(reason)}"):
        Environment.read()
