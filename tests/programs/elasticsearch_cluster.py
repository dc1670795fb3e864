"""Three real nodes of Elasticsearch, each in a network namespace, which can be cut off."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.elasticsearch import Elasticsearch, fetch
from dev.messages import SetupError
from dev.processes import guard
from tests.programs.elasticsearch_server import ElasticsearchServer

NODES = 3
#: A node is given up after two seconds without an answer, instead of half a minute.
_SOON = {
    "cluster.fault_detection.follower_check.timeout": "1s",
    "cluster.fault_detection.follower_check.retry_count": "2",
    "cluster.fault_detection.leader_check.timeout": "1s",
    "cluster.fault_detection.leader_check.retry_count": "2",
    "cluster.publish.timeout": "3s",
    "transport.connect_timeout": "2s",
    "cluster.routing.allocation.node_initial_primaries_recoveries": "10",
}


@dataclass(frozen=True)
class _Network:
    """A bridge of this host, and behind it a namespace for each node."""

    name: str
    subnet: str

    def namespace(self, node: int) -> str:
        return f"{self.name}{node}"

    def link(self, node: int) -> str:
        return f"{self.name}v{node}"

    def address(self, node: int) -> str:
        return f"{self.subnet}.{10 + node}"

    def set_up(self) -> None:
        ip("link", "add", self.name, "type", "bridge")
        ip("address", "add", f"{self.subnet}.1/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for node in range(NODES):
            namespace, link = self.namespace(node), self.link(node)
            ip("netns", "add", namespace)
            peer = ("peer", "name", "eth0", "netns", namespace)
            ip("link", "add", link, "type", "veth", *peer)
            ip("link", "set", link, "master", self.name, "up")
            inside = ("-n", namespace)
            ip(*inside, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")
            ip(*inside, "link", "set", "lo", "up")

    def take_down(self) -> None:
        for node in range(NODES):
            with suppress(SetupError):
                ip("netns", "del", self.namespace(node))
        with suppress(SetupError):
            ip("link", "del", self.name)


class Cluster:
    """Nodes by number, from 0."""

    def __init__(self, directory: Path, network: _Network) -> None:
        self._network = network
        addresses = [network.address(node) for node in range(NODES)]
        self._servers = []
        for node, address in enumerate(addresses):
            settings = {
                **_SOON,
                "node.name": f"node{node}",
                "discovery.type": "multi-node",
                "discovery.seed_hosts": ",".join(f"{host}:9300" for host in addresses),
                "cluster.initial_master_nodes": ",".join(f"node{n}" for n in range(NODES)),
                "transport.port": "9300",
            }
            self._servers.append(
                Elasticsearch(
                    directory / str(node), 9200, 384, settings, address, network.namespace(node)
                )
            )
        self.hosts = ",".join(f"{address}:9200" for address in addresses)

    def start(self) -> None:
        """Start the nodes that are down, at the same time."""
        with ThreadPoolExecutor(NODES) as threads:
            list(threads.map(Elasticsearch.start, self._servers))

    def kill(self, node: int) -> None:
        os.kill(self._servers[node].pid(), signal.SIGKILL)

    @contextmanager
    def cut_off(self, node: int) -> Iterator[None]:
        """Let no packet of a node through, in both directions."""
        ip("link", "set", self._network.link(node), "down")
        try:
            yield
        finally:
            ip("link", "set", self._network.link(node), "up")

    def wait_whole(self, seconds: float = 90) -> None:
        """Wait until all copies of all indexes are there."""
        server = ElasticsearchServer(self._servers[0])
        until = time.monotonic() + seconds
        path = f"/_cluster/health?wait_for_status=green&wait_for_nodes={NODES}&timeout=5s"
        while True:
            with suppress(OSError):
                if not server.call("GET", path)["timed_out"]:
                    return
            assert time.monotonic() < until, "the cluster does not become whole"
            time.sleep(0.5)

    def clear(self) -> None:
        ElasticsearchServer(self._servers[0]).clear()


def ip(*arguments: str) -> None:
    """Call `ip`. Raises `SetupError`."""
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"ip {' '.join(arguments)}: {error}") from error


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes. A host that cannot run them skips the test; with CI=true it fails."""
    number = os.getpid() % 250
    network = _Network(f"opses{number}x", f"10.231.{number}")
    directory = Path(tempfile.mkdtemp(prefix="opsportal-cluster-"))
    watchdogs = []
    try:
        try:
            fetch()
            network.set_up()
        except SetupError as error:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"cluster: {error}")
        for node in range(NODES):
            (directory / str(node) / "run").mkdir(parents=True)
            watchdogs.append(guard(directory / str(node) / "run", remove=directory / str(node)))
        nodes = Cluster(directory, network)
        nodes.start()
        nodes.wait_whole()
        yield nodes
    finally:
        for watchdog in watchdogs:
            watchdog.communicate(timeout=60)
        network.take_down()
        with suppress(OSError):
            directory.rmdir()
