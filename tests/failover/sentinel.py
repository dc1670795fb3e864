"""A Valkey with a replica, and Sentinels that promote it when the primary is killed."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

from redis import Redis, RedisError

from dev.processes import guard, spawn
from dev.valkey import find_binary
from tests.failover.waiting import wait_for
from tests.programs.ports import free_port

SERVICE = "opsportal"
PASSWORD = "p@ss/word"
SENTINELS = 3


class Service:
    """A primary, its replica and three Sentinels on ports of loopback."""

    def __init__(self, stack: ExitStack, base: Path) -> None:
        self._base = base
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
        command = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
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
            f"port {port}",
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

    def _spawn(self, name: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
        command = [str(find_binary()), *arguments]
        null = subprocess.DEVNULL
        return spawn(name, command, self._run, stdout=null, stderr=null)

    def _answers(self, port: int, password: str | None = None) -> bool:
        try:
            with Redis(port=port, password=password) as client:
                return bool(client.ping())
        except RedisError:
            return False

    def _is_watched(self) -> bool:
        """Whether each Sentinel knows the replica, which is up to date, and the others."""
        for port in self.sentinel_ports:
            with Redis(port=port) as client:
                master = client.sentinel_master(SERVICE)
            if master["num-slaves"] != 1 or master["num-other-sentinels"] != SENTINELS - 1:
                return False
        with Redis(port=self.replica_port, password=PASSWORD) as client:
            return client.info("replication")["master_link_status"] == "up"

    @property
    def url(self) -> str:
        """The URL of the service: the first of its Sentinels does not answer."""
        hosts = [f"127.0.0.1:{port}" for port in (1, *self.sentinel_ports)]
        return f"sentinel://:p%40ss%2Fword@{','.join(hosts)}/2?service={SERVICE}"

    def kill_primary(self) -> None:
        self._primary.kill()
        self._primary.wait()
