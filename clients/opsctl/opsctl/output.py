"""Output: JSON as the API has it, or a table for people."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import click

#: Longer cells are cut, unless they are in the last column.
_WIDEST = 60


def show_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def show_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Show rows, the values of nested objects as `outer.inner`."""
    found = list(rows)
    if as_json:
        show_json(found)
        return
    if not found:
        click.echo("Nothing found.", err=True)
        return
    table = [[column.replace("_", " ").replace(".", " ") for column in columns]]
    table += [[_text(_value(row, column)) for column in columns] for row in found]
    widths = [
        min(_WIDEST, max(len(line[place]) for line in table)) for place in range(len(columns))
    ]
    for line in table:
        cells = [
            cell if len(cell) <= width else cell[: width - 1] + "…"
            for cell, width in zip(line, widths, strict=True)
        ]
        cells[-1] = line[-1]
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        )


def show_facts(data: Mapping[str, Any], names: Sequence[str], *, as_json: bool) -> None:
    """Show one object: a line for each of its named values that is set."""
    if as_json:
        show_json(data)
        return
    facts = [
        (name.replace("_", " ").replace(".", " "), _text(_value(data, name))) for name in names
    ]
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        if text:
            click.echo(f"{name.ljust(width)}  {text}")


def _value(row: Mapping[str, Any], column: str) -> Any:
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    """Return a value as one line without control characters:
    text of jobs must not steer a terminal.
    """
    if value is None or value == [] or value is False:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    text = "yes" if value is True else str(value)
    if len(text) >= 19 and text[4:5] == text[7:8] == "-" and text[10:11] == "T":
        with suppress(ValueError):
            text = datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    return clean(" ".join(text.split()))


def clean(text: str) -> str:
    return "".join(each if each.isprintable() or each == "\t" else "�" for each in text)
