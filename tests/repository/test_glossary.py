"""The glossary names every state, move, role and verdict as the enums do, and no other."""

import re

import pytest
from django.conf import settings

from apps.accounts.enums import Role
from apps.diagnosis.enums import (
    BaselineScope,
    Confidence,
    GroupKind,
    GroupStatus,
    HarvestState,
    JobAdvice,
    VerdictKind,
)
from apps.diagnosis.enums import Role as ErrorRole
from apps.jobs.enums import STATE_CHOICES, Proof
from apps.production.enums import RequestState, Verb
from apps.statusboard.enums import Cause, Meeting, Monitoring, Resolution, State
from apps.submission.enums import BatchState, RetryState

CHOICES = {
    "States of a request": RequestState.choices,
    "Moves of a request": Verb.choices,
    "Roles": Role.choices,
    "States of a job": STATE_CHOICES,
    "Verdicts on a failed job": VerdictKind.choices,
    "Advice on a failed job": JobAdvice.choices,
    "Confidence of a verdict": Confidence.choices,
    "Roles of a known error": ErrorRole.choices,
    "Statuses of a failure group": GroupStatus.choices,
    "Kinds of failure groups": GroupKind.choices,
    "States of a log analysis": HarvestState.choices,
    "States of a service": State.choices,
    "Monitoring of a service": Monitoring.choices,
    "Causes of a service's state": Cause.choices,
    "Resolutions of an incident": Resolution.choices,
    "Meetings of a job and an incident": Meeting.choices,
    "Baselines of an impact": BaselineScope.choices,
    "Proofs of a job's request": Proof.choices,
    "States of a retry batch": BatchState.choices,
    "States of a job in a retry batch": RetryState.choices,
}


def rows(heading):
    """Return the cells of the table under a heading of docs/glossary.md, without its head."""
    text = (settings.BASE_DIR / "docs" / "glossary.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE).group(
        1
    )
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


@pytest.mark.parametrize("heading", CHOICES)
def test_terms_of_the_glossary_are_those_of_the_enum(heading):
    choices = [(f"`{value}`", str(label)) for value, label in CHOICES[heading]]
    assert [(value, label) for value, label, _ in rows(heading)] == choices


def test_each_term_has_a_meaning():
    assert all(row[-1] for heading in (*CHOICES, "Other terms") for row in rows(heading))
