"""Stages pasted from a spreadsheet: tab-separated rows, with or without a row of titles."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO

from apps.production.domain.content.model import MAX_STAGES
from apps.production.domain.types.declaration import Workflow

#: The columns of a table without a row of titles.
PASTED_COLUMNS = ("name", "configuration", "output_dataset", "jobs", "memory_bytes", "wall_seconds")
#: Titles of columns besides the names and labels of fields.
_TITLES = {
    "stage": "name",
    "config": "configuration",
    "input": "input_dataset",
    "output": "output_dataset",
    "time": "wall_seconds",
}


@dataclass(frozen=True)
class PastedTable:
    """The filled cells of each row by field name, and notes on what was left out."""

    rows: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_table(text: str, workflow: Workflow, *, first_column: str = "") -> PastedTable:
    """Read the text that a spreadsheet copies.

    Without a row of titles, the columns are `PASTED_COLUMNS`, from `first_column` on.
    """
    try:
        lines = list(csv.reader(StringIO(text, newline=""), delimiter="\t"))
    except csv.Error:
        return PastedTable(notes=["The pasted text is not a table."])
    lines = [line for line in lines if "".join(line).strip()]
    if not lines:
        return PastedTable(notes=["Paste rows first."])

    notes = []
    columns = _named_columns(lines[0], workflow)
    if columns:
        for title, name in zip(lines[0], columns, strict=True):
            if title.strip() and not name:
                notes.append(f"Column “{title.strip()[:40]}” is not a field of a stage.")
        del lines[0]
    else:
        begin = PASTED_COLUMNS.index(first_column) if first_column in PASTED_COLUMNS else 0
        columns = PASTED_COLUMNS[begin:]
    if len(lines) > MAX_STAGES:
        notes.append(f"A request has at most {MAX_STAGES} stages. The other rows were left out.")

    rows = []
    for line in lines[:MAX_STAGES]:
        cells = {}
        for name, cell in zip(columns, line, strict=False):
            if name and cell.strip():
                cells[name] = cell.strip()
        rows.append(cells)
    return PastedTable(rows, notes)


def _named_columns(titles: Sequence[str], workflow: Workflow) -> Sequence[str]:
    """Return the field of each title, with empty texts for unknown titles.

    Empty if the row is no row of titles: most of its cells are none.
    """
    fields = dict(_TITLES)
    for kind in workflow.stages:
        for argument in kind.arguments:
            # Services are ticked, not written.
            if argument.name != "services":
                fields[argument.name] = argument.name
                fields[argument.title.casefold()] = argument.name
    names = [fields.get(title.strip().casefold(), "") for title in titles]
    known = sum(bool(name) for name in names)
    filled = sum(bool(title.strip()) for title in titles)
    return names if known * 2 > filled else ()
