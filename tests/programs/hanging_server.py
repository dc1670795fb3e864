"""A file server that hangs: a FUSE file system whose server never says a word."""

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NOSUID_NODEV = 2 | 4


@contextmanager
def hanging(directory: Path) -> Iterator[None]:
    """Whoever asks for a name in `directory` waits;
    at the end they are told that the server is away.

    Skips the test where no such thing can be mounted.
    """
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"/dev/fuse: {error.strerror}")
    options = f"fd={server},rootmode=40755,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hanging", os.fsencode(directory), b"fuse", _NOSUID_NODEV, options):
        reason = os.strerror(ctypes.get_errno())
        os.close(server)
        pytest.skip(f"FUSE cannot be mounted: {reason}")
    try:
        yield
    finally:
        os.close(server)
        subprocess.run(["umount", "-l", directory], check=True)


def readers_of(path: Path) -> list[threading.Thread]:
    """Return the threads in which the HTCondor adapter waits for a file,
    or for those below a directory.
    """
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"reads {path}")]
