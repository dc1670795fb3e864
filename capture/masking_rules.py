"""The masking rules received last, stored beside the journal.

They apply while the portal is unreachable.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from apps.core.domain.secrets.masking import MaskPattern


class KeptRules:
    """The rules of one journal directory.

    An unreadable file is an error: without it, secrets would be stored.
    """

    def __init__(self, directory: Path) -> None:
        """Read them. Raises `ValueError` or `OSError` naming the file."""
        self._path = directory / "masking-rules.json"
        self.rules: tuple[MaskPattern, ...] = ()
        self.received = self._path.exists()
        if self.received:
            try:
                self.rules = tuple(
                    MaskPattern(*pair) for pair in json.loads(self._path.read_bytes())
                )
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self._path}: {error}") from error

    def keep(self, rules: Sequence[MaskPattern]) -> bool:
        """Write `rules` durably. Returns whether they differ from the previous ones."""
        changed = tuple(rules) != self.rules
        if self.received and not changed:
            return False
        new_file = self._path.with_suffix(".new")
        with new_file.open("w", encoding="utf-8") as file:
            json.dump([[rule.applies_to, rule.pattern] for rule in rules], file)
            file.flush()
            os.fsync(file.fileno())
        new_file.replace(self._path)
        self.rules = tuple(rules)
        self.received = True
        return changed
