"""Tables as text for spreadsheets, in which text of jobs or users must not become a formula."""

import re
from collections.abc import Iterable, Sequence

#: Characters that start a formula in spreadsheets (OWASP, "CSV injection"), with full-width forms.
_FORMULA = re.compile(r"[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*(e[+-]?[0-9]+)?", re.IGNORECASE | re.ASCII)


def table_cell(value: object) -> str:
    """Return a value as one line without tabs.

    Text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    text = " ".join(str(value).replace("\0", " ").split())
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def tsv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as tab-separated text; every cell passes through `table_cell`."""
    return "".join("\t".join(map(table_cell, row)) + "\n" for row in rows)
