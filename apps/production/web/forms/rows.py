"""Rows of the table of stages: add, move and remove them, and fill them from a spreadsheet."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.utils.datastructures import MultiValueDict

from apps.accounts.models import Experiment
from apps.production.domain.content.model import MAX_STAGES
from apps.production.domain.content.stage_names import synonyms_of
from apps.production.domain.lineage.proposals import propose_values
from apps.production.domain.types.declaration import StageType, Workflow
from apps.production.web.forms.request import RequestForms, blank_stage, typed_stage
from apps.production.web.forms.shared import PREFIX, Row, shared_arguments
from apps.production.web.forms.spreadsheet import read_table

_FIELD_OF_STAGE = re.compile(r"id_stages-([0-9]{1,3})-([a-z_]+)")


@dataclass(frozen=True)
class RowChange:
    """The input with changed rows, the row to focus, and notes on what was left out."""

    data: MultiValueDict[str, Any]
    focus: int | None = None
    notes: list[str] = field(default_factory=list)


def change_rows(
    forms: RequestForms, action: str, experiment: Experiment | None
) -> RowChange | None:
    """Return the input after `add`, `paste`, `remove-2`, `up-2` or `down-2`.

    Rows count from 0. Return None for any other action and for a damaged form.
    """
    verb, _, place = action.partition("-")
    if forms.is_damaged:
        return None
    if verb == "add":
        return _add_row(forms, experiment)
    if verb == "paste":
        return _paste_rows(forms, experiment)
    if verb in {"remove", "up", "down"}:
        return _move_row(forms, verb, place)
    return None


def _add_row(forms: RequestForms, experiment: Experiment | None) -> RowChange:
    rows = forms.rows()
    if len(rows) >= MAX_STAGES:
        return RowChange(forms.with_rows(rows))
    kind = forms.workflow.stage(forms.data.get("add_kind", ""))
    rows.append(_new_row(forms.workflow, kind))
    focus = len(rows) - 1
    _propose(forms, rows, [focus], experiment)
    return RowChange(forms.with_rows(rows), focus)


def _move_row(forms: RequestForms, verb: str, place: str) -> RowChange:
    rows = forms.rows()
    focus = None
    position = int(place) if re.fullmatch(r"[0-9]{1,3}", place) else -1
    to = position + {"up": -1, "down": 1}.get(verb, 0)
    if verb == "remove" and 0 <= position < len(rows):
        del rows[position]
    elif to != position and 0 <= min(to, position) <= max(to, position) < len(rows):
        rows.insert(to, rows.pop(position))
        focus = to
    return RowChange(forms.with_rows(rows), focus)


def _paste_rows(forms: RequestForms, experiment: Experiment | None) -> RowChange:
    """Fill rows from the text in `pasted`, and add the missing ones.

    `paste_at` is the field where it was pasted, if it was not the box for it.
    """
    at = _FIELD_OF_STAGE.fullmatch(forms.data.get("paste_at", ""))
    rows = forms.rows()
    first = min(int(at[1]), len(rows)) if at else 0
    table = read_table(
        forms.data.get("pasted", ""), forms.workflow, first_column=at[2] if at else ""
    )
    notes = list(table.notes)
    added = []
    for position, cells in enumerate(table.rows[: MAX_STAGES - first], start=first):
        if position == len(rows):
            before = rows[-1] if rows else {}
            rows.append(_new_row(forms.workflow, _kind_of(cells, before, forms.workflow)))
            added.append(position)
        notes += _fill(rows[position], cells, forms.workflow)
    shared = _shared_cells(forms, rows, table.rows)
    _propose(forms, rows, added, experiment)
    changed = {**shared, "pasted": [""], "paste_at": [""]}
    return RowChange(forms.with_rows(rows, changed=changed), first if table.rows else None, notes)


def _new_row(workflow: Workflow, kind: StageType) -> Row:
    """Return the row of a new stage. It has no own value of what all stages share."""
    row = typed_stage(blank_stage(workflow, kind), kind)
    for argument in kind.arguments:
        if argument.shared:
            row[argument.name] = []
    return row


def _kind_of(cells: dict[str, str], before: Row, workflow: Workflow) -> StageType:
    """Return the kind of stage that a name means, or else the kind of the row before."""
    names = synonyms_of(cells.get("name", ""))
    for kind in workflow.stages:
        if kind.key in names:
            return kind
    return workflow.stage("".join(before.get("kind", [])))


def _fill(row: Row, cells: dict[str, str], workflow: Workflow) -> list[str]:
    """Write cells into a row. Return notes on cells that its kind of stage has no field for."""
    kind = workflow.stage("".join(row.get("kind", [])))
    notes = []
    for name, cell in cells.items():
        if kind.argument(name):
            row[name] = [cell]
        else:
            notes.append(f"{kind.title} has no field for “{cell[:40]}”.")
    return notes


def _shared_cells(forms: RequestForms, rows: list[Row], pasted: list[dict[str, str]]) -> Row:
    """Return the shared input of columns that have one value in all rows, and empty these cells."""
    shared: Row = {}
    for name in shared_arguments(forms.workflow):
        values = {tuple(row.get(name, [])) for row in rows}
        if len(values) == 1 and any(name in cells for cells in pasted):
            shared[f"{PREFIX}-{name}"] = list(values.pop())
            for row in rows:
                row[name] = []
    return shared


def _propose(
    forms: RequestForms, rows: list[Row], positions: Iterable[int], experiment: Experiment | None
) -> None:
    """Fill the empty fields of new rows with proposed values."""
    content = RequestForms(forms.with_rows(rows), workflow=forms.workflow).content
    if experiment is None or len(content.stages) != len(rows):
        return
    stages = propose_values(content, experiment).stages
    for position in positions:
        row = rows[position]
        for argument in content.workflow.stage(stages[position].kind).arguments:
            if not argument.shared and not any(row.get(argument.name, [])):
                row[argument.name] = [argument.write(stages[position].value(argument.name))]
