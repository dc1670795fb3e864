"""Stage names that mean the same, so that past jobs count whatever their stage was called."""

from collections.abc import Mapping
from typing import TypeVar

_SYNONYMS = (
    ("generation", "generator", "gen", "evgen"),
    ("simulation", "sim", "g4", "geant4"),
    ("digitisation", "digitization", "digi", "detsim"),
    ("reconstruction", "reco", "rec"),
    ("calibration", "calib"),
    ("merge", "merging", "concat", "concatenation"),
    ("skim", "skimming"),
    ("analysis", "ana"),
)

_Row = TypeVar("_Row")


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return a stage name and its synonyms in lower case, the name itself first."""
    name = name.casefold()
    for synonyms in _SYNONYMS:
        if name in synonyms:
            return (name, *[synonym for synonym in synonyms if synonym != name])
    return (name,)


def named_or_synonym(rows: Mapping[str, _Row], name: str) -> tuple[str, _Row | None]:
    """Return the row of a stage name, or else of the first synonym that has one, with its name.

    `rows` has lower-case names. An empty row counts as none.
    """
    for synonym in synonyms_of(name):
        row = rows.get(synonym)
        if row:
            return synonym, row
    return name.casefold(), None
