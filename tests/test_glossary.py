"""The glossary names every state, move, role and verdict as the enums do, and no other."""

import re

import pytest
from django.conf import settings

from apps.accounts.enums import Role
from apps.diagnosis.enums import VerdictKind
from apps.production.enums import RequestState, Verb


def rows(heading):
    """Return the cells of the table under a heading of docs/glossary.md, without its head."""
    text = (settings.BASE_DIR / "docs" / "glossary.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE).group(1)
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


@pytest.mark.parametrize(
    ("heading", "choices"), [("States of a request", RequestState), ("Moves of a request", Verb), ("Roles", Role)]
)
def test_terms_of_the_glossary_are_those_of_the_enum(heading, choices):
    assert [(value, label) for value, label, _ in rows(heading)] == [(f"`{c.value}`", str(c.label)) for c in choices]


def test_verdicts_of_the_glossary_are_those_of_the_enum():
    assert [value for value, _ in rows("Verdicts on a failed job")] == [f"`{kind}`" for kind in VerdictKind]


def test_each_term_has_a_meaning():
    headings = ("States of a request", "Moves of a request", "Roles", "Verdicts on a failed job", "Other terms")
    assert all(row[-1] for heading in headings for row in rows(heading))
