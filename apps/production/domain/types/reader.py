"""Reading plain data, as JSON and YAML have it: every fault is collected by the place where it is, none stops it."""

from collections.abc import Collection, Mapping
from typing import Any

NAMES = "This must be names with values."
#: Of a name that is not known, a place keeps no more than this.
LONGEST_NAME = 40


class Reader:
    """Returns what can be read, or something empty of the right kind; `problems` has the faults by place."""

    #: What stands before the faults of the data as a whole.
    root = ""

    def __init__(self) -> None:
        self.problems: dict[str, list[str]] = {}

    @property
    def count(self) -> int:
        """Return how many faults there are."""
        return sum(map(len, self.problems.values()))

    def fault(self, place: str, message: str) -> None:
        """Note what is wrong at a place, once."""
        messages = self.problems.setdefault(place or self.root, [])
        if message not in messages:
            messages.append(message)

    def mapping(self, data: Any, place: str, known: Collection[str] | None) -> dict[str, Any]:
        """Read names with values; only `known` names, unless that is None."""
        if not isinstance(data, Mapping):
            self.fault(place, NAMES)
            return {}
        for name in data:
            if known is not None and name not in known:
                here = ".".join(filter(None, [place, str(name)[:LONGEST_NAME]]))
                self.fault(here, f"There is no such field; there are: {', '.join(sorted(known))}.")
        return {str(name): value for name, value in data.items() if known is None or name in known}

    def sequence(self, data: Any, place: str) -> list[Any]:
        """Read a list; nothing is an empty one."""
        if data is None or isinstance(data, list):
            return data or []
        self.fault(place, "This must be a list.")
        return []
