"""The sender's end of the portal sink, against a server that answers what a test wants."""

import json
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apps.archive.sinks.base import BadSink, SinkRefused, SinkUnavailable, SinkURL
from apps.archive.sinks.portal import PortalClient
from apps.archive.sinks.registry import open_sink
from apps.archive.wire.batches import unpack_untrusted
from apps.archive.wire.report import CaptureReport
from apps.core.domain.masking import Rule
from tests.certificates import self_signed, speak_tls
from tests.contracts.sink import a_job


class Server(ThreadingHTTPServer):
    """Answers with `answer(request body)`: status and body; notes connections and what it was sent."""

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.requests, self.connections = answer, [], set()

    @property
    def url(self):
        return f"portal+http://127.0.0.1:{self.server_port}/below/"


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


@pytest.fixture(autouse=True)
def token(settings):
    settings.ARCHIVE_PORTAL_TOKEN = "geheim"


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


def taking(limit):
    """A portal behind a proxy that lets batches of so many jobs through."""

    def answer(body):
        count = len(unpack_untrusted(body))
        return (200, {"received": count, "refused": {}}) if count <= limit else (413, b"<html>too large</html>")

    return answer


def test_one_connection_and_the_token_in_its_header():
    with serving(taking(10)) as server, closing(open_sink(server.url)) as sink:
        assert sink.write([a_job(1)]) == sink.write([a_job(2)]) == {}
    assert len(server.connections) == 1
    path, headers, body = server.requests[0]
    assert (path, headers["Authorization"]) == ("/below/api/v1/capture/jobs/", "Bearer geheim")
    assert unpack_untrusted(body) == [a_job(1)]


@pytest.mark.parametrize("job", [a_job(1), a_job(1, script=b"", environment=b"")], ids=["usual", "without a byte"])
def test_batches_become_smaller_until_they_are_taken(job):
    with serving(taking(3)) as server, closing(open_sink(server.url)) as sink:
        assert sink.write([job] * 20) == {}
        sent = [len(unpack_untrusted(body)) for _, _, body in server.requests]
        assert sink.write([job] * 4) == {}
    assert sent[:4] == [20, 10, 5, 2]
    assert len(server.requests) - len(sent) == 2  # it has learnt


def test_single_job_that_is_too_large_is_refused_and_the_others_are_kept():
    def answer(body):
        return (413, b"") if b"large" in [job.script for job in unpack_untrusted(body)] else taking(10)(body)

    with serving(answer) as server, closing(open_sink(server.url)) as sink:
        jobs = [a_job(1), a_job(2, script=b"large"), a_job(3)]
        refused = sink.write(jobs)
    assert list(refused) == [1]
    assert "answers 413" in refused[1]


def test_job_that_no_batch_may_hold_is_not_even_sent(monkeypatch):
    monkeypatch.setattr("apps.archive.sinks.portal.MOST_BYTES", 500)
    with serving(taking(10)) as server, closing(open_sink(server.url)) as sink:
        sink._batch_bytes = 500
        refused = sink.write([a_job(1), a_job(2, script=b"x" * 1000), a_job(3)])
    assert list(refused) == [1]
    assert "the portal takes 500" in refused[1]
    assert sum(len(unpack_untrusted(body)) for _, _, body in server.requests) == 2


def test_places_of_the_refused_are_those_of_the_whole():
    def answer(body):
        return 200, {"received": len(unpack_untrusted(body)), "refused": {"0": "no"}}

    with serving(answer) as server, closing(open_sink(server.url)) as sink:
        sink._batch_bytes = 1
        assert sink.write([a_job(1), a_job(2)]) == {0: "no", 1: "no"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {"detail": "unknown"}), r"answers 401: unknown \(see ARCHIVE_PORTAL_TOKEN\)"),
        ((403, {"detail": "not yours"}), "answers 403: not yours"),
        ((400, b"<h1>Bad Request</h1>"), "answers 400"),
        ((404, b""), "answers 404"),
        ((429, {}), "answers 429"),
        ((500, b""), "answers 500"),
        ((503, {"detail": "The database does not answer"}), "answers 503: The database does not answer"),
        ((302, b""), "answers 302"),
        ((200, b"<html>welcome to the hotel</html>"), "as no portal does"),
        ((200, {"received": 0, "refused": {}}), "as no portal does"),
        ((200, {"received": 1, "refused": {"7": "no"}}), "as no portal does"),
        ((200, []), "as no portal does"),
    ],
    ids=str,
)
def test_answer_that_is_no_word_on_the_jobs_keeps_them_in_the_journal(answer, why):
    with (
        serving(answer) as server,
        closing(open_sink(server.url)) as sink,
        pytest.raises(SinkUnavailable, match=why),
    ):
        sink.write([a_job(1)])
    assert len(server.requests) == 1


def test_batch_that_cannot_be_read_is_tried_job_by_job():
    with (
        serving((422, {"detail": "cannot be read"})) as server,
        closing(open_sink(server.url)) as sink,
        pytest.raises(SinkRefused, match="cannot be read"),
    ):
        sink.write([a_job(1), a_job(2)])


def test_token_is_told_to_nobody_but_the_portal(tmp_path, monkeypatch):
    certificate = self_signed(tmp_path, "IP:127.0.0.1")
    ours = (200, {"received": 1, "refused": {}})
    with serving(ours, certificate) as server:
        url = server.url.replace("http:", "https:")
        with closing(open_sink(url)) as sink, pytest.raises(SinkUnavailable, match="certificate verify failed"):
            sink.write([a_job()])
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        with closing(open_sink(url)) as sink:
            assert sink.write([a_job()]) == {}
        assert server.requests[0][1]["Authorization"] == "Bearer geheim"


def test_nobody_listens():
    with closing(open_sink("portal+http://127.0.0.1:1/")) as sink, pytest.raises(SinkUnavailable, match="refused"):
        sink.write([a_job(1)])


def test_report_is_told():
    with serving((204, b"")) as server:
        client = PortalClient.from_url(SinkURL.parse(server.url))
        client.report("alps", CaptureReport(captured=3).as_detail())
        client.close()
    path, _, body = server.requests[0]
    assert path == "/below/api/v1/capture/report/"
    assert (json.loads(body)["cluster"], json.loads(body)["report"]["captured"]) == ("alps", 3)


def test_masking_rules_are_asked_for():
    with serving((200, {"masking_rules": [["name", "PIN"]]})) as server:
        client = PortalClient.from_url(SinkURL.parse(server.url))
        assert client.masking_rules() == [Rule("name", "PIN")]
        client.close()


@pytest.mark.parametrize("answer", [(200, {}), (200, {"masking_rules": [["name", "("]]}), (500, b""), (401, {})])
def test_report_that_fails_says_so(answer):
    with serving(answer) as server:
        client = PortalClient.from_url(SinkURL.parse(server.url))
        with pytest.raises(SinkUnavailable, match=r"\S"):
            client.report("alps", CaptureReport().as_detail())
        with pytest.raises(SinkUnavailable, match=r"\S"):
            client.masking_rules()
        client.close()


@pytest.mark.parametrize("url", ["portal+https:", "portal+https:///x", "portal+https://a,b/", "portal+https://a/?x=1"])
def test_bad_url_is_named(url):
    with pytest.raises(BadSink, match="portal"):
        open_sink(url)


def test_token_comes_by_the_settings(settings):
    settings.ARCHIVE_PORTAL_TOKEN = ""
    with pytest.raises(BadSink, match="ARCHIVE_PORTAL_TOKEN_FILE"):
        open_sink("portal+https://portal.example.org")
