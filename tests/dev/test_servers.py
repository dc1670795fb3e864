"""The embedded servers, for real: start, kill -9, start again."""

import os
import signal
import subprocess

import psycopg
import pytest
import redis

from dev import postgres as postgres_module
from dev.messages import SetupError
from dev.postgres import Postgres, find_binaries
from dev.processes import spawn, stop_all
from dev.valkey import Valkey


def serve(name, server, layout):
    process = spawn(
        name, server.command(), layout.run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server.wait_ready()
    return process


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_postgres_killed_keeps_the_committed_row(layout):
    server = Postgres(layout.postgres, layout.sockets)
    server.prepare()
    process = serve("postgres", server, layout)
    server.create_database("portal")
    server.create_database("portal")
    with psycopg.connect(server.url("portal")) as connection:
        connection.execute(
            "CREATE EXTENSION btree_gist; CREATE EXTENSION pg_trgm; CREATE TABLE kept AS "
            "SELECT 7 AS n"
        )
    kill(process)

    again = Postgres(layout.postgres, layout.sockets)
    again.prepare()
    process = serve("postgres", again, layout)
    with psycopg.connect(again.url("portal")) as connection:
        assert connection.execute(
            "SELECT n, datctype FROM kept, pg_database WHERE datname = 'portal'"
        ).fetchone() == (
            7,
            "C.UTF-8",
        )
    assert stop_all(layout.run) == 1
    assert process.wait() == 0


def test_postgres_half_made_is_made_anew(layout):
    half = layout.var / "postgres.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("15\n")
    server = Postgres(layout.postgres, layout.sockets, fast=True)
    server.prepare()
    assert not half.exists()
    serve("postgres", server, layout)


def test_postgres_of_another_major_version_is_named(layout):
    layout.postgres.mkdir()
    (layout.postgres / "PG_VERSION").write_text("9\n")
    with pytest.raises(
        SetupError, match=r"made by PostgreSQL 9, found is .*set POSTGRES_BIN to version 9"
    ):
        find_binaries(layout.postgres)


def test_postgres_bin_without_postgres_is_named(layout, monkeypatch):
    monkeypatch.setenv("POSTGRES_BIN", str(layout.var))
    with pytest.raises(SetupError, match=f"no PostgreSQL 15 or later in POSTGRES_BIN={layout.var}"):
        find_binaries(layout.postgres)


def test_postgres_takes_no_address_from_the_environment(layout, monkeypatch):
    monkeypatch.setenv("PGHOST", "elsewhere.invalid")
    server = Postgres(layout.postgres, layout.sockets, fast=True)
    server.prepare()
    serve("postgres", server, layout)
    server.create_database("portal")


def test_valkey_killed_keeps_what_was_written(layout):
    server = Valkey(layout.valkey, layout.sockets)
    process = serve("valkey", server, layout)
    with redis.Redis.from_url(server.url()) as client:
        client.set("kept", "7")
        client.execute_command("WAITAOF", 1, 0, 5000)
    kill(process)

    serve("valkey", server, layout)
    with redis.Redis.from_url(server.url()) as client:
        assert client.get("kept") == b"7"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops root")
@pytest.mark.parametrize(
    "prefix", [postgres_module.NAMESPACE, postgres_module.UNPRIVILEGED], ids=["unshare", "setpriv"]
)
def test_postgres_of_root_runs_either_way_on_one_directory(layout, monkeypatch, prefix):
    layout.var.parent.chmod(0o711)
    for way in (postgres_module.UNPRIVILEGED, prefix):
        monkeypatch.setattr(postgres_module, "_drop_root", lambda way=way: way)
        server = Postgres(layout.postgres, layout.sockets, fast=True)
        server.prepare()
        process = serve("postgres", server, layout)
        server.create_database("portal")
        stop_all(layout.run)
        assert process.wait() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops root")
def test_postgres_of_root_that_cannot_reach_var_says_so(layout, monkeypatch):
    monkeypatch.setattr(postgres_module, "_drop_root", lambda: postgres_module.UNPRIVILEGED)
    before = layout.var.parent.stat().st_mode
    with pytest.raises(SetupError, match="choose a directory that others may enter"):
        Postgres(layout.postgres, layout.sockets).prepare()
    assert layout.var.parent.stat().st_mode == before
