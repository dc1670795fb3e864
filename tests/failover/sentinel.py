"""A Valkey or Redis with a replica, and Sentinels that promote it when the primary is killed."""

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redis import Redis, RedisError

from dev.processes import free_port, guard, spawn
from dev.valkey import find_binary
from tests.failover.waiting import wait_for
from tests.programs.certificates import Certificate

SERVICE = "opsportal"
PASSWORD = "p@ss/word"
SENTINELS = 3


class Service:
    """A primary, its replica and three Sentinels on ports of loopback.

    With a certificate of 127.0.0.1 they are those of Debian, since Valkey's wheel has no TLS, and
    speak TLS alone.
    """

    def __init__(
        self, stack: ExitStack, base: Path, certificate: Certificate | None = None
    ) -> None:
        self._base = base
        self._certificate = certificate
        self._program = "redis-server" if certificate else str(find_binary())
        self._run = base / "run"
        self._run.mkdir()
        watchdog = guard(self._run)
        stack.callback(watchdog.wait, timeout=60)
        stack.callback(watchdog.stdin.close)
        self.primary_port = free_port()
        self._primary = self._start_server(self.primary_port)
        self.replica_port = free_port()
        self._start_server(self.replica_port, "--replicaof", f"127.0.0.1 {self.primary_port}")
        self.sentinel_ports = []
        for number in range(SENTINELS):
            self.sentinel_ports.append(free_port())
            self._start_sentinel(number)
        wait_for(self._is_watched)

    def _start_server(self, port: int, *options: str) -> "subprocess.Popen[bytes]":
        command = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        for name, value in self._listening(port).items():
            command += [f"--{name}", value]
        command += ["--requirepass", PASSWORD, "--masterauth", PASSWORD]
        command += ["--repl-diskless-sync-delay", "0", "--dir", str(self._base), *options]
        process = self._spawn(f"valkey-{port}", command)
        wait_for(lambda: self._answers(port, password=PASSWORD))
        return process

    def _start_sentinel(self, number: int) -> None:
        """Start a Sentinel that takes a server for dead after a second."""
        port = self.sentinel_ports[number]
        file = self._base / f"sentinel-{number}.conf"
        lines = [
            *(f"{name} {value}" for name, value in self._listening(port).items()),
            "bind 127.0.0.1",
            f"dir {self._base}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary_port} 2",
            f"sentinel auth-pass {SERVICE} {PASSWORD}",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        file.write_text("\n".join(lines) + "\n")
        self._spawn(f"sentinel-{number}", [str(file), "--sentinel"])
        wait_for(lambda: self._answers(port))

    def _listening(self, port: int) -> dict[str, str]:
        """Return the settings with which a server listens."""
        if self._certificate is None:
            return {"port": str(port)}
        certificate, key = self._certificate
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-replication": "yes",
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(certificate),
            "tls-auth-clients": "no",
        }

    def client(self, port: int, **options: Any) -> "Redis":
        """Return a client of a server or a Sentinel that trusts its certificate."""
        if self._certificate:
            options |= {"ssl": True, "ssl_ca_certs": str(self._certificate[0])}
        return Redis(host="127.0.0.1", port=port, **options)

    def _spawn(self, name: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
        command = [self._program, *arguments]
        null = subprocess.DEVNULL
        return spawn(name, command, self._run, stdout=null, stderr=null)

    def _answers(self, port: int, password: str | None = None) -> bool:
        try:
            with self.client(port, password=password) as client:
                return bool(client.ping())
        except RedisError:
            return False

    def _is_watched(self) -> bool:
        """Whether each Sentinel knows the replica, which is up to date, and the others."""
        for port in self.sentinel_ports:
            with self.client(port) as client:
                master = client.sentinel_master(SERVICE)
            if master["num-slaves"] != 1 or master["num-other-sentinels"] != SENTINELS - 1:
                return False
        with self.client(self.replica_port, password=PASSWORD) as client:
            return client.info("replication")["master_link_status"] == "up"

    @property
    def url(self) -> str:
        """The URL of the service: the first of its Sentinels does not answer."""
        hosts = [f"127.0.0.1:{port}" for port in (1, *self.sentinel_ports)]
        url = f"sentinel://:p%40ss%2Fword@{','.join(hosts)}/2?service={SERVICE}"
        if self._certificate is None:
            return url
        return url.replace("sentinel", "sentinels", 1) + f"&ssl_ca_certs={self._certificate[0]}"

    def kill_primary(self) -> None:
        self._primary.kill()
        self._primary.wait()
