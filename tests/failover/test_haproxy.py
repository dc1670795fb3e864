"""What HAProxy with `deploy/haproxy.cfg` lets through to the web servers."""

import http.client
import json
import shutil
import threading
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dev.processes import free_port, guard
from dev.system_parts import PATH
from tests.failover.haproxy import start_haproxy
from tests.failover.waiting import wait_for

pytestmark = [pytest.mark.haproxy, pytest.mark.xdist_group("failover")]
CLAIMS = {
    "X-Forwarded-For": "192.0.2.1",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "evil.example.org",
    "Forwarded": "for=192.0.2.1",
    "X-Request-ID": "4711",
    "traceparent": "00-1-1-01",
    "X-Remote-User": "admin",
    "X_Remote_User": "admin",
    "X-Remote-Groups": "opg",
}


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers that arrived."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(self.headers.items())).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def port(tmp_path):
    """The port of HAProxy, behind which a server echoes headers."""
    haproxy = shutil.which("haproxy", path=PATH)
    if haproxy is None:
        pytest.skip("no haproxy here")
    run = tmp_path / "run"
    run.mkdir()
    port = free_port()
    with ExitStack() as stack:
        watchdog = guard(run)
        stack.callback(watchdog.wait, timeout=60)
        stack.callback(watchdog.stdin.close)
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Echo))
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        start_haproxy(
            haproxy,
            tmp_path / "haproxy",
            run,
            listen=[f"127.0.0.1:{port}"],
            web_servers=[f"127.0.0.1:{server.server_port}"] * 2,
            database=f"127.0.0.1:{free_port()}",
            databases=["127.0.0.1"] * 2,
        )
        wait_for(lambda: is_served(port))
        yield port


def is_served(port):
    try:
        return ask(port, "GET", "/")[0] == 200
    except OSError:
        return False


def ask(port, method, path, headers=None, body=None):
    """Return status and text of an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_what_clients_claim_of_themselves_is_set_or_stripped(port):
    status, text = ask(port, "GET", "/", CLAIMS)
    headers = {name.lower(): value for name, value in json.loads(text).items()}
    assert status == 200
    assert headers.pop("x-request-id") != CLAIMS["X-Request-ID"]
    assert headers.pop("x-forwarded-for") == "127.0.0.1"
    assert headers.pop("x-forwarded-proto") == "http"
    assert set(headers) <= {"host", "accept-encoding", "connection"}


@pytest.mark.parametrize(
    ("path", "megabytes", "status"),
    [("/", 2, 200), ("/", 4, 413), ("/api/v1/capture/batches/", 4, 200)],
)
def test_only_captures_send_more_than_3_mb(port, path, megabytes, status):
    try:
        answered, _ = ask(port, "POST", path, body=b"x" * megabytes * 1024 * 1024)
    except (BrokenPipeError, ConnectionResetError):
        answered = 413  # it answered before all was sent
    assert answered == status
