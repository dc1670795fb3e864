"""What the query of an address says, where it makes sense."""

from collections.abc import Mapping


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number that a query gives; None where it gives none, or one that no row could have."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
