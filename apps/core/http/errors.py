"""Why a request to another server failed.

No message contains the path or the query of a URL, which may be secrets.
"""

from http.client import InvalidURL


class HttpError(Exception):
    """A request failed; the message says why, and can be shown to users."""


class AddressRefused(HttpError):
    """The portal may not call this server."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(f"{server} may not be called")


class NameNotResolved(HttpError):
    """The name of the host has no address."""

    def __init__(self, host: str, reason: Exception) -> None:
        super().__init__(f"{host} cannot be resolved: {reason}")


class ConnectionFailed(HttpError):
    """The connection failed, or what came is not HTTP. `reason` is the error of the socket,
    of TLS or of HTTP.
    """

    def __init__(self, reason: Exception) -> None:
        if isinstance(reason, InvalidURL):  # its message contains the path
            reason = InvalidURL("The URL contains control characters or blanks.")
        self.reason = reason
        super().__init__(f"{type(reason).__name__}: {reason}")


class TimedOut(ConnectionFailed):
    """The server did not connect, answer or finish in time."""


class CutShort(ConnectionFailed):
    """The server sent less than it announced."""


class TooLarge(HttpError):
    """The answer is larger than the limit."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"The answer is larger than {most_bytes // 1_000_000} MB.")


class Compressed(HttpError):
    """The answer is compressed, though the request accepts this from no server."""

    def __init__(self, encoding: str) -> None:
        super().__init__(f"The answer is compressed ({encoding[:20]}), which was not requested.")
