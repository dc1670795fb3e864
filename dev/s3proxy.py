"""A private S3 server on loopback, for tests: `bin/s3-up` and `bin/s3-down`.

It is S3Proxy, in one Java process, with a directory for each bucket.
"""

import http.client
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dev.jars import cached_home, fetch_file
from dev.messages import SetupError
from dev.processes import Stopping, spawn, stop_all

VERSION = "4.1.0"
ACCESS_KEY, SECRET_KEY = "tester", "tester-secret"
START_SECONDS = 60
_ARTIFACT = f"org.gaul:s3proxy:{VERSION}:jar:jar-with-dependencies"


@dataclass(frozen=True)
class S3Proxy:
    """A server with its buckets, log and pid file under `directory`."""

    directory: Path
    port: int = 9090

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers. Raises `SetupError`."""
        if not self.pid():
            self._launch()
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self.pid():
                raise SetupError(f"S3Proxy ended at its start; see {self._log}")
            if time.monotonic() > until:
                raise SetupError(
                    f"S3Proxy does not answer after {START_SECONDS} s; see {self._log}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it if it runs. Keeps the data."""
        stop_all(self._run_dir)

    def pid(self) -> int:
        """Return the pid of the running process, or 0."""
        with suppress(OSError, ValueError):
            process = Stopping(self._run_dir / "s3proxy.pid")
            return process.pid if process.alive() else 0
        return 0

    @property
    def _log(self) -> Path:
        return self.directory / "s3proxy.log"

    @property
    def _run_dir(self) -> Path:
        return self.directory / "run"

    def _launch(self) -> None:
        jar = fetch()
        for name in ("data", "run"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "s3proxy.conf"
        settings = {
            "s3proxy.endpoint": self.url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.directory / "data"),
        }
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        # A start takes half the CPU time without the second compiler and the parallel collector.
        java = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
        command = [*java, "-jar", str(jar), "--properties", str(configuration)]
        with self._log.open("ab") as log:
            spawn("s3proxy", command, self._run_dir, stdout=log, stderr=log)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/")
            # Without a signature, it refuses.
            return connection.getresponse().status == 403
        return False


def fetch() -> Path:
    """Return the server's jar, downloaded on first use. Raises `SetupError`."""

    def fill(home: Path) -> None:
        fetch_file(_ARTIFACT, home)

    (jar,) = cached_home(f"s3proxy-{VERSION}", fill).glob("*.jar")
    return jar
