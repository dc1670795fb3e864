"""Reads spool entries into memory the moment they are complete.

A bad entry never stops the others.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryVanished,
    Identity,
    Spool,
    SpooledJob,
    SpoolEntry,
)
from apps.clusters.schedulers.environment import texts_in
from apps.core.domain.secrets.masking import Masker, replace_secrets, secrets_of, text, value_of
from capture.queues import WaitingEntries, WaitingJobs
from capture.watch.watcher import Watcher
from capture.wire.entry import CapturedJob, Clock

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.002
LONGEST_DELAY_SECONDS = 1.0
_AT_ONCE = 20  # entries, before events are looked for again
_IDLE_SECONDS = 0.02
_WARNING_SECONDS = 1.0
_LATELY = 10_000  # entries: a scan may find one before it is read, and hand it over after
_MOST_REPORTED = 1000
_KEY_LENGTH = 64
_MOST_COMPARED = (
    1_000_000_000  # secret arguments by bytes of a description: nobody's job may keep capture busy
)


class Reader:
    """Takes entries from `waiting`, reads and masks them, and puts them to `jobs`.

    Runs in a thread of its own.
    """

    def __init__(
        self,
        *,
        cluster: str,
        scheduler: str,
        spool: Spool,
        masker: Masker,
        waiting: WaitingEntries,
        jobs: WaitingJobs,
        last_read: Callable[[str], Identity | None],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._spool = spool
        self.masker = masker
        self._waiting = waiting
        self._jobs = jobs
        self._last_read = last_read
        self._clock = clock
        self._guard = threading.Lock()
        self._unreadable: dict[SpoolEntry, str] = {}
        self._gone: list[SpoolEntry] = []
        self.missed = 0  # entries that were deleted before they were read
        self._lately: deque[str] = deque(maxlen=_LATELY)
        self._warned_at = 0.0

    def run(self, stopping: threading.Event, watcher: Watcher | None = None) -> None:
        """Read queued entries, and follow `watcher` in between.

        Both run in one thread, so that neither has to wait for the other.
        """
        while not stopping.is_set():
            if watcher:
                watcher.follow(timeout=self._waiting.pause(_IDLE_SECONDS))
            for _ in range(_AT_ONCE):
                entry = self._waiting.take(timeout=0 if watcher else _IDLE_SECONDS)
                if entry is None:
                    break
                # A scan and an event may both name an entry, the later one after it was read.
                last = self._last_read(entry.job_id)
                if last is None or last != self._spool.identity(entry):
                    self.read(entry)
                else:
                    self._waiting.done(entry)
            self._warn_of_gone()

    def read(self, entry: SpoolEntry) -> None:
        """Read an entry; queue it again if it is incomplete, and report it if it cannot be read."""
        try:
            spooled = self._spool.read(entry)
            identity = self._spool.identity(entry)
            job = self._captured(spooled)
        except EntryIncomplete:
            self._waiting.again(
                entry,
                lambda tries: min(
                    FIRST_DELAY_SECONDS * 2.0 ** min(tries - 1, 20), LONGEST_DELAY_SECONDS
                ),
            )
            return
        except EntryVanished:
            # A scan also names one that an earlier process has read, whose files are being deleted.
            if self._last_read(entry.job_id) is None:
                self._gone.append(entry)
                self._waiting.hurry()
            self._settle(entry)
        except Exception as error:  # whatever an entry or an adapter does, the others are read
            self._report(entry, str(error) or repr(error))
        else:
            self._jobs.put(job, identity)
            self._lately.append(entry.job_id)
            self._settle(entry)
        self._waiting.done(entry)

    def _warn_of_gone(self) -> None:
        """Log the entries that were deleted before they were read, together.

        Logging each of them would delay the reader, so that it misses more.
        """
        if self._gone and (moment := time.monotonic()) > self._warned_at + _WARNING_SECONDS:
            lately = set(self._lately)
            gone = [entry.path for entry in self._gone if entry.job_id not in lately]
            self._gone, self._warned_at = [], moment
            self.missed += len(gone)
            if gone:
                logger.warning(
                    "%d entries were deleted before they were read, such as %s", len(gone), gone[0]
                )

    def unreadable(self) -> dict[Path, str]:
        """Return the entries that could not be read when last tried, with the reasons."""
        with self._guard:
            return {entry.path: why for entry, why in self._unreadable.items()}

    def forget_unreadable(self) -> None:
        """Forget reports of entries that are gone."""
        with self._guard:
            there = {
                entry: why
                for entry, why in self._unreadable.items()
                if self._spool.identity(entry).inode
            }
            self._unreadable = there

    def _captured(self, spooled: SpooledJob) -> CapturedJob:
        masked_names: tuple[str, ...] = ()
        secrets: dict[bytes, bytes] = {}
        if self.masker.may_find(spooled.environment, texts_in(spooled.environment)):
            before = spooled.variables
            variables, masked_names = self.masker.mask(before)
            if masked_names:
                secrets = secrets_of(before, variables)
                spooled = self._spool.with_environment(spooled, variables)
        named = spooled.variables if b"OPSPORTAL_" in spooled.environment else ()
        return CapturedJob(
            cluster=self._cluster,
            scheduler=self._scheduler,
            job_id=spooled.job_id,
            submitted_at=spooled.submitted_at,
            captured_at=self._clock(),
            script=replace_secrets(spooled.script, secrets),
            environment=spooled.environment,
            request_key=value_of(named, b"OPSPORTAL_REQUEST")[:_KEY_LENGTH],
            stage=value_of(named, b"OPSPORTAL_STAGE")[:_KEY_LENGTH],
            masked_names=masked_names,
            description=replace_secrets(self._description(spooled), secrets),
            arguments=self._arguments(spooled.arguments, secrets) if spooled.arguments else "",
            user=spooled.user,
            account=spooled.account,
            name=spooled.name,
            caveat=spooled.caveat,
        )

    def _arguments(self, arguments: str, secrets: Mapping[bytes, bytes]) -> str:
        masked = self.masker.mask_text(arguments).encode("utf-8", "surrogatepass")
        return replace_secrets(masked, secrets).decode("utf-8", "surrogatepass")

    def _description(self, spooled: SpooledJob) -> bytes:
        """Return the description, with the secrets in the arguments masked there too."""
        description = spooled.description
        if not description:
            return description

        secrets = {}
        for argument in set(spooled.arguments.split()):
            masked = self.masker.mask_text(argument)
            if masked != argument:
                secrets[argument] = masked
        if len(secrets) * len(description) > _MOST_COMPARED:
            return b"left out: too many secrets to look for\n"

        for secret, masked in secrets.items():
            description = description.replace(secret.encode(), masked.encode())
        return description

    def _report(self, entry: SpoolEntry, reason: str) -> None:
        with self._guard:
            if self._unreadable.get(entry) == reason or len(self._unreadable) >= _MOST_REPORTED:
                return
            self._unreadable[entry] = reason
        logger.warning("cannot read %s", text(os.fsencode(reason)))

    def _settle(self, entry: SpoolEntry) -> None:
        if self._unreadable:
            with self._guard:
                self._unreadable.pop(entry, None)
