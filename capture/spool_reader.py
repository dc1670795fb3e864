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
# Entries that are read before file events are handled again.
_ENTRIES_AT_ONCE = 20
_IDLE_SECONDS = 0.02
_WARNING_SECONDS = 1.0
# Job IDs that are remembered as read: a scan may find an entry before it is read and deleted, and
# queue it after.
_REMEMBERED_JOBS = 10_000
_MOST_REPORTED = 1000
_KEY_LENGTH = 64
# Number of secret arguments times bytes of a description, so that no job can keep capture busy.
_MOST_COMPARED = 1_000_000_000


class Reader:
    """Takes entries from `waiting`, reads and masks them, and adds them to `jobs`, in one thread.

    `last_read` returns the entry that was last read for a job ID.
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
        self._vanished: list[SpoolEntry] = []
        #: The number of entries that were deleted before they were read.
        self.missed = 0
        self._recent_job_ids: deque[str] = deque(maxlen=_REMEMBERED_JOBS)
        self._warned_at = 0.0

    def run(self, stopping: threading.Event, watcher: Watcher | None = None) -> None:
        """Read queued entries until `stopping` is set, and handle file events in between.

        Both happen in one thread, so that neither has to wait for the other.
        """
        while not stopping.is_set():
            if watcher:
                watcher.follow(timeout=self._waiting.seconds_until_next(_IDLE_SECONDS))
            for _ in range(_ENTRIES_AT_ONCE):
                entry = self._waiting.take(timeout=0 if watcher else _IDLE_SECONDS)
                if entry is None:
                    break
                # A scan may queue an entry that was read on a file event, and the reverse.
                last = self._last_read(entry.job_id)
                if last is None or last != self._spool.identity(entry):
                    self.read(entry)
                else:
                    self._waiting.done(entry)
            self._report_missed()

    def read(self, entry: SpoolEntry) -> None:
        """Read an entry; queue it again if it is incomplete, and report it if it cannot be read."""
        try:
            spooled = self._spool.read(entry)
            identity = self._spool.identity(entry)
            job = self._captured(spooled)
        except EntryIncomplete:
            self._waiting.retry(entry, _retry_delay)
            return
        except EntryVanished:
            # A scan also finds entries that were read earlier and are being deleted.
            if self._last_read(entry.job_id) is None:
                self._vanished.append(entry)
                self._waiting.read_newest_first()
            self._forget_reason(entry)
        except Exception as error:  # whatever an entry or an adapter does, the others are read
            self._report_unreadable(entry, str(error) or repr(error))
        else:
            self._jobs.put(job, identity)
            self._recent_job_ids.append(entry.job_id)
            self._forget_reason(entry)
        self._waiting.done(entry)

    def _report_missed(self) -> None:
        """Count and log the entries that were deleted before they were read, together.

        Logging each of them would delay the reader, so that it misses more.
        """
        now = time.monotonic()
        if not self._vanished or now <= self._warned_at + _WARNING_SECONDS:
            return
        recent = set(self._recent_job_ids)
        missed = [entry.path for entry in self._vanished if entry.job_id not in recent]
        self._vanished = []
        self._warned_at = now
        self.missed += len(missed)
        if missed:
            logger.warning(
                "%d entries were deleted before they were read, such as %s", len(missed), missed[0]
            )

    def unreadable(self) -> dict[Path, str]:
        """Return the entries that could not be read when last tried, with the reasons."""
        with self._guard:
            return {entry.path: reason for entry, reason in self._unreadable.items()}

    def forget_unreadable(self) -> None:
        """Forget reports of entries that are gone."""
        with self._guard:
            for entry in list(self._unreadable):
                if not self._spool.identity(entry).inode:
                    del self._unreadable[entry]

    def _captured(self, spooled: SpooledJob) -> CapturedJob:
        """Return the captured job, with its secrets masked in all parts."""
        masked_names: tuple[str, ...] = ()
        secrets: dict[bytes, bytes] = {}
        if self.masker.may_find(spooled.environment, texts_in(spooled.environment)):
            unmasked = spooled.variables
            variables, masked_names = self.masker.mask(unmasked)
            if masked_names:
                secrets = secrets_of(unmasked, variables)
                spooled = self._spool.with_environment(spooled, variables)

        # Splitting an environment takes time, and few jobs are the portal's.
        is_of_request = b"OPSPORTAL_" in spooled.environment
        portal_variables = spooled.variables if is_of_request else ()
        return CapturedJob(
            cluster=self._cluster,
            scheduler=self._scheduler,
            job_id=spooled.job_id,
            submitted_at=spooled.submitted_at,
            captured_at=self._clock(),
            script=replace_secrets(spooled.script, secrets),
            environment=spooled.environment,
            request_key=value_of(portal_variables, b"OPSPORTAL_REQUEST")[:_KEY_LENGTH],
            stage=value_of(portal_variables, b"OPSPORTAL_STAGE")[:_KEY_LENGTH],
            masked_names=masked_names,
            description=replace_secrets(self._description(spooled), secrets),
            arguments=self._arguments(spooled.arguments, secrets),
            user=spooled.user,
            account=spooled.account,
            name=spooled.name,
            caveat=spooled.caveat,
        )

    def _arguments(self, arguments: str, secrets: Mapping[bytes, bytes]) -> str:
        if not arguments:
            return ""
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

    def _report_unreadable(self, entry: SpoolEntry, reason: str) -> None:
        """Note why an entry cannot be read, and log each new reason."""
        with self._guard:
            if self._unreadable.get(entry) == reason or len(self._unreadable) >= _MOST_REPORTED:
                return
            self._unreadable[entry] = reason
        logger.warning("cannot read %s", text(os.fsencode(reason)))

    def _forget_reason(self, entry: SpoolEntry) -> None:
        """Forget why an entry could not be read."""
        if self._unreadable:
            with self._guard:
                self._unreadable.pop(entry, None)


def _retry_delay(tries: int) -> float:
    """Return the seconds to wait before an incomplete entry is read again."""
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(tries - 1, 20), LONGEST_DELAY_SECONDS)
