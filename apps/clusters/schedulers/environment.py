"""The form in which environments are archived, which is Slurm's: a count, then `NAME=value` and a NUL for each."""

import struct
from collections.abc import Iterable, Iterator, Sequence

COUNT = struct.Struct("=I")  # slurmctld writes the count in the byte order of its host, which is this host


def count_of(environment: bytes) -> int:
    """Return how many entries the environment says it has."""
    return int(COUNT.unpack_from(environment)[0])


def texts_in(environment: bytes) -> list[bytes]:
    """Return every entry that has its NUL, whatever the count says."""
    return environment[COUNT.size :].split(b"\0")[:-1]


def name_and_value(text: bytes) -> tuple[bytes, bytes]:
    """Cut an entry at its first `=`; one without is a name."""
    name, _, value = text.partition(b"=")
    return name, value


def variables_in(environment: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and values in their order."""
    return map(name_and_value, texts_in(environment))


def pack(variables: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write variables in this form, in their order. Raises `ValueError` where one holds a NUL."""
    return pack_texts([name + b"=" + value for name, value in variables])


def pack_texts(texts: Sequence[bytes]) -> bytes:
    """Write entries, which may be names without `=`. Raises `ValueError` where one holds a NUL."""
    if any(b"\0" in text for text in texts):
        raise ValueError("a variable holds a NUL")
    return COUNT.pack(len(texts)) + b"".join(text + b"\0" for text in texts)
