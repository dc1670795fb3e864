"""Tables as text, for spreadsheets: what a job or a user has named must not become a
formula there.
"""

import re
from collections.abc import Iterable, Sequence

#: What a spreadsheet takes for the start of a formula (OWASP, "CSV injection"); full-width forms
#: included.
_FORMULA = re.compile(r"[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*(e[+-]?[0-9]+)?", re.IGNORECASE | re.ASCII)


def table_cell(value: object) -> str:
    """Return a value as one line without tabs; text that a spreadsheet would run has an
    apostrophe in front.
    """
    text = " ".join(str(value).replace("\0", " ").split())
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def tsv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as tab-separated text; every cell is defused by `table_cell`."""
    return "".join("\t".join(map(table_cell, row)) + "\n" for row in rows)
