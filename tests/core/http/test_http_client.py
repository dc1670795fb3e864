"""A request goes where its rule allows, and ends in bounded time and memory,
whatever the server sends.
"""

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
import urllib3

from apps.core.http.addresses import ListedHosts, ListedServers, PublicHosts
from apps.core.http.client import TLSFiles, TransferLimits, send
from apps.core.http.errors import (
    AddressRefused,
    Compressed,
    ConnectionFailed,
    CutShort,
    HttpError,
    NameNotResolved,
    ResponseTooLarge,
    TimedOut,
)
from tests.programs import dripping_server
from tests.programs.certificates import self_signed, speak_tls
from tests.programs.dripping_server import PATIENCE_SECONDS, dripping

LIMITS = TransferLimits(connect=5, read=5, total=10, most_bytes=1_000_000)
#: Only the whole time is limited.
HASTY = TransferLimits(
    connect=2 * PATIENCE_SECONDS, read=2 * PATIENCE_SECONDS, total=0.3, most_bytes=1_000_000
)
LOOPBACK = PublicHosts(["127.0.0.0/8", "::1/128"])
OK = b"HTTP/1.1 200 OK\r\n"


class Server(ThreadingHTTPServer):
    """Sends the same bytes to everyone, and notes the requests."""

    daemon_threads = True

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """Be silent about a client that hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        self.wfile.write(self.server.answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Be silent."""


@contextmanager
def answering(answer: bytes, certificate=None) -> Iterator[Server]:
    with Server(answer) as server:
        if certificate:
            speak_tls(server, certificate)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def body_from(url: str, rule=LOOPBACK, limits=LIMITS, **request) -> bytes:
    with send("GET", url, rule=rule, limits=limits, **request) as answer:
        return answer.body()


def url_of(server: Server, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def resolving(monkeypatch, *answers: list[str]) -> list[str]:
    """Let names resolve to these addresses, one answer after the other;
    return the names that were looked up.
    """
    names, answers_left = [], list(answers)
    getaddrinfo = socket.getaddrinfo

    def lookup(host, *args, **options):
        try:
            ip_address(host)
        except ValueError:
            names.append(host)
            return [(0, 0, 0, "", (address, 0)) for address in answers_left.pop(0)]
        return getaddrinfo(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return names


def connecting(monkeypatch, *, refused: tuple[str, ...] = ()) -> list[str]:
    """Let these addresses refuse connections; return the addresses of all connections that were
    tried.
    """
    addresses = []
    create_connection = urllib3.util.connection.create_connection

    def connect(address, *args, **options):
        addresses.append(address[0])
        if address[0] in refused:
            raise ConnectionRefusedError("refused by the test")
        return create_connection(address, *args, **options)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", connect)
    return addresses


def test_request_and_answer_pass_unchanged():
    with answering(b"HTTP/1.1 201 Made\r\nX-Kind: log\r\nContent-Length: 4\r\n\r\nbody") as server:
        url = url_of(server, "/a%2fb?q={x}&r=a+b")
        with send(
            "POST", url, rule=LOOPBACK, limits=LIMITS, headers={"X-Id": "7"}, body=b"{}"
        ) as answer:
            assert (answer.status, answer.reason, answer.headers["x-kind"]) == (201, "Made", "log")
            assert answer.body() == b"body"
    ((method, path, headers, body),) = server.requests
    assert (method, path, body) == ("POST", "/a%2fb?q={x}&r=a+b", b"{}")
    assert headers == {
        "Host": f"127.0.0.1:{server.server_port}",
        "User-Agent": "opsportal",
        "Accept-Encoding": "identity",
        "Content-Length": "2",
        "X-Id": "7",
    }


def test_chunked_body_and_one_without_a_length_are_read():
    with answering(
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    ) as server:
        assert body_from(url_of(server)) == b"abcde"
    with answering(OK + b"\r\nabcde") as server:
        assert body_from(url_of(server)) == b"abcde"


def test_redirect_is_an_answer_and_is_not_followed():
    with answering(b"") as other, answering(b"") as server:
        server.answer = (
            f"HTTP/1.1 302 Found\r\nLocation: {url_of(other)}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        with send("GET", url_of(server), rule=LOOPBACK, limits=LIMITS) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, url_of(other))
        assert (len(server.requests), other.requests) == (1, [])


def test_proxy_of_the_environment_is_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(OK + b"\r\nhere") as server:
        assert body_from(url_of(server)) == b"here"


@pytest.mark.parametrize(
    "length", [b"", b"Content-Length: 1000001\r\n"], ids=["unknown length", "known length"]
)
def test_body_over_the_limit_is_refused(length):
    with answering(OK + length + b"\r\n" + b"x" * 1_000_001) as server:
        with pytest.raises(ResponseTooLarge, match="The answer is larger than 1 MB"):
            body_from(url_of(server))
        server.answer = OK + b"\r\n" + b"x" * 1_000_000
        assert len(body_from(url_of(server))) == 1_000_000


def test_compressed_body_is_refused_before_it_is_read():
    bomb = gzip.compress(b" " * 50_000_000)
    with (
        answering(OK + b"Content-Encoding: gzip\r\n\r\n" + bomb) as server,
        pytest.raises(Compressed, match="gzip"),
    ):
        body_from(url_of(server))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            b"Content-Length: 10\r\n\r\n[]",
            "IncompleteRead: IncompleteRead(2 bytes read, 8 more expected)",
        ),
        (b"Transfer-Encoding: chunked\r\n\r\nA\r\n[]", "IncompleteRead: IncompleteRead("),
    ],
)
def test_body_that_is_cut_short_is_refused(rest, message):
    with answering(OK + rest) as server, pytest.raises(CutShort) as caught:
        body_from(url_of(server))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "RemoteDisconnected: Remote end closed connection without response"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "BadStatusLine: SSH-2.0-OpenSSH_9.6"),
        (OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n", "LineTooLong: got more than 65536 bytes"),
    ],
)
def test_answer_that_is_no_http_is_refused(answer, message):
    with answering(answer) as server, pytest.raises(ConnectionFailed) as caught:
        body_from(url_of(server))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("beginning", ["TLS_HANDSHAKE", "HEADERS", "BODY", "LONG_BODY"])
def test_server_that_drips_is_cut_off(beginning):
    scheme = "https" if beginning == "TLS_HANDSHAKE" else "http"
    start = time.monotonic()
    with (
        dripping(getattr(dripping_server, beginning)) as port,
        pytest.raises(TimedOut, match="not complete in time"),
    ):
        body_from(f"{scheme}://127.0.0.1:{port}/", limits=HASTY)
    assert time.monotonic() - start < PATIENCE_SECONDS


def test_connection_that_opens_too_late_is_cut_at_once(monkeypatch):
    """Name servers, and addresses that do not answer,
    take their time before there is a connection to cut.
    """
    create_connection = urllib3.util.connection.create_connection

    def connect_late(*args, **options):
        time.sleep(0.6)
        return create_connection(*args, **options)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", connect_late)
    start = time.monotonic()
    with dripping(dripping_server.TLS_HANDSHAKE) as port, pytest.raises(TimedOut):
        body_from(f"https://127.0.0.1:{port}/", limits=HASTY)
    assert time.monotonic() - start < PATIENCE_SECONDS


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_silent_server_is_given_up_after_one_read(scheme):
    limits = TransferLimits(connect=0.3, read=0.3, total=PATIENCE_SECONDS * 2, most_bytes=0)
    start = time.monotonic()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(TimedOut, match="timed out"),
    ):
        body_from(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/", limits=limits)
    assert time.monotonic() - start < PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("name", "trusted", "reason"),
    [
        ("DNS:hook.example.org", True, ""),
        ("DNS:other.example.org", True, "Hostname mismatch"),
        ("IP:127.0.0.1", True, "Hostname mismatch"),
        ("DNS:hook.example.org", False, "certificate verify failed"),
    ],
)
def test_certificate_is_of_the_name_and_not_of_the_address(
    monkeypatch, tmp_path, name, trusted, reason
):
    certificate = self_signed(tmp_path, name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    resolving(monkeypatch, ["127.0.0.1"])
    with answering(OK + b"\r\nhere", certificate) as server:
        url = f"https://hook.example.org:{server.server_port}/"
        if reason:
            with pytest.raises(ConnectionFailed, match=f"SSLCertVerificationError: .*{reason}"):
                body_from(url)
            assert server.requests == []
        else:
            assert body_from(url) == b"here"
            assert server.requests[0][2]["Host"] == f"hook.example.org:{server.server_port}"


def test_server_without_tls_is_no_https():
    with dripping(b"no HTTP\r\n") as port, pytest.raises(ConnectionFailed, match="SSLError"):
        body_from(f"https://127.0.0.1:{port}/")


def test_name_that_changes_its_address_is_called_where_it_was_checked(monkeypatch):
    names = resolving(monkeypatch, ["93.184.216.34"], ["169.254.169.254"])
    addresses = connecting(monkeypatch, refused=("93.184.216.34",))
    with pytest.raises(ConnectionFailed, match="ConnectionRefusedError: refused by the test"):
        body_from("https://rebind.example.org/", PublicHosts())
    assert (names, addresses) == (["rebind.example.org"], ["93.184.216.34"])


@pytest.mark.parametrize(
    "special",
    [
        "127.0.0.1",
        "192.0.0.192",
        "fec0::1",
        "3fff::1",
        "64:ff9b:1::1",
        "::ffff:10.0.0.1",
        "fe80::1%eth0",
    ],
)
def test_name_with_one_special_address_is_not_called(monkeypatch, special):
    resolving(monkeypatch, ["93.184.216.34", special])
    addresses = connecting(monkeypatch)
    with pytest.raises(AddressRefused) as caught:
        body_from("https://both.example.org/", PublicHosts())
    assert (caught.value.server, addresses) == ("both.example.org", [])


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest",
        "http://localhost/",
        "http://2130706433/",
        "http:///",
        "file:///etc/passwd",
        "ftp://93.184.216.34/",
    ],
)
def test_address_of_the_inside_is_not_called(monkeypatch, url):
    addresses = connecting(monkeypatch)
    with pytest.raises((AddressRefused, NameNotResolved)):
        body_from(url, PublicHosts())
    assert addresses == []


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("8.8.8.8", True),
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("fd00::1", True),
        ("::ffff:10.1.0.1", True),
    ],
)
def test_network_of_the_inside_can_be_allowed(address, allowed):
    assert PublicHosts(["10.1.0.0/16", "fd00::/8"]).allows(ip_address(address)) is allowed


def test_address_that_answers_is_found_among_three(monkeypatch):
    addresses = connecting(monkeypatch, refused=("127.0.0.2", "127.0.0.3", "127.0.0.4"))
    with answering(OK + b"\r\nhere") as server:
        url = f"http://many.example.org:{server.server_port}/"
        resolving(
            monkeypatch,
            ["127.0.0.2", "127.0.0.3", "127.0.0.1"],
            ["127.0.0.2", "127.0.0.3", "127.0.0.4", "::1"],
        )
        assert body_from(url) == b"here"
        with pytest.raises(ConnectionFailed, match="refused"):
            body_from(url)
    assert addresses == [
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.4",
    ]


def test_address_of_ipv6_is_called():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        server.settimeout(5)
        answers = threading.Thread(target=_answer_once, args=(server,))
        answers.start()
        assert body_from(f"http://[::1]:{server.getsockname()[1]}/") == b"here"
        answers.join()


def _answer_once(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(65_536)
        client.sendall(OK + b"\r\nhere")


@pytest.mark.parametrize(
    ("rule", "url", "server"),
    [
        (
            ListedServers(["https://logs.example.org"]),
            "http://logs.example.org/a",
            "http://logs.example.org",
        ),
        (
            ListedServers(["https://logs.example.org"]),
            "https://logs.example.org:8443/",
            "https://logs.example.org:8443",
        ),
        (
            ListedServers(["https://logs.example.org"]),
            "https://logs.example.org@evil/",
            "https://logs.example.org@evil",
        ),
        (
            ListedHosts(["icinga.example.org:5665"]),
            "https://icinga.example.org/",
            "icinga.example.org",
        ),
        (
            ListedHosts(["icinga.example.org:5665"]),
            "https://icinga.example.org:1/",
            "icinga.example.org:1",
        ),
        (
            ListedHosts(["icinga.example.org"]),
            "https://icinga.example.org.evil/",
            "icinga.example.org.evil",
        ),
        (
            ListedHosts(["icinga.example.org"]),
            "ftp://icinga.example.org/",
            "ftp://icinga.example.org",
        ),
    ],
)
def test_server_that_is_not_listed_is_not_called(monkeypatch, rule, url, server):
    addresses = connecting(monkeypatch)
    with pytest.raises(AddressRefused) as caught:
        body_from(url, rule)
    assert (caught.value.server, addresses) == (server, [])


def test_listed_server_is_called_where_its_name_leads():
    with answering(OK + b"\r\nhere") as server:
        url = url_of(server)
        assert body_from(url, ListedServers([url.rstrip("/")])) == b"here"
        assert body_from(url, ListedHosts(["127.0.0.1"])) == b"here"
        assert body_from(url, ListedHosts([f"127.0.0.1:{server.server_port}"])) == b"here"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        OK + b"no header\r\n\r\n",
        OK + b"Content-Length: 9\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200",
    ],
)
@pytest.mark.parametrize("path", ["/T0K3N?key=T0K3N", "/T0K3N x", "/T0K3N\x7f", "/T0K3N\xe4"])
def test_no_message_and_no_log_shows_the_path_of_a_url(caplog, answer, path):
    """A path may be a secret, as in the addresses that chat rooms give to webhooks."""
    message = ""
    with answering(answer) as server:
        try:
            body_from(url_of(server, path))
        except HttpError as error:
            message = f"{error!r} {error} {error.__cause__!r}"
    assert "T0K3N" not in message + caplog.text


def test_no_port_and_no_url_are_errors_of_the_client():
    for url in ("http://127.0.0.1:99999/", "http://[bad/"):
        with pytest.raises(HttpError):
            body_from(url)


@pytest.fixture
def certificate_needed(tmp_path) -> Iterator[tuple[Server, str, str]]:
    """A server that serves only the owner of a certificate; yield it, certificate and key."""
    certificate, key = self_signed(tmp_path, "DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The same certificate serves for both sides.
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with Server(OK + b"\r\nhere") as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, str(certificate), str(key)
        finally:
            server.shutdown()
            thread.join()


def test_client_certificate_is_sent_to_a_server_whose_authority_is_given(certificate_needed):
    server, certificate, key = certificate_needed
    url = f"https://localhost:{server.server_port}/"
    tls = TLSFiles(certificate, key, authorities=certificate)
    assert body_from(url, tls=tls) == b"here"

    with pytest.raises(ConnectionFailed):
        body_from(url, tls=TLSFiles(authorities=certificate))
    with pytest.raises(ConnectionFailed, match="certificate verify failed"):
        body_from(url, tls=TLSFiles(certificate, key))
    assert len(server.requests) == 1


def test_one_file_may_hold_certificate_and_key(certificate_needed, tmp_path):
    server, certificate, key = certificate_needed
    proxy = tmp_path / "proxy.pem"
    proxy.write_text(Path(certificate).read_text() + Path(key).read_text())
    tls = TLSFiles(certificate=str(proxy), authorities=certificate)
    assert body_from(f"https://localhost:{server.server_port}/", tls=tls) == b"here"


def test_certificate_that_cannot_be_read_is_an_error_of_the_request(certificate_needed):
    server, certificate, _key = certificate_needed
    tls = TLSFiles("/nonexistent.pem", authorities=certificate)
    with pytest.raises(ConnectionFailed, match="No such file"):
        body_from(f"https://localhost:{server.server_port}/", tls=tls)
