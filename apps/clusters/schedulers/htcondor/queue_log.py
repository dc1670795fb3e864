"""Follow a schedd's `job_queue.log` as it grows.

Each line is a record: 101 creates an ad, 102 destroys it, 103 sets an attribute, 104 deletes one,
105 and 106 enclose a transaction, 107 starts the file. The schedd compacts the file from time to
time. Keys are `0N.-1` for the ad shared by the jobs of cluster N, and `N.P` for its job P.
"""

import os
import re
import stat
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from apps.clusters.schedulers.base import SpoolError
from apps.clusters.schedulers.htcondor.classads import Ad, integer_of, line_of

# Clusters that are kept after they left the queue, for slow readers.
MOST_DESTROYED = 5_000

_KEY = re.compile(rb"0?([1-9][0-9]{0,9})\.(-1|[0-9]{1,10})")
_SEQUENCE = re.compile(rb"107 ([0-9]{1,18}) ")
_BLOCK_BYTES = 1024 * 1024
_MOST_SHARED = 50_000
_SHARED_BYTES = 64
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class JobCluster:
    """One submission: the ad of the cluster, and the attributes in which its first job differs."""

    number: int
    common: dict[bytes, bytes] = field(default_factory=dict)
    first: dict[bytes, bytes] = field(default_factory=dict)
    first_proc: int | None = None

    def ad(self) -> Ad:
        """Return the ad of the first job, or of the cluster if it has no job yet."""
        return {**self.common, **self.first}

    def submitted(self) -> int:
        """Return `QDate` in seconds since 1970.

        It is the same for all jobs of the cluster and never changes.
        """
        return integer_of(self.common, "QDate") or integer_of(self.first, "QDate") or 0


class JobQueueLog:
    """The clusters in the queue, as read from `path`. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clusters: dict[int, JobCluster] = {}
        #: Clusters that left the queue, newest last.
        self.destroyed: OrderedDict[int, JobCluster] = OrderedDict()
        #: Incremented when a cluster enters or leaves the queue.
        self.changes = 0
        self._descriptor = -1
        self._header = b""
        self._offset = 0
        self._rest = b""
        self._transaction: list[bytes] | None = None
        self._shared: dict[bytes, bytes] = {}

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def refresh(self) -> None:
        """Read the records appended since the last call.

        Raises `SpoolError` if the file cannot be read.
        """
        try:
            if self._descriptor < 0:
                self._start(self._previous())
            # If the file was replaced, this reads the end of the old one.
            self._take_in()
            if not self._is_replaced():
                return
            before = dict(self.clusters)
            self._start(self.path)
            self._take_in()
        except OSError as error:
            raise SpoolError(f"{self.path}: {error.strerror}") from error
        for number in before.keys() - self.clusters.keys():
            self._keep_destroyed(before[number])

    def find(self, number: int) -> JobCluster | None:
        return self.clusters.get(number) or self.destroyed.get(number)

    def _is_replaced(self) -> bool:
        ours = os.fstat(self._descriptor)
        named = self.path.lstat()
        if (ours.st_dev, ours.st_ino) != (
            named.st_dev,
            named.st_ino,
        ) or named.st_size < self._offset:
            return True
        return os.pread(self._descriptor, len(self._header), 0) != self._header

    def _previous(self) -> Path:
        """Return the path of the previous log if the schedd kept it, else of the current one.

        The previous log has the jobs that were missed while capture was stopped.
        """
        self._start(self.path)
        sequence = _SEQUENCE.match(os.pread(self._descriptor, _SHARED_BYTES, 0))
        previous = self.path.with_name(
            f"{self.path.name}.{int(sequence[1]) - 1 if sequence else 0}"
        )
        if previous.is_file() and not previous.is_symlink():
            return previous
        return self.path

    def _start(self, path: Path) -> None:
        descriptor = os.open(path, _FILE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SpoolError(f"{path}: not a regular file")
        self.close()
        self._descriptor = descriptor
        self._offset = 0
        self._rest = b""
        self._transaction = None
        self._header = b""
        self.clusters.clear()

    def _take_in(self) -> None:
        while block := os.pread(self._descriptor, _BLOCK_BYTES, self._offset):
            self._offset += len(block)
            if len(self._header) < _SHARED_BYTES:
                self._header = os.pread(self._descriptor, _SHARED_BYTES, 0)
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                self._record(line)

    def _record(self, line: bytes) -> None:
        kind = line[:3]
        if kind == b"105":
            self._transaction = self._transaction or []
        elif kind == b"106":
            records = self._transaction or []
            self._transaction = None
            for record in records:
                self._apply(record)
        elif self._transaction is not None:
            self._transaction.append(line)
        else:
            self._apply(line)

    def _apply(self, line: bytes) -> None:
        kind, _, body = line.partition(b" ")
        raw_key, _, body = body.partition(b" ")
        key = _KEY.fullmatch(raw_key)
        if key is None or kind not in (b"101", b"102", b"103", b"104"):
            return
        number = int(key[1])
        proc = int(key[2])
        if kind == b"101":
            self._make(number, proc)
            return
        cluster = self.clusters.get(number)
        if cluster is None:
            return
        if kind == b"102":
            if proc == -1:
                self._keep_destroyed(self.clusters.pop(number))
        elif proc in (-1, cluster.first_proc):
            ad = cluster.common if proc == -1 else cluster.first
            name, _, value = body.partition(b" ")
            if kind == b"103":
                ad[self._share(name.lower())] = self._share(line_of(name, value))
            else:
                ad.pop(name.lower(), None)

    def _make(self, number: int, proc: int) -> None:
        if proc == -1:
            self.changes += 1
            self.clusters[number] = JobCluster(number)
            return
        cluster = self.clusters.setdefault(number, JobCluster(number))
        if cluster.first_proc is None or proc < cluster.first_proc:
            cluster.first_proc = proc
            cluster.first = {}

    def _keep_destroyed(self, cluster: JobCluster) -> None:
        self.changes += 1
        self.destroyed[cluster.number] = cluster
        self.destroyed.move_to_end(cluster.number)
        if len(self.destroyed) > MOST_DESTROYED:
            self.destroyed.popitem(last=False)

    def _share(self, text: bytes) -> bytes:
        """Return the shared copy of a short text: attributes repeat many times in a queue."""
        if len(text) > _SHARED_BYTES or len(self._shared) >= _MOST_SHARED:
            return self._shared.get(text, text)
        return self._shared.setdefault(text, text)
