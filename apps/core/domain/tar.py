"""Write tar archives, one file at a time."""

import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file of a tar; `modified_at` is in seconds since 1970."""

    name: str
    content: bytes
    mode: int = 0o644
    modified_at: int = 0


def write_tar(members: Iterable[TarMember]) -> Iterator[bytes]:
    """Yield the same bytes that `tarfile` writes, one chunk for each file.

    Members are taken one by one, so a generator of them keeps only one content in memory.
    """
    size = 0
    for member in members:
        header = tarfile.TarInfo(member.name)
        header.size = len(member.content)
        header.mode = member.mode
        header.mtime = member.modified_at
        padding = bytes(-len(member.content) % tarfile.BLOCKSIZE)

        chunk = b"".join((header.tobuf(), member.content, padding))
        size += len(chunk)
        yield chunk

    # Two empty blocks end a tar. Like `tar` itself, fill the last record.
    end = bytes(2 * tarfile.BLOCKSIZE)
    size += len(end)
    yield end + bytes(-size % tarfile.RECORDSIZE)
