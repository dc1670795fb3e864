"""Asking sacct for rows. Job names and comments are free text, so its output is made unambiguous here."""

import secrets
from collections.abc import Iterator, Sequence

from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.commands import Commands


class Sacct:
    """The accounting of one cluster, as rows of named fields."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self._known_fields: frozenset[str] | None = None

    def rows(self, fields: Sequence[str], *selection: str) -> Iterator[dict[str, str]]:
        """Return the rows of a selection. A field that this version of Slurm does not know is empty.

        sacct escapes nothing, but ends each field by a string of our choice: with one that nobody can guess,
        neither `|` nor a newline in a comment can be taken for the end of a field or of a row.
        """
        asked = [name for name in fields if name in self.known_fields()]
        delimiter = new_delimiter()
        output = self.commands.run(
            "sacct",
            "--allusers",
            "--duplicates",
            "--noheader",
            "--parsable",
            "--noconvert",
            f"--delimiter={delimiter}",
            f"--format={','.join(asked)}",
            *selection,
        )
        for values in split_rows(output, delimiter, len(asked)):
            yield dict.fromkeys(fields, "") | dict(zip(asked, values, strict=True))

    def known_fields(self) -> frozenset[str]:
        """Return the names of the fields that this version of sacct can print."""
        if self._known_fields is None:
            self._known_fields = frozenset(self.commands.run("sacct", "--helpformat").split())
        return self._known_fields


def new_delimiter() -> str:
    """Return an end of a field that nobody can guess."""
    return f"\x1f{secrets.token_hex(16)}\x1f"


def split_rows(output: str, delimiter: str, width: int) -> Iterator[list[str]]:
    """Cut sacct's output by counting fields: each field ends with the delimiter, each row with a newline too.

    Raises `SchedulerError` where the output does not end with a whole row.
    """
    values = output.split(delimiter)
    if (len(values) - 1) % width or values[-1].strip("\n"):
        raise SchedulerError(f"the output breaks off: {output[-200:]!r}")
    for start in range(0, len(values) - 1, width):
        first, *others = values[start : start + width]
        yield [first.removeprefix("\n"), *others]
