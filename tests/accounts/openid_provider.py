"""A real OpenID provider on a real port, in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

from dev.processes import free_port


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class Provider:
    issuer: str

    def has(self, subject: str, **claims: object) -> None:
        """Know a user of this subject, with these claims."""
        body = json.dumps(claims).encode()
        urlopen(
            Request(
                f"{self.issuer}/users/{subject}",
                body,
                {"Content-Type": "application/json"},
                method="PUT",
            )
        ).close()

    def log_in(self, where: str, subject: str, action: str = "authorize") -> str:
        """Do what the user does at the provider; return where the browser is sent."""
        form = urlencode({"sub": subject, "action": action}).encode()
        try:
            build_opener(_Stay).open(where, form).close()
        except HTTPError as answer:
            answer.close()
            return str(answer.headers["Location"])
        raise AssertionError("no redirect")


@contextmanager
def provider() -> Iterator[Provider]:
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        issuer = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urlopen(f"{issuer}/.well-known/openid-configuration").close()
                break
            except OSError:
                time.sleep(0.1)
        yield Provider(issuer)
    finally:
        process.terminate()
        process.wait(20)
