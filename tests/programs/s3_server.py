"""A real S3 server for the tests of mark `s3`, started once a session as `bin/s3-up` does.

A test module that asks for the fixture `s3` says so with

    pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("s3")]
"""

import os
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from apps.core.http.bucket_url import ObjectStoreURL
from apps.jobs.domain.months.stores.bucket import BucketTarget
from dev.messages import SetupError
from dev.processes import free_port, guard
from dev.s3proxy import ACCESS_KEY, SECRET_KEY, S3Proxy, fetch

BUCKET = "portal"
_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")


class S3Server:
    """A running server with a bucket, and how tests look into it and do it harm."""

    def __init__(self, server: S3Proxy) -> None:
        self._server = server
        self.port = server.port
        self.access_key, self.secret_key = ACCESS_KEY, SECRET_KEY
        self._bucket = server.directory / "data" / BUCKET
        self._bucket.mkdir()

    def new_url(self) -> str:
        """Return the URL of a prefix that no other test uses."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={self._server.url}"

    def target(self, url: str, **changes: str) -> BucketTarget:
        keys = {"access_key": self.access_key, "secret_key": self.secret_key, **changes}
        return BucketTarget(ObjectStoreURL.parse(url), **keys)

    def objects(self, url: str) -> dict[str, Path]:
        """Return the objects of a prefix by name, as the server keeps them."""
        root = self._bucket / ObjectStoreURL.parse(url).prefix
        return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it hang, connections and all, as a machine does that swaps; then it goes on."""
        pid = self._server.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


class WatchedRelay:
    """Shows the first bytes of each request to `watch`, and then passes it on to the server.

    If `watch` returns false, it does not: the connection ends. A client sends the first bytes of a
    request at once.
    """

    def __init__(self, port: int, watch: Callable[[bytes], bool]) -> None:
        self._target = ("127.0.0.1", port)
        self._watch = watch
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for copy, ends in ((self._ask, (client, server)), (_answer, (server, client))):
                    threading.Thread(target=copy, args=ends, daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client, server:
            while data := client.recv(65536):
                if data.startswith(_METHODS) and not self._watch(data):
                    return
                server.sendall(data)


def _answer(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := server.recv(65536):
            client.sendall(data)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server. A host that cannot run it skips the test; with CI=true it fails."""
    try:
        fetch()
    except SetupError as error:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"s3: {error}")
    directory = Path(tempfile.mkdtemp(prefix="opsportal-s3-"))
    (directory / "run").mkdir()
    watchdog = guard(directory / "run", remove=directory)
    try:
        server = S3Proxy(directory, port=free_port())
        server.start()
        yield S3Server(server)
    finally:
        watchdog.communicate(timeout=60)
