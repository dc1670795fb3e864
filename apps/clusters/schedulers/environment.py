"""The format of archived environments, the same as in Slurm's spool.

A count is followed by `NAME=value` and a NUL for each entry.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

# slurmctld writes the count in the byte order of its host, which is this host.
COUNT = struct.Struct("=I")


def count_of(environment: bytes) -> int:
    """Return the number of entries that the header declares."""
    return int(COUNT.unpack_from(environment)[0])


def texts_in(environment: bytes) -> list[bytes]:
    """Return all entries that end with a NUL, whatever the count says."""
    return environment[COUNT.size :].split(b"\0")[:-1]


def name_and_value(text: bytes) -> tuple[bytes, bytes]:
    """Split an entry at its first `=`; an entry without one is a name."""
    name, _, value = text.partition(b"=")
    return name, value


def variables_in(environment: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and values in order."""
    return map(name_and_value, texts_in(environment))


def pack(variables: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of variables in this format. Raises `ValueError` if one contains a NUL."""
    return pack_texts([name + b"=" + value for name, value in variables])


def pack_texts(texts: Sequence[bytes]) -> bytes:
    """Return the bytes of entries, which may be names without `=`.

    Raises `ValueError` if one contains a NUL.
    """
    if any(b"\0" in text for text in texts):
        raise ValueError("a variable contains a NUL")
    return COUNT.pack(len(texts)) + b"".join(text + b"\0" for text in texts)
