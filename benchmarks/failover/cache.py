"""Valkey with a replica, and a Sentinel on each of three machines."""

from redis import Redis, RedisError
from redis.sentinel import Sentinel

from benchmarks.failover.network import Machine
from dev.processes import ROOT
from dev.valkey import find_binary
from tests.failover.waiting import wait_for

SERVICE = "opsportal"
PASSWORD = "A-LONG-RANDOM-PASSWORD"
SENTINEL_PORT = 26379
PORT = 6379


class Cache:
    """Valkey on two machines, whose third is a witness for a Sentinel alone."""

    def __init__(self, first: Machine, second: Machine, witness: Machine) -> None:
        self._servers = (first, second)
        self._members = (first, second, witness)
        first.serve("valkey", self._valkey(first), {})
        replica = ["--replicaof", f"{first.address} {PORT}"]
        second.serve("valkey", [*self._valkey(second), *replica], {})
        template = (ROOT / "deploy/sentinel.conf").read_text()
        for machine in self._members:
            text = template.replace("10.1.0.11", first.address)
            file = machine.directory / "sentinel.conf"
            file.write_text(text.replace("dir /var/lib/redis", f"dir {machine.directory}"))
            machine.serve("sentinel", [str(find_binary()), str(file), "--sentinel"], {})
        wait_for(self.is_whole)

    def _valkey(self, machine: Machine) -> list[str]:
        command = [str(find_binary()), "--port", str(PORT), "--bind", machine.address]
        command += ["--requirepass", PASSWORD, "--masterauth", PASSWORD]
        command += ["--appendonly", "yes", "--dir", str(machine.directory)]
        return [*command, "--repl-diskless-sync-delay", "0"]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{member.address}:{SENTINEL_PORT}" for member in self._members)
        return f"sentinel://:{PASSWORD}@{hosts}/0?service={SERVICE}"

    def primary(self) -> Machine:
        """Return the machine that the Sentinels name now."""
        hosts = [(member.address, SENTINEL_PORT) for member in self._members]
        address = Sentinel(hosts, socket_timeout=1).discover_master(SERVICE)[0]
        return next(server for server in self._servers if server.address == address)

    def is_whole(self) -> bool:
        """Whether all Sentinels know all others and the replica, which is up to date."""
        try:
            for member in self._members:
                with Redis(member.address, SENTINEL_PORT, socket_timeout=2) as client:
                    master = client.sentinel_master(SERVICE)
                is_known = master["num-slaves"] == 1 and master["num-other-sentinels"] == 2
                if not is_known or master["is_odown"] or master["is_sdown"]:
                    return False
            replica = next(server for server in self._servers if server != self.primary())
            with Redis(replica.address, PORT, password=PASSWORD, socket_timeout=2) as client:
                return client.info("replication").get("master_link_status") == "up"
        except (RedisError, StopIteration):
            return False
