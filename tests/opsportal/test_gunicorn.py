"""The web server with its settings of gunicorn.conf.py: what clients send it, and what it logs.

Needs no database.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.processes import free_port

pytestmark = pytest.mark.xdist_group("gunicorn")

ROOT = Path(__file__).parents[2]
START_SECONDS = 120  # far more than a start takes on a busy machine
#: The pause of clients in gunicorn.conf.py, and the one that the tests wait for.
PAUSE, SHORT_PAUSE = "CLIENT_PAUSE_SECONDS = 20", 3
SETTINGS = {
    "SECRET_KEY": "for this test alone: fifty characters and more, none secret",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "PORTAL_URL": "http://127.0.0.1",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[tuple[int, Path]]:
    """Start gunicorn, wait until it serves, and return its port and its log."""
    directory = tmp_path_factory.mktemp("web")
    log, settings = directory / "log", (ROOT / "gunicorn.conf.py").read_text()
    assert PAUSE in settings
    config = directory / "gunicorn.conf.py"
    config.write_text(settings.replace(PAUSE, f"CLIENT_PAUSE_SECONDS = {SHORT_PAUSE}"))
    port = free_port()
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "gunicorn",
        "opsportal.wsgi",
        "--config",
        str(config),
    ]
    command += [
        "--bind",
        f"127.0.0.1:{port}",
        "--workers",
        "1",
        "--threads",
        "4",
        "--access-logfile",
        "-",
    ]
    environment = {"PATH": os.environ["PATH"], **SETTINGS}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_served(process, port)
        yield port, log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_until_served(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait for the first answer: it comes once the worker, which is ready long after the master,
    has loaded Django.
    """
    ends = time.monotonic() + START_SECONDS
    while True:
        try:
            ask(port, get("/healthz"))
            return
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.1)


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize("header", ["SCRIPT_NAME: /evil", "PATH_INFO: /evil", "REMOTE_USER: admin"])
def test_no_header_changes_the_environment(server, header):
    answer = ask(server[0], get("/requests/", header))
    assert b"302" in answer.splitlines()[0]
    assert b"Location: /accounts/login/?next=/requests/" in answer


def test_scheme_is_not_what_a_client_claims(server):
    assert b"Strict-Transport-Security" not in ask(
        server[0], get("/healthz", "X-Forwarded-Proto: https")
    )


def test_chunked_form_is_refused_unread(server):
    head = get(
        "/accounts/login/",
        "Content-Type: multipart/form-data; boundary=x",
        "Transfer-Encoding: chunked",
    )
    answer = ask(server[0], head.replace(b"GET", b"POST", 1) + b"5\r\nhello\r\n0\r\n\r\n")
    assert b"411" in answer.splitlines()[0]


def test_large_form_is_refused_unread(server):
    head = get(
        "/accounts/login/",
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Length: 600000000",
    )
    assert b"413" in ask(server[0], head.replace(b"GET", b"POST", 1)).splitlines()[0]


def test_secret_urls_are_in_no_log(server):
    ask(server[0], get("/feeds/7-TopSecretToken/nothing.atom"))
    ask(server[0], get("/accounts/password/new/Mg/c0ffee-TopSecretToken/more"))
    text = server[1].read_text()
    assert "/feeds/[secret]/nothing.atom" in text
    assert "TopSecretToken" not in text


@pytest.mark.slow
def test_client_that_pauses_is_dropped(server):
    began = time.monotonic()
    assert b"200 OK" not in ask(
        server[0], b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Never-Ending: "
    )
    assert time.monotonic() - began > SHORT_PAUSE - 0.5
