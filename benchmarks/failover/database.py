"""PostgreSQL with a synchronous standby, which Patroni promotes, and etcd on three machines."""

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psycopg

from benchmarks.failover.network import Machine
from dev.postgres import NOBODY, UNPRIVILEGED, USER, clean_environment, find_binaries

DATABASE = "opsportal"
PORT = 5432
#: The longest time without a leader that Patroni's documentation allows is its least `ttl`.
#: It must be at least `loop_wait` and twice `retry_timeout`.
TIMES = {"ttl": 20, "loop_wait": 5, "retry_timeout": 5}
START_SECONDS = 120


class Database:
    """PostgreSQL on two machines, whose third is a witness for etcd alone."""

    def __init__(self, first: Machine, second: Machine, witness: Machine) -> None:
        self._servers = (first, second)
        self._members = (first, second, witness)
        for machine in self._members:
            machine.serve("etcd", self._etcd(machine), {})
        for machine in self._servers:
            machine.serve("patroni", self._patroni(machine), self._environment())
            self._wait_for(("primary",))
        self._wait_for(("primary", "synchronous"))
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")

    def _environment(self) -> dict[str, str]:
        return clean_environment() | {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

    def _etcd(self, machine: Machine) -> list[str]:
        members = [f"{member.name}=http://{member.address}:2380" for member in self._members]
        return [
            _program("etcd"),
            f"--name={machine.name}",
            f"--data-dir={machine.directory / 'etcd'}",
            f"--listen-peer-urls=http://{machine.address}:2380",
            f"--initial-advertise-peer-urls=http://{machine.address}:2380",
            f"--listen-client-urls=http://{machine.address}:2379",
            f"--advertise-client-urls=http://{machine.address}:2379",
            f"--initial-cluster={','.join(members)}",
            "--log-level=warn",
        ]

    def _patroni(self, machine: Machine) -> list[str]:
        """Write the configuration of a server; return its command line."""
        directory = machine.directory / "postgresql"
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
        everybody = "host {} all 0.0.0.0/0 trust"
        configuration = {
            "scope": "opsportal",
            "name": machine.name,
            "restapi": {
                "listen": f"{machine.address}:8008",
                "connect_address": f"{machine.address}:8008",
            },
            "etcd3": {"hosts": [f"{member.address}:2379" for member in self._members]},
            "bootstrap": {
                "dcs": TIMES
                | {
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on"}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
                "pg_hba": [everybody.format("all"), everybody.format("replication")],
            },
            "postgresql": {
                "listen": f"{machine.address}:{PORT}",
                "connect_address": f"{machine.address}:{PORT}",
                "data_dir": str(directory / "data"),
                "bin_dir": str(find_binaries(Path("/nonexistent"))),
                "pgpass": str(directory / "pgpass"),
                "parameters": {"unix_socket_directories": "", "max_connections": 100},
                "authentication": {
                    "superuser": {"username": USER},
                    "replication": {"username": "replicator"},
                },
            },
        }
        file = machine.directory / "patroni.json"
        file.write_text(json.dumps(configuration))  # JSON is YAML
        return [*UNPRIVILEGED, _program("patroni"), str(file)]

    def _wait_for(self, roles: tuple[str, ...]) -> None:
        end = time.monotonic() + START_SECONDS
        while not self._has(roles):
            if time.monotonic() > end:
                raise TimeoutError("PostgreSQL did not start: see patroni.log of its machine")
            time.sleep(0.2)

    def _has(self, roles: tuple[str, ...]) -> bool:
        """Whether Patroni says of some server of each role that it has it."""
        return all(any(_is(server, role) for server in self._servers) for role in roles)

    def _url(self, name: str) -> str:
        hosts = ",".join(f"{server.address}:{PORT}" for server in self._servers)
        return f"postgresql://{USER}@{hosts}/{name}?target_session_attrs=read-write"

    @property
    def url(self) -> str:
        """The URL with both servers, as the portal has it."""
        return self._url(DATABASE).partition("?")[0]

    def is_whole(self) -> bool:
        """Whether there is a primary, and a standby that Patroni would promote."""
        return self._has(("primary", "synchronous"))

    def primary(self) -> Machine:
        """Return the machine that accepts changes now."""
        with psycopg.connect(self._url("postgres"), connect_timeout=2) as connection:
            address = connection.execute("SELECT host(inet_server_addr())").fetchone()[0]
        return next(server for server in self._servers if server.address == address)


def _program(name: str) -> str:
    """Return the path of a program of the system. Raises FileNotFoundError."""
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is missing: apt-get install patroni etcd-server nginx")
    return path


def _is(server: Machine, role: str) -> bool:
    with suppress(OSError):
        return urlopen(f"http://{server.address}:8008/{role}", timeout=2).status == 200
    return False


def ask(url: str, statement: str) -> list[tuple]:
    """Return the rows that a statement yields on the server that accepts changes."""
    with psycopg.connect(url + "?target_session_attrs=read-write", connect_timeout=5) as connection:
        return connection.execute(statement).fetchall()
