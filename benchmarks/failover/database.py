"""PostgreSQL with a synchronous standby, which Patroni promotes, and etcd on three machines."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psycopg
import yaml

from benchmarks.failover.network import Machine
from dev.postgres import NOBODY, UNPRIVILEGED, USER, clean_environment, find_binaries
from dev.processes import ROOT
from tests.failover.waiting import wait_for

DATABASE = "opsportal"
PORT = 5432
API_PORT = 8008
#: Before it, a primary that was cut off may take the lock back (patroni's pull request 2689).
FIRST_PATRONI = (3, 0, 3)


class Database:
    """PostgreSQL on two machines, whose third is a witness for etcd alone."""

    def __init__(self, first: Machine, second: Machine, witness: Machine) -> None:
        self._servers = (first, second)
        self._members = (first, second, witness)
        for machine in self._members:
            machine.serve("etcd", self._etcd(machine), {})
        for machine in self._servers:
            machine.serve("patroni", self._patroni(machine), self._environment())
            wait_for(lambda: self._has("primary"))
        wait_for(self.is_whole)
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")

    def _environment(self) -> dict[str, str]:
        return clean_environment() | {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

    def _etcd(self, machine: Machine) -> list[str]:
        members = [f"{member.name}=http://{member.address}:2380" for member in self._members]
        return [
            find_program("etcd"),
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
        """Write the configuration of a server, that of `deploy/`; return its command line."""
        directory = machine.directory / "postgresql"
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
        configuration = yaml.safe_load((ROOT / "deploy/patroni.yml").read_text())
        configuration["name"] = machine.name
        for part, port in (("restapi", API_PORT), ("postgresql", PORT)):
            for key in ("listen", "connect_address"):
                configuration[part][key] = f"{machine.address}:{port}"
        configuration["etcd3"]["hosts"] = [f"{member.address}:2379" for member in self._members]
        # Only the machines are on this network.
        configuration["bootstrap"]["pg_hba"] = [
            f"host {database} all 0.0.0.0/0 trust" for database in ("all", "replication")
        ]
        configuration["postgresql"] |= {
            "data_dir": str(directory / "data"),
            "bin_dir": str(find_binaries(Path("/nonexistent"))),
            "pgpass": str(directory / "pgpass"),
            "parameters": {"unix_socket_directories": ""},
            "authentication": {
                "superuser": {"username": USER},
                "replication": {"username": "replicator"},
            },
        }
        file = machine.directory / "patroni.yml"
        file.write_text(yaml.safe_dump(configuration))
        return [*UNPRIVILEGED, find_patroni(), str(file)]

    def _has(self, role: str) -> bool:
        """Whether Patroni says of some server that it has a role."""
        return any(_is(server, role) for server in self._servers)

    @property
    def _hosts(self) -> str:
        return ",".join(f"{server.address}:{PORT}" for server in self._servers)

    def _url(self, name: str) -> str:
        return f"{url_of(self._hosts, name)}?target_session_attrs=read-write"

    @property
    def url(self) -> str:
        """The URL with both servers, as the portal has it."""
        return url_of(self._hosts)

    def is_whole(self) -> bool:
        """Whether there is a primary, and a standby that Patroni would promote."""
        return self._has("primary") and self._has("synchronous")

    def primary(self) -> Machine:
        """Return the machine that accepts changes now."""
        address = self.ask("SELECT host(inet_server_addr())")[0][0]
        return next(server for server in self._servers if server.address == address)

    def ask(self, statement: str) -> list[tuple]:
        """Return the rows that a statement yields on the server that accepts changes."""
        with psycopg.connect(self._url(DATABASE), connect_timeout=5) as connection:
            return connection.execute(statement).fetchall()


def url_of(hosts: str, name: str = DATABASE) -> str:
    """Return the URL of a database on hosts with ports, separated by commas."""
    return f"postgresql://{USER}@{hosts}/{name}"


def find_program(name: str) -> str:
    """Return the path of a program of the system. Raises FileNotFoundError."""
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(
            f"{name} is missing: apt-get install etcd-server nginx haproxy, and install Patroni "
            "3.0.3 or later (docs/scale-out.md)"
        )
    return path


def find_patroni() -> str:
    """Return the path of a Patroni that never takes the lock from a new primary.

    Raises FileNotFoundError, and RuntimeError if it is an older one.
    """
    path = find_program("patroni")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    version = tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:3])
    if version < FIRST_PATRONI:
        raise RuntimeError(f"{path} is {done.stdout.strip()}: 3.0.3 is the first without the fault")
    return path


def _is(server: Machine, role: str) -> bool:
    with suppress(OSError):
        return urlopen(f"http://{server.address}:{API_PORT}/{role}", timeout=2).status == 200
    return False
