"""An OpenID provider on a real port whose answers a test sets: forged, slow,
or no OpenID Connect at all.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.programs.certificates import Certificate, speak_tls

DISCOVERY, TOKEN, KEYS, USER = "/.well-known/openid-configuration", "/token", "/keys", "/user"


class HostileProvider:
    """Answers as a good provider would, except where the test changed `claims`,
    `key` or `answers`.
    """

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.published_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.start_again()

    def start_again(self) -> None:
        #: Bodies by path, in place of good ones; a list of bytes is sent a part at a time, half a
        #: second apart.
        self.answers: dict[str, Any] = {}
        self.status = 200
        #: Statuses by path, in place of that one.
        self.statuses: dict[str, int] = {}
        self.key, self.algorithm = self.published_key, "RS256"
        self.claims: dict[str, Any] = {}
        self.calls: list[str] = []

    def answer(self, path: str) -> Any:
        self.calls.append(path)
        if path in self.answers:
            return self.answers[path]
        return json.dumps(self._good_answer(path)).encode()

    def _good_answer(self, path: str) -> dict[str, Any]:
        if path == TOKEN:
            return {"access_token": "a", "token_type": "Bearer", "id_token": self.token()}
        if path == KEYS:
            return {"keys": [RSAAlgorithm.to_jwk(self.published_key.public_key(), as_dict=True)]}
        if path == USER:
            return {"sub": "s-1", "preferred_username": "ann"}
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": self.issuer + TOKEN,
            "jwks_uri": self.issuer + KEYS,
            "userinfo_endpoint": self.issuer + USER,
        }

    def token(self) -> str:
        now = int(time.time())
        good = {"iss": self.issuer, "aud": "portal", "sub": "s-1", "iat": now, "exp": now + 60}
        return self.signed(good | self.claims)

    def signed(self, claims: dict[str, Any]) -> str:
        """Return the claims as a token, without those that are None."""
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.key, algorithm=self.algorithm)


@contextmanager
def hostile_provider(certificate: Certificate | None = None) -> Iterator[HostileProvider]:
    """Run a provider, by TLS if it has a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if length := int(self.headers.get("Content-Length", 0)):
                self.rfile.read(length)
            body = provider.answer(self.path)
            if isinstance(body, list):
                self._send_slowly(body)
                return
            self.send_response(provider.statuses.get(self.path, provider.status))
            self.send_header(
                "Content-Type", "application/jwt" if body.startswith(b"eyJ") else "application/json"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def _send_slowly(self, parts: list[bytes]) -> None:
            with suppress(OSError):  # the portal has hung up
                for part in parts:
                    self.wfile.write(part)
                    time.sleep(0.5)

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        speak_tls(server, certificate)
        scheme = "https"
    provider = HostileProvider(f"{scheme}://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
