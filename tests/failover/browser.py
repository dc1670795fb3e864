"""A user of a web process of its own."""

import http.client
from urllib.parse import urlencode

TOKEN = "t" * 32


class Browser:
    """Asks the web process as one user does, without a connection that lasts."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.session = ""

    def ask(self, method: str, path: str, **fields: str) -> tuple[int, str]:
        """Return status and body."""
        headers = {
            "Cookie": f"sessionid={self.session}; csrftoken={TOKEN}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        body = urlencode(fields | {"csrfmiddlewaretoken": TOKEN}) if fields else None
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            server.request(method, path, body, headers)
            response = server.getresponse()
            return response.status, response.read().decode()
        finally:
            server.close()

    def answers(self, path: str) -> bool:
        try:
            return self.ask("GET", path)[0] == 200
        except OSError:
            return False
