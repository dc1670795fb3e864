"""The catalogue in the database: loaded, changed, proposed, compiled again,
and what passive and experiment mean.
"""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.models import Event
from apps.diagnosis.domain.known_errors.changes import (
    decide_change,
    disable_expired,
    submit_change,
    values_of,
)
from apps.diagnosis.domain.known_errors.current import current_catalogue, current_classifiers
from apps.diagnosis.domain.known_errors.shipped import load_shipped
from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.evidence.catalogue import COLUMNS, built_in, read_catalogue
from apps.diagnosis.enums import ChangeState
from apps.diagnosis.models import CatalogueState, KnownError, KnownErrorChange
from tests.factories import people

NEW = {
    "title": "Geometry service lost",
    "category": "service",
    "service": "geometry",
    "regex": r"geometry server gone after \d+ s",
    "role": "cause",
    "advice": "retry",
    "example": "E geometry server gone after 30 s",
}


@pytest.fixture
def change(db, approver, at):
    """Change a known error as the approver; fields as keywords."""

    def submit(known_error="GEO-GONE", *, by=approver, reason="seen today", base=None, **values):
        return submit_change(
            known_error=known_error, values=values, by=by, at=at, reason=reason, base=base
        )

    return submit


def judged(line: str, experiment: str = ""):
    data = f"{line}\n".encode()
    facts = JobFacts(exit_code=1, experiment=experiment)
    return diagnose(facts, [Block(data, 0, len(data), 1)], classifiers=current_classifiers())


def cause_of(line: str, experiment: str = "") -> str:
    cause = judged(line, experiment).verdict.cause
    return cause.pattern.id if cause else ""


def test_shipped_rows_are_loaded_with_the_database_and_once_only(db, at):
    assert set(KnownError.objects.values_list("pk", flat=True)) == {
        pattern.id for pattern in built_in().patterns
    }
    assert KnownErrorChange.objects.filter(version=1, by="opsportal").count() == len(
        built_in().patterns
    )
    number = CatalogueState.objects.get().number
    load_shipped(at=at)
    assert CatalogueState.objects.get().number == number


def test_new_version_of_the_portal_changes_rows_and_offers_changes_of_edited_ones(
    change, at, tmp_path
):
    change("DNS", title="Resolver of the site failed")
    edited = (
        ",".join(COLUMNS)
        + "\n"
        + "".join(
            f"{name},New title,site,network,gone,retry,cause,stdout,gone\n"
            for name in ("DNS", "QUOTA", "NEW-ONE")
        )
    )
    (tmp_path / "next.csv").write_text(edited)
    loaded = load_shipped(at=at, catalogue=read_catalogue(tmp_path / "next.csv"))
    assert (loaded.added, loaded.offered) == (1, 1)
    assert KnownError.objects.get(pk="QUOTA").title == "New title"
    assert KnownError.objects.get(pk="DNS").title == "Resolver of the site failed"
    offer = KnownErrorChange.objects.get(known_error="DNS", state=ChangeState.PROPOSED)
    assert offer.values["title"] == "New title"
    assert "title" in offer.fields
    assert not KnownError.objects.get(pk="BADALLOC").enabled
    assert load_shipped(at=at, catalogue=read_catalogue(tmp_path / "next.csv")).added == 0


def test_change_is_a_version_and_is_matched_at_once(change, approver, at):
    assert cause_of(NEW["example"]) != "GEO-GONE"
    made = change(**NEW, base=0)
    assert (made.version, made.by, made.reason, made.at) == (1, str(approver), "seen today", at)
    verdict = judged(NEW["example"]).verdict
    assert (verdict.cause.pattern.id, verdict.verdict, verdict.service) == (
        "GEO-GONE",
        "service",
        "geometry",
    )
    assert change(instructions="Restart geo-01.", base=1).version == 2
    assert "What to do about GEO-GONE: Restart geo-01." in {
        reason.text for reason in judged(NEW["example"]).verdict.reasons
    }
    assert change(role="noise", base=2).version == 3
    assert not cause_of(NEW["example"])
    assert [
        row.values["role"] for row in KnownErrorChange.objects.filter(known_error="GEO-GONE")
    ] == [
        "noise",
        "cause",
        "cause",
    ]
    assert Event.objects.filter(kind="known_error.changed").count() == 3


def test_catalogue_is_compiled_once_per_version(change):
    first = current_catalogue()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert current_catalogue() is first
    assert len(queries) == 1
    change(**NEW)
    assert current_catalogue() is not first


@pytest.mark.parametrize(
    ("values", "field", "why"),
    [
        ({"regex": "(a"}, "regex", "does not compile in RE2: missing ): (a."),
        (
            {"regex": "(a)\\1"},
            "regex",
            "does not compile in RE2: invalid escape sequence: \\1 (RE2 has no lookaround",
        ),
        ({"regex": "(?=geometry)"}, "regex", "RE2 has no lookaround"),
        ({"regex": "elsewhere"}, "regex", "does not match its example"),
        ({"regex": "g*"}, "regex", "matches the empty line"),
        ({"role": "culprit"}, "role", "not a valid choice"),
        ({"title": ""}, "title", "cannot be blank"),
        ({"experiment": "NONE-SUCH"}, "experiment", "not found, or you do not have access"),
        ({"link": "nowhere"}, "link", "valid URL"),
    ],
)
def test_wrong_values_are_refused_with_the_reason(change, values, field, why):
    with pytest.raises(InvalidFields) as caught:
        change(**{**NEW, **values})
    assert why in caught.value.problems[field][0]
    assert not KnownErrorChange.objects.filter(known_error="GEO-GONE").exists()


def test_change_needs_a_reason_a_difference_and_the_version_seen(change):
    change(**NEW)
    with pytest.raises(InvalidFields, match="Nothing has changed"):
        change(**NEW)
    with pytest.raises(InvalidFields, match="Enter a reason"):
        change(reason=" ", title="Other")
    with pytest.raises(StaleState):
        change(base=0, title="Other")


def test_shifters_and_liaisons_propose_and_approvers_decide(change, approver, shifter, liaison, at):
    proposal = change(by=shifter, **NEW)
    assert (proposal.state, proposal.version) == (ChangeState.PROPOSED, None)
    assert not KnownError.objects.filter(pk="GEO-GONE").exists()
    with pytest.raises(NotAllowed):
        decide_change(change=proposal, approve=True, by=liaison, at=at)
    decided = decide_change(change=proposal, approve=True, by=approver, at=at)
    assert (decided.state, decided.version, decided.decided_by) == (
        ChangeState.APPLIED,
        1,
        str(approver),
    )
    assert values_of(KnownError.objects.get(pk="GEO-GONE")) == decided.values
    other = change(by=liaison, title="Other")
    with pytest.raises(InvalidFields, match="Enter a reason"):
        decide_change(change=other, approve=False, by=approver, at=at)
    decide_change(change=other, approve=False, by=approver, at=at, reason="The title is fine.")
    with pytest.raises(InvalidTransition):
        decide_change(change=other, approve=True, by=approver, at=at)
    assert KnownError.objects.get(pk="GEO-GONE").title == NEW["title"]


def test_proposal_changes_only_its_fields_of_what_was_changed_since(change, approver, shifter, at):
    change(**NEW)
    proposal = change(by=shifter, title="Geometry server restarted")
    change(instructions="Restart geo-01.", service="geo")
    assert proposal.fields == ["title"]
    decided = decide_change(change=proposal, approve=True, by=approver, at=at)
    row = KnownError.objects.get(pk="GEO-GONE")
    assert (row.title, row.instructions, row.service) == (
        "Geometry server restarted",
        "Restart geo-01.",
        "geo",
    )
    assert (decided.version, decided.values) == (3, values_of(row))


def test_another_experiment_is_not_confirmed_to_those_who_propose(change, liaison, nova, dune):
    problems = []
    for key in ("DUNE", "NOPE"):
        with pytest.raises(InvalidFields) as refused:
            change(by=liaison, **NEW, experiment=key)
        problems.append(str(refused.value.problems).replace(key, "…"))
    assert (
        problems == ["{'experiment': ['Experiment “…” not found, or you do not have access.']}"] * 2
    )
    assert change(by=liaison, **NEW, experiment="NOVA").state == "proposed"


def test_user_without_a_role_may_not_propose(change):
    with pytest.raises(NotAllowed):
        change(by=people.person("nobody"), **NEW)


def test_passive_one_marks_its_line_and_decides_nothing(change):
    change(**NEW, passive=True)
    found = judged(NEW["example"])
    assert "GEO-GONE" in {hit.pattern.id for hit in found.hits}
    assert not found.verdict.cause
    change(role="noise")
    assert cause_of(f"{NEW['example']} std::bad_alloc") == "BADALLOC"


def test_one_of_an_experiment_applies_to_its_jobs_only(change, nova):
    change(**NEW, experiment="nova")
    assert cause_of(NEW["example"], "NOVA") == "GEO-GONE"
    assert cause_of(NEW["example"], "DUNE") != "GEO-GONE"


def test_expired_one_is_disabled_with_a_version_that_says_so(change, at):
    change(**NEW, expires_at=(at + timedelta(days=1)).isoformat())
    assert disable_expired(at=at) == 0
    assert disable_expired(at=at + timedelta(days=1)) == 1
    row = KnownError.objects.get(pk="GEO-GONE")
    assert (row.enabled, row.version) == (False, 2)
    assert KnownErrorChange.objects.get(known_error="GEO-GONE", version=2).reason == "It expired."
