"""Requests to catalogues: TLS, limits, URLs, and the kind of each error."""

import json
import ssl
from collections.abc import Iterator

import pytest

from apps.datasets.catalogues.base import (
    CatalogueConfiguration,
    Refused,
    SignInNeeded,
    TryLater,
    Unclear,
)
from apps.datasets.catalogues.connection import CatalogueConnection, FileToken, Reply, path_of
from tests.datasets.catalogues.server import FakeCatalogue, Request, Response
from tests.programs.certificates import Certificate, self_signed


class Echo(FakeCatalogue):
    def answer(self, request: Request) -> Response:
        return Response(body=b"hello")


@pytest.fixture
def server() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def certificate(tmp_path) -> Certificate:
    return self_signed(tmp_path, "DNS:localhost")


@pytest.fixture
def tls_server(certificate) -> Iterator[Echo]:
    """A server that serves only the owner of the certificate, which is also its own."""
    server = Echo()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield server
    server.close()


def connect(base_url: str, credential_file: str = "", **options: str) -> CatalogueConnection:
    sign_in = FileToken(credential_file, header="Authorization", prefix="Bearer ")
    return CatalogueConnection(CatalogueConfiguration(base_url, credential_file, options), sign_in)


def test_certificate_and_key_are_used_for_tls(tls_server, certificate, tmp_path):
    credential = tmp_path / "credential.json"
    paths = {"certificate": str(certificate[0]), "key": str(certificate[1])}
    credential.write_text(json.dumps(paths))
    url = f"https://localhost:{tls_server.server_port}"
    options = {"authorities_file": str(certificate[0])}
    assert connect(url, str(credential), **options).ask("GET", "x").body == b"hello"

    with pytest.raises(Refused, match="certificate is not valid"):
        connect(url, str(credential)).ask("GET", "x")
    with pytest.raises(TryLater):
        connect(url, **options).ask("GET", "x")
    assert len(tls_server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b"bad name", Refused),
        (401, b"", SignInNeeded),
        (403, b"not yours", Refused),
        (404, b"missing", Refused),
        (404, b"<html>", Unclear),
        (408, b"", TryLater),
        (409, b"exists", Refused),
        (413, b"<html>", Refused),
        (425, b"", TryLater),
        (429, b"<html>", TryLater),
        (488, b"{}", Refused),
        (500, b"", TryLater),
        (521, b"<html>", TryLater),
        (204, b"", Unclear),
        (302, b"", Unclear),
        (200, b"<html>", Unclear),
    ],
)
def test_each_status_has_its_kind_of_error(server, status, body, kind):
    error = connect(server.url).error_of(Reply(status, {}, body))
    assert type(error) is kind
    assert "html" not in str(error)


def test_a_web_page_is_known_by_its_type_too(server):
    page = Reply(404, {"Content-Type": "text/HTML; charset=utf-8"}, b"Sign in")
    assert type(connect(server.url).error_of(page)) is Unclear
    with pytest.raises(Unclear):
        page.text()
    with pytest.raises(Unclear):
        list(page.json_lines())


def test_headers_may_have_any_characters(server):
    connect(server.url).ask("GET", "x", headers={"X-Password": "pä€"})
    value = server.requests[0].headers["X-Password"]
    assert value.encode("latin-1").decode() == "pä€"


def test_messages_are_short_and_in_one_line(server):
    reply = Reply(400, {}, b"a\r\n\x00b \xff" + b"x" * 10_000)
    message = str(connect(server.url).error_of(reply))
    assert message.isprintable()
    assert "a b" in message
    assert len(message) < 300


def test_queries_and_paths_are_quoted(server):
    connect(server.url).ask("GET", path_of("a/b c", "ü?#"), query=[("x", "1&y=2 +ü")])
    request = server.requests[0]
    assert request.segments == ["a/b c", "ü?#"]
    assert request.query == {"x": "1&y=2 +ü"}


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_change_a_path_are_refused(name):
    with pytest.raises(Refused):
        path_of("a", name)


def test_a_redirect_is_not_followed(server):
    server.fault = lambda request: Response(302, headers={"Location": f"{server.url}/login"})
    assert connect(server.url).ask("GET", "x").status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize("seconds", ["", "0", "-1", "x", "nan", "inf", "3601"])
def test_bad_timeouts_are_refused(server, seconds):
    with pytest.raises(Refused, match="timeout_seconds"):
        connect(server.url, timeout_seconds=seconds)


def test_without_encryption_only_reads_without_credential_leave_the_host(tmp_path):
    connect("http://example.org/api")
    connect("http://[::1]:8080/api", "credential")
    connect("https://example.org/api", "credential")
    with pytest.raises(Refused, match="https"):
        connect("http://example.org/api", "credential")


def test_a_host_without_an_address_is_asked_later():
    with pytest.raises(TryLater):
        connect("https://no-such-host.invalid").ask("GET", "x")


def test_a_compressed_or_endless_response_is_an_error(server, monkeypatch):
    server.fault = lambda request: Response(body=b"x", headers={"Content-Encoding": "gzip"})
    with pytest.raises(Unclear, match="compressed"):
        connect(server.url).ask("GET", "x")

    monkeypatch.setattr("apps.datasets.catalogues.connection._MOST_BYTES", 3)
    server.fault = lambda request: None
    with pytest.raises(Refused, match="larger"):
        connect(server.url).ask("GET", "x")
