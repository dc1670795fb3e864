"""A directory as another host has it: a FUSE file system that shows what is in `directory`,
to be read only.

Who writes to `directory` does it as another host would: this one's kernel has no event of it in the
mounted tree.
"""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSYS
from pathlib import Path

import pytest

_READ_ONLY_NOSUID_NODEV = 1 | 2 | 4
_REQUEST, _ANSWER = struct.Struct("IIQQIIII"), struct.Struct("IiQ")
_INIT, _ATTRIBUTES = struct.Struct("IIIIHHIIHH32x"), struct.Struct("QQQQQQIIIIIIIIII")
_READ_AT, _ENTRY = struct.Struct("QQI"), struct.Struct("QQII")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _START = 1, 2, 3, 14, 15, 18, 25, 26
_OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 27, 28, 29, 36, 42
_BUFFER_BYTES = 1024 * 1024


@contextmanager
def mounted(directory: Path, at: Path) -> Iterator[None]:
    """Show `directory` at `at`. Skips the test where nothing can be mounted."""
    try:
        kernel = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"/dev/fuse: {error.strerror}")
    options = f"fd={kernel},rootmode=40755,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"remote", os.fsencode(at), b"fuse.remote", _READ_ONLY_NOSUID_NODEV, options):
        reason = os.strerror(ctypes.get_errno())
        os.close(kernel)
        pytest.skip(f"FUSE cannot be mounted: {reason}")
    server = subprocess.Popen([sys.executable, __file__, str(kernel), directory], pass_fds=[kernel])
    os.close(kernel)
    try:
        yield
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", at], check=True)


class Server:
    """Answers what the kernel asks.

    Nothing is cached: each node is a path, and is looked at anew.
    """

    def __init__(self, directory: Path) -> None:
        self.paths = [directory, directory]  # the node of the root is 1
        self.nodes = {directory: 1}

    def serve(self, kernel: int) -> None:
        while True:
            request = os.read(kernel, _BUFFER_BYTES)
            _, operation, unique, node, *_ = _REQUEST.unpack_from(request)
            if operation in (_FORGET, _BATCH_FORGET, _INTERRUPT):
                continue
            try:
                error, answer = (
                    0,
                    self.answer(operation, self.paths[node], request[_REQUEST.size :]),
                )
            except OSError as failure:
                error, answer = -(failure.errno or ENOSYS), b""
            os.write(kernel, _ANSWER.pack(_ANSWER.size + len(answer), error, unique) + answer)

    def answer(self, operation: int, path: Path, body: bytes) -> bytes:
        """Return what belongs behind the head of the answer. Raises `OSError`."""
        if operation == _START:
            return _INIT.pack(7, 31, 128 * 1024, 0, 12, 9, 128 * 1024, 1, 32, 0)
        if operation == _LOOKUP:
            path = path / os.fsdecode(body[:-1])
            attributes = self.attributes(path)
            return struct.pack("QQQQII", self.node(path), 0, 0, 0, 0, 0) + attributes
        if operation == _GETATTR:
            return bytes(16) + self.attributes(path)
        if operation in (_OPEN, _OPENDIR):
            return bytes(16)
        if operation in (_READ, _READDIR):
            _, offset, size = _READ_AT.unpack_from(body)
            return (
                self.listing(path, offset, size)
                if operation == _READDIR
                else self.content(path, offset, size)
            )
        if operation in (_RELEASE, _RELEASEDIR, _FLUSH):
            return b""
        raise OSError(ENOSYS, os.strerror(ENOSYS))

    def node(self, path: Path) -> int:
        if path not in self.nodes:
            self.nodes[path] = len(self.paths)
            self.paths.append(path)
        return self.nodes[path]

    @staticmethod
    def attributes(path: Path) -> bytes:
        status = path.lstat()
        seconds, nanoseconds = zip(
            *(
                divmod(at, 10**9)
                for at in (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
            ),
            strict=True,
        )
        sizes = status.st_ino, status.st_size, status.st_blocks
        who = status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0
        return _ATTRIBUTES.pack(*sizes, *seconds, *nanoseconds, *who)

    @staticmethod
    def content(path: Path, offset: int, size: int) -> bytes:
        with path.open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    @staticmethod
    def listing(path: Path, offset: int, size: int) -> bytes:
        listed = b""
        for number, each in enumerate(sorted(path.iterdir()), start=1):
            name = os.fsencode(each.name)
            entry = _ENTRY.pack(each.lstat().st_ino, number, len(name), 0) + name
            entry += bytes(-len(entry) % 8)
            if number > offset and len(listed) + len(entry) <= size:
                listed += entry
        return listed


if __name__ == "__main__":
    Server(Path(sys.argv[2])).serve(int(sys.argv[1]))
