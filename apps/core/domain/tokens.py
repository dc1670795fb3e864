"""Tokens of machines: 256 random bits, of which only a hash is kept."""

import hashlib
import secrets


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    # There is nothing to guess, so a slow hash would only cost time.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def bearer_token(header: str) -> str:
    """Return the token of an `Authorization` header, empty where it holds none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
