"""Requests to a catalogue by HTTP: signing in, limits, and errors by kind."""

import io
import json
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from apps.core.http.addresses import ListedServers
from apps.core.http.client import TLSFiles, TransferLimits, send
from apps.core.http.errors import (
    AddressRefused,
    Compressed,
    ConnectionFailed,
    CutShort,
    HttpError,
    ResponseTooLarge,
)
from apps.datasets.catalogues.base import (
    BadName,
    CatalogueConfiguration,
    CatalogueError,
    Incomplete,
    Refused,
    SignInNeeded,
    TryLater,
    Unclear,
)
from apps.datasets.catalogues.credentials import (
    Credentials,
    Token,
    read_credentials,
)

#: Options that every catalogue with HTTP has.
COMMON_OPTIONS = ("timeout_seconds", "authorities_file")
_CONNECT_SECONDS = 10
_DEFAULT_TIMEOUT_SECONDS = 300
#: Enough for a list of about a million files.
_MOST_BYTES = 200_000_000
_EXCERPT_CHARACTERS = 200
_WEB_PAGE = "The response is a web page, not an answer of the catalogue."
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TRY_LATER = (408, 425, 429)

Query = Iterable[tuple[str, str]]


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Reply:
    """A complete response of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_html(self) -> bool:
        """Whether it is a web page, such as an error of a proxy or a login form."""
        content_type = self.headers.get("Content-Type", "")
        start = self.body[:_EXCERPT_CHARACTERS].lstrip()
        return content_type.lower().startswith("text/html") or start.startswith(b"<")

    def text(self) -> str:
        """Return the text of a successful response. Raises `Unclear`."""
        if self.is_html:
            raise Unclear(_WEB_PAGE)
        return _decoded(self.body)

    def json(self) -> Any:
        """Return the JSON value of a successful response. Raises `Unclear`."""
        return parse_json(self.text())

    def json_object(self) -> dict[str, Any]:
        """Return the JSON object of a successful response. Raises `Unclear`."""
        value = self.json()
        if not isinstance(value, dict):
            raise Unclear("The response is not a JSON object.")
        return value

    def json_lines(self, prefix: str = "") -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of a stream, one per line, parsed one at a time.

        `prefix` is the character before each. Raises `Incomplete` if the last line has no end,
        and `Unclear`.
        """
        if self.is_html:
            raise Unclear(_WEB_PAGE)
        if self.body and not self.body.endswith(b"\n"):
            raise Incomplete("The response was cut off within a record.")

        for line in io.BytesIO(self.body):
            text = _decoded(line).strip("\r\n")
            if not text:
                continue
            if not text.startswith(prefix):
                raise Unclear("A record of the response does not start with its mark.")
            record = parse_json(text.removeprefix(prefix))
            if not isinstance(record, dict):
                raise Unclear("A record of the response is not a JSON object.")
            yield record

    def error_text(self) -> str:
        """Return the start of the body for a message, in one line; empty for a web page."""
        if self.is_html:
            return ""
        text = self.body[: 4 * _EXCERPT_CHARACTERS].decode(errors="replace")
        printable = "".join(c if c.isprintable() else " " for c in text)
        return " ".join(printable.split())[:_EXCERPT_CHARACTERS]


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Unclear("The response is not UTF-8.") from None


def parse_json(text: str) -> Any:
    """Return a JSON value. Raises `Unclear`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unclear("The response is not valid JSON.") from None


class CatalogueSignIn(ABC):
    """How requests are identified. A sign-in is shared by threads."""

    def __init__(self, credential_file: str) -> None:
        self._credential_file = credential_file

    def credentials(self) -> Credentials:
        """Return the current content of the credential file. Raises `SignInNeeded`."""
        return read_credentials(self._credential_file)

    @abstractmethod
    def headers(self, connection: "CatalogueConnection") -> Mapping[str, str]:
        """Return the headers that identify the portal. Raises `CatalogueError`."""

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may contain. Raises `SignInNeeded`."""
        return self.credentials().secrets()

    def forget(self) -> None:  # noqa: B027 (a sign-in may have nothing to forget)
        """Sign in again before the next request."""

    def is_rejected(self, connection: "CatalogueConnection", reply: Reply) -> bool:
        """Return whether a response says that the credential is missing or expired."""
        return reply.status == 401


class FileToken(CatalogueSignIn):
    """The token in the credential file, which is read for each request and may be renewed."""

    def __init__(self, credential_file: str, *, header: str, prefix: str) -> None:
        super().__init__(credential_file)
        self._header = header
        self._prefix = prefix

    def headers(self, connection: "CatalogueConnection") -> Mapping[str, str]:
        token = self.credentials().token
        if not token:
            return {}
        return {self._header: self._prefix + token}


class LogIn(CatalogueSignIn):
    """A token that the catalogue gives for the credential, renewed at 80 % of its life."""

    def __init__(self, credential_file: str, *, header: str) -> None:
        super().__init__(credential_file)
        self._header = header
        self._lock = threading.Lock()
        self._token: Token | None = None

    def headers(self, connection: "CatalogueConnection") -> Mapping[str, str]:
        credentials = self.credentials()
        if credentials == Credentials():
            return {}
        at = utc_now()
        with self._lock:
            if self._token is None or self._token.is_due(at):
                self._token = self.log_in(connection, credentials, at)
            return {self._header: self._token.value}

    def secrets(self) -> tuple[str, ...]:
        token = self._token
        if token is None:
            return super().secrets()
        return (token.value, *super().secrets())

    def forget(self) -> None:
        with self._lock:
            self._token = None

    @abstractmethod
    def log_in(
        self, connection: "CatalogueConnection", credentials: Credentials, at: datetime
    ) -> Token:
        """Return a new token. Raises `CatalogueError`."""


class CatalogueConnection:
    """Sends requests to one catalogue, and signs in again once where it must."""

    def __init__(self, configuration: CatalogueConfiguration, sign_in: CatalogueSignIn) -> None:
        self.base_url = check_url(configuration.base_url, configuration.credential_file)
        self._credential_file = configuration.credential_file
        self._authorities = configuration.options.get("authorities_file", "")
        self._limits = _limits(configuration.options)
        self._sign_in = sign_in

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """Send a request and return the response, whatever its status.

        Raises `SignInNeeded` if the credential is rejected twice, and the errors of `send_once`.
        """
        for _attempt in range(2):
            identity = self._sign_in.headers(self)
            all_headers = {**(headers or {}), **identity}
            reply = self.send_once(method, path, query=query, headers=all_headers, body=body)
            if not self._sign_in.is_rejected(self, reply):
                return reply
            self._sign_in.forget()
        raise SignInNeeded(self.message_of(reply, "The catalogue does not accept the credential"))

    def send_once(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        base_url: str = "",
    ) -> Reply:
        """Send a request without signing in. Raises `Refused`, `TryLater`, `Unclear`."""
        base_url = base_url or self.base_url
        parts = urlsplit(base_url)
        rule = ListedServers([f"{parts.scheme}://{parts.netloc}"])
        url = f"{base_url}/{path}"
        parameters = urlencode(list(query), quote_via=quote, safe="")
        if parameters:
            url += f"?{parameters}"

        credentials = self._sign_in.credentials()
        tls = TLSFiles(credentials.certificate, credentials.key, self._authorities)
        try:
            with send(
                method,
                url,
                rule=rule,
                limits=self._limits,
                headers={"Accept-Encoding": "identity", **_encoded(headers or {})},
                body=body,
                tls=tls,
            ) as answer:
                return Reply(answer.status, answer.headers, answer.body())
        except HttpError as error:
            raise _catalogue_error(error) from None

    def message_of(self, reply: Reply, summary: str) -> str:
        """Return a message with the status and the catalogue's text, without our secrets."""
        message = f"{summary}: {reply.status} {reply.error_text()}".rstrip()
        for secret in self._sign_in.secrets():
            message = message.replace(secret, "…")
        return message

    def error_of(self, reply: Reply) -> CatalogueError:
        """Return the error for a response that is not the expected one, by its status."""
        status = reply.status
        if status in _TRY_LATER or status >= 500:
            return TryLater(self.message_of(reply, "The catalogue cannot answer now"))
        if status == 401:
            return SignInNeeded(self.message_of(reply, "The catalogue requires a credential"))
        if status == 413:
            return Refused(self.message_of(reply, "The request is too large"))
        if 400 <= status < 500 and not reply.is_html:
            return Refused(self.message_of(reply, "The catalogue refuses the request"))
        if reply.is_html:
            return Unclear(f"The response is a web page with status {status}.")
        return Unclear(self.message_of(reply, "The response is not documented"))


def _limits(options: Mapping[str, str]) -> TransferLimits:
    text = options.get("timeout_seconds", str(_DEFAULT_TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 3600:
        raise Refused("The option “timeout_seconds” must be a number from 1 to 3600.")
    connect = min(_CONNECT_SECONDS, seconds)
    return TransferLimits(connect=connect, read=seconds, total=seconds, most_bytes=_MOST_BYTES)


def _encoded(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return headers as UTF-8: as text, only Latin-1 could be sent."""
    return {name: value.encode() for name, value in headers.items()}


def _catalogue_error(error: HttpError) -> CatalogueError:
    if isinstance(error, CutShort):
        return Incomplete(f"The response was cut off: {error}")
    if isinstance(error, (AddressRefused, ResponseTooLarge)):
        return Refused(str(error))
    if isinstance(error, Compressed):
        return Unclear(str(error))
    if isinstance(error, ConnectionFailed):
        return _connection_error(error)
    return TryLater(str(error))


def _connection_error(error: ConnectionFailed) -> CatalogueError:
    if isinstance(error.reason, ssl.SSLCertVerificationError):
        return Refused(f"The catalogue's certificate is not valid: {error}")
    if isinstance(error.reason, ValueError):
        return Unclear(str(error))
    if isinstance(error.reason, OSError) and error.reason.strerror:
        return TryLater(f"The catalogue cannot be reached: {error.reason.strerror}.")
    return TryLater(str(error))


def check_url(url: str, credential_file: str) -> str:
    """Return the base URL of a catalogue without its final slash.

    Raises `Refused` if it could carry a secret, or would send one without encryption.
    """
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _port = parts.port
    except ValueError:
        raise Refused("The URL of the catalogue has a bad host or port.") from None

    if parts.scheme not in ("http", "https") or not host:
        raise Refused("The URL of the catalogue must start with https://.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Refused(
            "The URL of the catalogue must not contain a user, a query or a fragment. "
            "Put secrets into the credential file."
        )
    if parts.scheme == "http" and credential_file and host not in _LOOPBACK:
        raise Refused("The URL of a catalogue with a credential must start with https://.")
    return url


def path_of(*segments: str) -> str:
    """Return the path of names, each quoted. Raises `BadName` for a name that no path can have."""
    for segment in segments:
        if segment in ("", ".", ".."):
            raise BadName(f"“{segment}” is not a valid name.")
    return "/".join(quote(segment, safe="") for segment in segments)


def as_json(value: object) -> bytes:
    """Return a value as the JSON body of a request."""
    return json.dumps(value).encode()


def unique(names: Iterable[str]) -> list[str]:
    """Return names without duplicates, in their order."""
    return list(dict.fromkeys(names))


def records_of(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON array. Raises `Unclear`."""
    values = reply.json()
    if not isinstance(values, list):
        raise Unclear("The response is not a JSON array.")
    for value in values:
        if not isinstance(value, dict):
            raise Unclear("An element of the response is not a JSON object.")
        yield value
