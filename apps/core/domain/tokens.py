"""Tokens of machines: 256 random bits, of which only a hash is stored."""

import hashlib
import secrets


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    # Random tokens cannot be guessed, so they need no slow hash.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def bearer_token(header: str) -> str:
    """Return the bearer token of an `Authorization` header, or ""."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
