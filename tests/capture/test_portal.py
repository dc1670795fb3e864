"""The client of the portal's API, against a server that answers what a test wants."""

import json
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest

from apps.core.domain.secrets.masking import MaskPattern
from capture.journal.journal import JournaledBatch
from capture.portal import BatchRefused, BatchTooLarge, HttpPortal, PortalAway
from capture.wire.report import CaptureReport
from tests.programs.certificates import self_signed, speak_tls

JOURNAL = "0123456789abcdef0123456789abcdef"
BATCH = JournaledBatch(
    last=7, jobs=2, captured_at=1, size_bytes=10, content=b"packed", journal=JOURNAL
)
TAKEN = 200, {"received": True}


def portal_at(url):
    return closing(HttpPortal(url, "geheim", "alps"))


class Server(ThreadingHTTPServer):
    """Answers with `answer(request body)`: status and body;
    notes connections and what it was sent.
    """

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.requests, self.connections = answer, [], set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/below/"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, self.headers, body))
        self.server.connections.add(self.client_address)
        status, answer = self.server.answer(body)
        answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@contextmanager
def serving(answer, certificate=None):
    server = Server(answer if callable(answer) else lambda _: answer)
    if certificate:
        speak_tls(server, certificate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_batch_goes_as_it_is_with_its_place_and_the_token_on_one_connection():
    with serving(TAKEN) as server, portal_at(server.url) as portal:
        portal.take(BATCH)
        portal.take(BATCH)
    assert len(server.connections) == 1
    path, headers, body = server.requests[0]
    assert (headers["Authorization"], body) == ("Bearer geheim", b"packed")
    assert headers["Content-Type"] == "application/vnd.opsportal.jobs"
    assert urlsplit(path).path == "/below/api/v1/capture/batches/"
    assert dict(parse_qsl(urlsplit(path).query)) == {
        "cluster": "alps",
        "journal": JOURNAL,
        "sequence": "7",
    }


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        ((413, b"<html>too large</html>"), BatchTooLarge, "answers 413"),
        ((422, {"detail": "cannot be read"}), BatchRefused, "answers 422: cannot be read"),
    ],
)
def test_batch_that_is_not_taken_is_told_from_a_portal_that_is_away(answer, error, why):
    with (
        serving(answer) as server,
        portal_at(server.url) as portal,
        pytest.raises(error, match=why),
    ):
        portal.take(BATCH)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {"detail": "unknown"}), r"answers 401: unknown \(see ARCHIVE_PORTAL_TOKEN\)"),
        ((403, {"detail": "not yours"}), "answers 403: not yours"),
        ((400, b"<h1>Bad Request</h1>"), "answers 400"),
        ((404, b""), "answers 404"),
        ((429, {}), "answers 429"),
        ((500, b""), "answers 500"),
        (
            (503, {"detail": "The database does not answer"}),
            "answers 503: The database does not answer",
        ),
        ((302, b""), "answers 302"),
        ((200, b"<html>welcome to the hotel</html>"), "answers 200"),
        ((200, []), "answers 200"),
    ],
    ids=str,
)
def test_answer_that_is_no_word_on_the_batch_keeps_it_in_the_journal(answer, why):
    with (
        serving(answer) as server,
        portal_at(server.url) as portal,
        pytest.raises(PortalAway, match=why),
    ):
        portal.take(BATCH)
    assert len(server.requests) == 1


def test_token_is_told_to_nobody_but_the_portal(tmp_path, monkeypatch):
    certificate = self_signed(tmp_path, "IP:127.0.0.1")
    with serving(TAKEN, certificate) as server:
        url = server.url.replace("http:", "https:")
        with portal_at(url) as portal, pytest.raises(PortalAway, match="certificate verify failed"):
            portal.take(BATCH)
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        with portal_at(url) as portal:
            portal.take(BATCH)
        assert server.requests[0][1]["Authorization"] == "Bearer geheim"


def test_nobody_listens():
    with portal_at("http://127.0.0.1:1/") as portal, pytest.raises(PortalAway, match="refused"):
        portal.take(BATCH)


def test_report_is_told():
    with serving((204, b"")) as server, portal_at(server.url) as portal:
        portal.report(CaptureReport(captured=3).as_detail())
    path, _, body = server.requests[0]
    assert path == "/below/api/v1/capture/report/"
    assert (json.loads(body)["cluster"], json.loads(body)["report"]["captured"]) == ("alps", 3)


def test_masking_rules_are_asked_for():
    with (
        serving((200, {"masking_rules": [["name", "PIN"]]})) as server,
        portal_at(server.url) as portal,
    ):
        assert portal.masking_rules() == [MaskPattern("name", "PIN")]


@pytest.mark.parametrize(
    "answer", [(200, {}), (200, {"masking_rules": [["name", "("]]}), (500, b""), (401, {})]
)
def test_report_that_fails_says_so(answer):
    with serving(answer) as server, portal_at(server.url) as portal:
        with pytest.raises(PortalAway, match=r"\S"):
            portal.report(CaptureReport().as_detail())
        with pytest.raises(PortalAway, match=r"\S"):
            portal.masking_rules()
