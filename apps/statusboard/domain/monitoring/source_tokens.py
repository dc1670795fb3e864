"""Check tokens of monitoring sources, even while the database is unavailable.

Token hashes are cached in memory, and in a file for processes that start while the database is
unavailable. A revoked token works for up to `FRESH` seconds, or until the database is back.
"""

import hmac
import json
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, InterfaceError, transaction

from apps.core.domain.tokens import hash_of
from apps.statusboard.models import MonitoringSource

log = logging.getLogger(__name__)

#: Hashes are read again after `FRESH` seconds; after a failure, not before `AFTER_FAILURE` seconds.
FRESH = 2.0
AFTER_FAILURE = 5.0


class TokensUnknown(Exception):
    """The token is not known, and newer tokens cannot be read from the database."""


@dataclass(frozen=True)
class _Source:
    pk: int
    hashes: tuple[str, ...]


class KnownTokens:
    """Token hashes of all sources, as cached by one process."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._sources: dict[str, _Source] | None = None
        self._reading = threading.Lock()
        self._next_read = 0.0
        self._is_current = False

    def source_of(self, slug: str, token: str) -> int | None:
        """Return the primary key of the source if the token is valid, else None.

        An unknown slug takes the same time. Raises `TokensUnknown` if the sender should retry.
        """
        if time.monotonic() >= self._next_read and self._reading.acquire(
            blocking=self._sources is None
        ):
            try:
                self._read()
            finally:
                self._reading.release()
        source_id = self._match(slug, token)
        if source_id is None and not self._is_current:
            raise TokensUnknown
        return source_id

    def read_now(self) -> None:
        """Read the hashes at the next request."""
        self._next_read = 0.0

    def _match(self, slug: str, token: str) -> int | None:
        source = (self._sources or {}).get(slug)
        token_hash = hash_of(token)
        # An unknown slug takes the same time.
        hashes = source.hashes if source else ("-",)
        matches = [hmac.compare_digest(token_hash, known) for known in hashes]
        return source.pk if source and any(matches) else None

    def _read(self) -> None:
        try:
            with transaction.atomic():
                rows = list(MonitoringSource.objects.values_list("slug", "pk", "token_hashes"))
        except (DatabaseError, InterfaceError) as error:
            if self._is_current:
                log.warning("tokens of sources cannot be read, using the known ones: %s", error)
            self._is_current = False
            self._next_read = time.monotonic() + AFTER_FAILURE
            if self._sources is None:
                self._sources = self._of_file()
            return
        sources = {slug: _Source(pk, tuple(hashes)) for slug, pk, hashes in rows}
        if sources != self._sources:
            self._keep(sources)
        self._sources = sources
        self._is_current = True
        self._next_read = time.monotonic() + FRESH

    def _of_file(self) -> dict[str, _Source]:
        try:
            stored = json.loads(self.file.read_bytes())
            return {slug: _Source(int(pk), tuple(hashes)) for slug, (pk, hashes) in stored.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _keep(self, sources: dict[str, _Source]) -> None:
        """Write the cache file.

        Without the file, only processes that start while the database is unavailable know no
        tokens.
        """
        stored = json.dumps(
            {slug: [source.pk, source.hashes] for slug, source in sources.items()}
        ).encode()
        new = self.file.with_name(f"{self.file.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new.touch(mode=0o600)
            new.write_bytes(stored)
            new.replace(self.file)
        except OSError as error:
            log.warning("tokens of sources cannot be kept in a file: %s", error)
            with suppress(OSError):
                new.unlink()


TOKENS = KnownTokens(settings.VAR_DIR / "intake" / "tokens.json")


def authenticate_source(*, slug: str, token: str) -> int | None:
    """Return the primary key of the source if the token is valid, else None.

    Raises `TokensUnknown`.
    """
    return TOKENS.source_of(slug, token)
