"""Parameters of query strings."""

from collections.abc import Mapping


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return a parameter as a row number; None if it is missing or not one."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
