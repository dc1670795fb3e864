"""Write tar archives as a stream."""

import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a tar archive; `modified_at` is in seconds since 1970."""

    name: str
    content: bytes
    mode: int = 0o644
    modified_at: int = 0


def write_tar(members: Iterable[TarMember]) -> Iterator[bytes]:
    """Yield the bytes that `tarfile` would write, one chunk per file.

    Members are consumed one by one, so only one content is in memory if they are generated.
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

    # Two empty blocks end a tar archive. Fill the last record as `tar` does.
    end = bytes(2 * tarfile.BLOCKSIZE)
    size += len(end)
    yield end + bytes(-size % tarfile.RECORDSIZE)
