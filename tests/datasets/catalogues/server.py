"""A small HTTP server that answers like a catalogue, and fails as it is told."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ANSWERS = Path(__file__).parents[1] / "answers"


def answer(name: str) -> bytes:
    """Return one of the sample answers, as a server sends it."""
    return (ANSWERS / name).read_bytes()


def json_answer(name: str) -> Any:
    return json.loads(answer(name))


@dataclass(frozen=True)
class Request:
    method: str
    #: Path and query as they were sent.
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def segments(self) -> list[str]:
        return [unquote(segment) for segment in urlsplit(self.target).path.split("/")[1:]]

    @property
    def query(self) -> dict[str, str]:
        values = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: value[0] for name, value in values.items()}

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.body.decode(), keep_blank_values=True)

    def json(self) -> Any:
        return json.loads(self.body)

    def names_in_body(self) -> int:
        """Return how many files the body names."""
        return max(
            self.body.count(b"file_name="),
            self.body.count(b'"name"'),
            self.body.count(b'"did"'),
            self.body.count(b'"fid"'),
        )


@dataclass(frozen=True)
class Response:
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain"
    headers: dict[str, str] = field(default_factory=dict)
    #: Length that the headers announce, if it is not that of the body.
    announced: int | None = None

    def with_body(self, body: bytes, announced: int | None) -> "Response":
        return replace(self, body=body, announced=announced)


def as_json(value: object, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode(), "application/json")


class FakeCatalogue(ThreadingHTTPServer):
    """Override `answer`, `rejection` and `is_sign_in`."""

    daemon_threads = True
    request_queue_size = 50
    #: What a sign-in gives, if there is one.
    token = "token-of-the-session"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Response | None] = lambda request: None
        self.change: Callable[[Request, Response], Response] = lambda request, response: response
        self.delay_seconds = 0.0
        self._rejections_left = 0
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
            self.server_close()

    def reject(self, times: int) -> None:
        """Reject the credential of the next requests."""
        self._rejections_left = times

    def respond(self, request: Request) -> Response:
        self.requests.append(request)
        time.sleep(self.delay_seconds)
        if self._rejections_left and not self.is_sign_in(request):
            self._rejections_left -= 1
            return self.rejection(request)
        response = self.fault(request)
        if response is None:
            response = self.change(request, self.answer(request))
        return response

    def answer(self, request: Request) -> Response:
        raise NotImplementedError

    def rejection(self, request: Request) -> Response:
        return Response(401, b"Token expired")

    def is_sign_in(self, request: Request) -> bool:
        return False

    def handle_error(self, *_: object) -> None:
        """Be silent about a client that hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: FakeCatalogue

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, dict(self.headers), body)
        response = self.server.respond(request)
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        length = len(response.body) if response.announced is None else response.announced
        self.send_header("Content-Length", str(length))
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Be silent."""
