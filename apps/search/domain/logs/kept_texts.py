"""The kept ends of logs, which belong to a higher app: it names a reader of them in LOG_TEXTS."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry


@dataclass(frozen=True, slots=True)
class KeptText:
    """The end of one log: whole lines, byte for byte.

    `first_offset` is the place of its first byte in the log; `first_line` the number of its first
    line, None if that is unknown.
    """

    stream: str
    data: bytes
    first_offset: int = 0
    first_line: int | None = None


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The stored log texts of an ended job, with the primary keys of the job and experiment."""

    job_pk: int
    ended_at: datetime
    texts: Sequence[KeptText]
    experiment_id: int | None = None

    @property
    def data(self) -> bytes:
        return join_texts(self.texts)


class ReadsKeptTexts(Protocol):
    """Reads the stored log texts of jobs."""

    def texts_of(self, job_pks: Collection[int]) -> Mapping[int, Sequence[KeptText]]:
        """Return the kept texts of these jobs; jobs without any are left out."""

    def kept_of(self, job_pks: Collection[int]) -> set[int]:
        """Return the jobs whose texts are kept."""

    def before(self, key: int | None, most: int) -> Sequence[tuple[int, KeptLog]]:
        """Return the newest kept logs before a key, with their keys, newest first.

        They cannot change until the end of the transaction.
        """


READERS: Registry[ReadsKeptTexts] = Registry("opsportal.log_texts", settings.LOG_TEXTS)


def join_texts(texts: Sequence[KeptText]) -> bytes:
    """Return all that is kept of the logs of a job as one text."""
    return b"\n".join(text.data for text in texts)


def texts_of(job_pks: Collection[int]) -> dict[int, Sequence[KeptText]]:
    """Return the kept texts of these jobs by primary key; jobs without any are left out."""
    texts: dict[int, Sequence[KeptText]] = {}
    for reader in READERS.working().values():
        texts.update(reader.texts_of(job_pks))
    return texts


def kept_of(job_pks: Collection[int]) -> set[int]:
    """Return the jobs whose texts are kept."""
    kept: set[int] = set()
    for reader in READERS.working().values():
        kept |= reader.kept_of(job_pks)
    return kept


def newest_before(key: int | None, most: int) -> Sequence[tuple[int, KeptLog]]:
    """Return the newest kept logs before a key, with their keys, newest first.

    They cannot change until the end of the transaction.
    """
    for reader in READERS.working().values():
        if batch := reader.before(key, most):
            return batch
    return ()
