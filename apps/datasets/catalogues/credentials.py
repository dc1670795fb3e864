"""Credentials of catalogues, read from a file, and tokens with a limited life."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.datasets.catalogues.base import SignInNeeded

#: Part of a token's life after which it is renewed.
_RENEWED_AFTER = 0.8
_MOST_BYTES = 100_000
_NAMES = ("token", "token_file", "user", "password", "certificate", "key")


@dataclass(frozen=True)
class Credentials:
    """A token, a user with password, or the paths of a certificate and its key.

    Empty values are not set. Secrets are not part of the representation.
    """

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    certificate: str = ""
    key: str = ""

    def secrets(self) -> tuple[str, ...]:
        """Return the values that must not be shown."""
        return tuple(value for value in (self.token, self.password) if value)


def read_credentials(path: str) -> Credentials:
    """Return the credentials in a file; none for an empty path.

    The file contains only a token, or a JSON object with `token`, `token_file`, `user` and
    `password`, or `certificate` and `key`. `certificate` may be a proxy, which contains its key.
    Raises `SignInNeeded`, whose message contains nothing of the file.
    """
    if not path:
        return Credentials()
    text = _read(path)
    if not text.startswith("{"):
        return Credentials(token=_as_token(text, path))

    values = _json_object(text, path)
    unknown = sorted(values.keys() - set(_NAMES))
    if unknown or not values:
        raise SignInNeeded(f"The credential file {path} may contain only {', '.join(_NAMES)}.")

    token = values.get("token", "")
    token_file = values.get("token_file", "")
    if token_file:
        token = _read(token_file)
    if token:
        token = _as_token(token, path)
    return Credentials(
        token=token,
        user=_as_header(values.get("user", ""), path),
        password=_as_header(values.get("password", ""), path),
        certificate=_readable(values.get("certificate", "")),
        key=_readable(values.get("key", "")),
    )


def _read(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(_MOST_BYTES).strip()
    except UnicodeDecodeError:
        raise SignInNeeded(f"The credential file {path} is not text.") from None
    except OSError as error:
        raise SignInNeeded(
            f"The credential file {path} cannot be read: {error.strerror}."
        ) from None


def _json_object(text: str, path: str) -> Mapping[str, str]:
    try:
        values = json.loads(text)
    except ValueError:
        # The message of the error could contain a part of the secret.
        raise SignInNeeded(f"The credential file {path} is not valid JSON.") from None
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise SignInNeeded(f"The credential file {path} must be a JSON object of texts.")
    return values


def _as_token(text: str, path: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SignInNeeded(f"The credential file {path} contains no valid token.")
    return text


def _as_header(text: str, path: str) -> str:
    if not text.isprintable():
        raise SignInNeeded(f"The credential file {path} contains control characters.")
    return text


def _readable(path: str) -> str:
    if path:
        try:
            with Path(path).open("rb"):
                return path
        except OSError as error:
            raise SignInNeeded(f"{path} cannot be read: {error.strerror}.") from None
    return path


@dataclass(frozen=True)
class Token:
    """A token from a catalogue's sign-in, with the times of its life in UTC."""

    value: str = field(repr=False)
    issued_at: datetime
    expires_at: datetime

    def is_due(self, at: datetime) -> bool:
        """Return whether it is time to renew the token."""
        life = self.expires_at - self.issued_at
        return at >= self.issued_at + _RENEWED_AFTER * life


def token_with_expiry(value: str, *, at: datetime, default_life: timedelta) -> Token:
    """Return a new token with the expiry that a JWT names, else with the default life.

    The signature is not checked: the catalogue does that.
    """
    expires_at = at + default_life
    parts = value.split(".")
    if len(parts) == 3:
        try:
            padded = parts[1] + "=" * (-len(parts[1]) % 4)
            claims = json.loads(base64.urlsafe_b64decode(padded))
            expires_at = datetime.fromtimestamp(claims["exp"], UTC)
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            pass
    return Token(value, issued_at=at, expires_at=expires_at)
