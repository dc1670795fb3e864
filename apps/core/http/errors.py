"""Reasons why a request to another server failed.

No message contains the path or query of a URL, because they may be secrets.
"""

from http.client import InvalidURL


class HttpError(Exception):
    """A request failed; the message says why and can be shown to users."""


class AddressRefused(HttpError):
    """The portal may not call this server."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(f"{server} may not be called")


class NameNotResolved(HttpError):
    """The host name does not resolve to an address."""

    def __init__(self, host: str, reason: Exception) -> None:
        self.host = host
        super().__init__(f"{host} cannot be resolved: {reason}")


class ConnectionFailed(HttpError):
    """The connection failed, or the response is not HTTP.

    `reason` is the error of the socket, TLS or HTTP.
    """

    def __init__(self, reason: Exception) -> None:
        # The message of `InvalidURL` contains the path.
        if isinstance(reason, InvalidURL):
            reason = InvalidURL("The URL contains control characters or blanks.")
        self.reason = reason
        super().__init__(f"{type(reason).__name__}: {reason}")


class TimedOut(ConnectionFailed):
    """The server did not connect, respond or finish in time."""


class CutShort(ConnectionFailed):
    """The server sent less data than it announced."""


class ResponseTooLarge(HttpError):
    """The response is larger than the limit."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"The answer is larger than {most_bytes // 1_000_000} MB.")


class Compressed(HttpError):
    """The response is compressed, although the request did not accept that."""

    def __init__(self, encoding: str) -> None:
        super().__init__(f"The answer is compressed ({encoding[:20]}), which was not requested.")
