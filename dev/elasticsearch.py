"""A private Elasticsearch of one node on loopback, for tests: `bin/es-up` and `bin/es-down`.

It is the published server jar with the published HTTP transport, run as one node in one Java
process. Modules that only the full download contains are missing: among others security, `GET /`,
index lifecycle policies, scripts, `_reindex`, `_delete_by_query`, tokenizers other than `standard`,
and some field types.
"""

import json
import shutil
import sysconfig
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from dev.jars import cached_home, run_tool, server_home
from dev.messages import SetupError
from dev.processes import Stopping, free_port, spawn, stop_all

VERSION = "8.19.21"
START_SECONDS = 120
_NODE = Path(__file__).with_name("ElasticsearchNode.java")
_TRANSPORT = "transport-netty4"
_TRANSPORT_JARS = ("netty-", "transport-netty4-", "elasticsearch-ssl-config-")
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True)
class Elasticsearch:
    """A server with its configuration, data, log and pid file under `directory`.

    `namespace` names the network namespace in which it runs, with the address `host`.
    """

    directory: Path
    port: int = 9200
    heap_mb: int = 512
    settings: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    namespace: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it unless it runs with the same configuration, and wait until it answers.

        Raises `SetupError`.
        """
        if self._configure() or not self.pid():
            self._wait_ready(self._launch())

    def prepare(self) -> list[str]:
        """Write the configuration; return the command line, for a caller that starts it itself.

        Raises `SetupError`.
        """
        home = fetch()
        self._configure()
        return self._command(home, _use_classes(home))

    def _launch(self) -> int:
        """Start the process; return where its log begins."""
        home = fetch()
        return self._launch_with(home, _use_classes(home))

    def _launch_with(self, home: Path, classes: str) -> int:
        self.stop()
        command = self._command(home, classes)
        if self.namespace:
            command = ["ip", "netns", "exec", self.namespace, *command]
        with self._log.open("ab") as log:
            began_at = log.tell()
            spawn("elasticsearch", command, self._run_dir, stdout=log, stderr=log)
        return began_at

    def keep_classes(self, home: Path, archive: Path) -> None:
        """Start it once, and keep the classes that it has loaded in `archive`.

        Raises `SetupError`.
        """
        self._configure()
        try:
            self._wait_ready(self._launch_with(home, f"-XX:ArchiveClassesAtExit={archive}"))
            # Java writes the archive before it ends: seconds.
            Stopping(self._run_dir / "elasticsearch.pid").ask()
            until = time.monotonic() + START_SECONDS
            while self.pid() and time.monotonic() < until:
                time.sleep(0.1)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop it if it runs. Keeps the data."""
        stop_all(self._run_dir)

    def pid(self) -> int:
        """Return the pid of the running process, or 0."""
        with suppress(OSError, ValueError):
            process = Stopping(self._run_dir / "elasticsearch.pid")
            return process.pid if process.alive() else 0
        return 0

    @property
    def _log(self) -> Path:
        return self.directory / "elasticsearch.log"

    @property
    def _run_dir(self) -> Path:
        return self.directory / "run"

    def _configure(self) -> bool:
        """Write the configuration; return whether it changed."""
        for name in ("config", "data", "run", "tmp"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        settings = {
            "cluster.name": "opsportal-tests",
            "node.name": "node",
            "path.data": str(self.directory / "data"),
            "path.logs": str(self.directory),
            "http.host": self.host,
            "http.port": str(self.port),
            "transport.host": self.host,
            "transport.port": "0",
            "discovery.type": "single-node",
            # Run on a disk that is nearly full, too.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            # Each check of the disk removes the blocks of indexes, also those that tests set.
            "cluster.info.update.interval": "24h",
            **self.settings,
        }
        lines = [
            f"# heap of {self.heap_mb} MB",
            *(f"{name}: {json.dumps(value)}" for name, value in settings.items()),
        ]
        text = "".join(f"{line}\n" for line in lines)
        (self.directory / "config/log4j2.properties").write_text(_LOGGING)
        file = self.directory / "config/elasticsearch.yml"
        changed = not file.exists() or file.read_text() != text
        file.write_text(text)
        return changed

    def _command(self, home: Path, classes: str) -> list[str]:
        native = home / "native"
        tmp = self.directory / "tmp"
        return [
            "java",
            # A start takes half the CPU time without the second compiler and the parallel
            # collector, and a third of the rest is saved without verifying published jars.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:-BytecodeVerificationRemote",
            classes,
            f"-Xms{self.heap_mb}m",
            f"-Xmx{self.heap_mb}m",
            f"-XX:MaxDirectMemorySize={self.heap_mb // 2}m",
            "-Dfile.encoding=UTF-8",
            "--enable-native-access=ALL-UNNAMED",
            f"-Des.nativelibs.path={native}",
            f"-Djna.library.path={native}",
            "-Djna.nosys=true",
            f"-Djna.tmpdir={tmp}",
            f"-Djava.io.tmpdir={tmp}",
            # No jar has the vector library, and without it all native calls would fail.
            "-Dorg.elasticsearch.nativeaccess.enableVectorLibrary=false",
            "-Dlog4j2.disable.jmx=true",
            "-Dlog4j.shutdownHookEnabled=false",
            "-Dio.netty.noUnsafe=true",
            "-Dio.netty.noKeySetOptimization=true",
            "-Dio.netty.recycler.maxCapacityPerThread=0",
            "-cp",
            f"{home / 'jars'}/*",
            "ElasticsearchNode",
            str(home),
            str(self.directory / "config"),
        ]

    def _wait_ready(self, began_at: int) -> None:
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self.pid():
                raise SetupError(f"Elasticsearch ended at its start: {self._first_error(began_at)}")
            if time.monotonic() > until:
                raise SetupError(
                    f"Elasticsearch does not answer after {START_SECONDS} s; see {self._log}"
                )
            time.sleep(0.1)

    def _answers(self) -> bool:
        """Return whether the process of the pid file, and no other,
        answers on the port with its indices ready.
        """
        try:
            nodes = self._get("/_nodes/_local/process?filter_path=nodes.*.process.id")["nodes"]
            health = self._get("/_cluster/health?wait_for_status=yellow&timeout=1s")
        except (OSError, HTTPException, ValueError, KeyError):
            return False
        return [node["process"]["id"] for node in nodes.values()] == [self.pid()] and not health[
            "timed_out"
        ]

    def _get(self, path: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=5) as answer:
            return json.load(answer)

    def _first_error(self, began_at: int) -> str:
        with self._log.open("rb") as log:
            log.seek(began_at)
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines[-1:] or ["it said nothing"])[0].strip()


def fetch() -> Path:
    """Return the server's home, downloaded on first use. Raises `SetupError`."""
    artifacts = [
        f"org.elasticsearch:elasticsearch:{VERSION}",
        f"org.elasticsearch.plugin:{_TRANSPORT}:{VERSION}",
    ]
    return server_home(f"elasticsearch-{VERSION}", artifacts, _prepare)


def _use_classes(home: Path) -> str:
    """Return the option of Java by which a start reads classes as an earlier start left them.

    That saves 40 % of the CPU time of a start. Java ignores the file of another version of itself,
    and a file that is missing.
    """

    def keep(unfinished: Path) -> None:
        server = Elasticsearch(unfinished / "server", free_port())
        with suppress(SetupError):
            server.keep_classes(home, unfinished / "classes")
        shutil.rmtree(unfinished / "server", ignore_errors=True)

    try:
        directory = cached_home(f"{home.name}-classes", keep)
    except SetupError:
        return "-Xshare:auto"
    return f"-XX:SharedArchiveFile={directory / 'classes'}"


def _prepare(home: Path) -> None:
    """Arrange the jars as the home the server expects: the transport as a module,
    and our own main class.
    """
    modules = home / "modules" / _TRANSPORT
    modules.mkdir(parents=True)
    # Moved, not copied: a jar in both directories stops the server.
    for jar in list((home / "jars").iterdir()):
        if jar.name.startswith(_TRANSPORT_JARS):
            jar.rename(modules / jar.name)
    descriptor = {
        "name": _TRANSPORT,
        "description": _TRANSPORT,
        "classname": "org.elasticsearch.transport.netty4.Netty4Plugin",
        "version": VERSION,
        "elasticsearch.version": VERSION,
        "java.version": "17",
    }
    lines = "".join(f"{key}={value}\n" for key, value in descriptor.items())
    (modules / "plugin-descriptor.properties").write_text(lines)
    _compile(home)
    (home / "native").mkdir()
    # For `index.codec: best_compression`. The jars lack it; the system's will do, under the name
    # that is looked for.
    zstd = Path("/usr/lib", sysconfig.get_config_var("MULTIARCH") or "", "libzstd.so.1")
    if zstd.exists():
        (home / "native/libzstd.so").symlink_to(zstd)


def _compile(home: Path) -> None:
    classes = home / "classes"
    run_tool(
        "javac", "--release", "17", "-proc:none", "-cp", f"{home / 'jars'}/*", "-d", classes, _NODE
    )
    run_tool("jar", "cf", home / "jars/opsportal-node.jar", "-C", classes, ".")
    shutil.rmtree(classes)
