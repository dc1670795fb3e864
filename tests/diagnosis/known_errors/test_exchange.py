"""Known errors as YAML: what is exported is imported again, faults have lines,
a check stores nothing.
"""

import pytest
import yaml
from django.urls import reverse
from django.utils.html import escape
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.diagnosis.domain.known_errors.changes import FIELDS
from apps.diagnosis.domain.known_errors.exchange import import_known_errors, write_known_errors
from apps.diagnosis.models import KnownError, KnownErrorChange
from apps.production.domain.yaml_text import parse_yaml

TEXT = """known_errors:
  - id: GEO-GONE
    title: Geometry service lost
    category: service
    service: geometry
    regex: 'geometry server gone after \\d+ s'
    role: cause
    advice: retry
    example: geometry server gone after 30 s
  - id: DNS
    title: Resolver of the site failed
"""


def imported(text, by, at, *, dry_run=False):
    return import_known_errors(
        text=text, by=by, at=at, reason="from the experiment", dry_run=dry_run
    )


def test_export_is_imported_without_a_change(db, approver, at):
    done = imported(
        write_known_errors(KnownError.objects.select_related("experiment")), approver, at
    )
    assert (done.added, done.changed, done.faults) == ([], [], [])
    assert len(done.unchanged) == KnownError.objects.count()


def written_by_pyyaml(text: str) -> str:
    return yaml.safe_dump(yaml.safe_load(text), sort_keys=False, allow_unicode=True, width=120)


def test_export_is_as_pyyaml_writes_it(db):
    """So that files under version control stay the same, whichever writer is used."""
    text = write_known_errors(KnownError.objects.select_related("experiment"))
    assert text == written_by_pyyaml(text)
    assert write_known_errors([]) == written_by_pyyaml("known_errors: []")


@pytest.mark.parametrize(
    "example",
    ["Größe: #1", "😍" * 9, "two\nlines " * 30, "\u202e\x1b[31m " * 30, "a\\b 'c' \"d\": " * 30],
)
def test_export_keeps_every_character(example):
    rows = [
        KnownError(id="FIRST", title="Plain"),
        KnownError(id="SECOND", title="Odd", example=example),
    ]
    text = write_known_errors(rows)
    assert yaml.safe_load(text)["known_errors"][1]["example"] == example
    assert text == written_by_pyyaml(text)


texts = st.text(
    st.one_of(
        st.sampled_from("\x85\u2028\u2029\ufeff\n\t\\'\":#- 1e.~😍"),
        st.characters(exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=300,
)


@settings(max_examples=500)
@given(example=texts, title=texts)
@example(example="a\x85b", title="\u2028")
@example(example="1e5", title="~")
def test_import_reads_the_text_that_was_exported(example, title):
    written = write_known_errors([KnownError(id="ODD", title=title, example=example)])
    parsed = parse_yaml(written)
    assert parsed.faults == []
    entry = parsed.data["known_errors"][0]
    assert (entry["title"], entry["example"]) == (title, example)


def test_check_stores_nothing_import_stores_all(db, approver, at):
    before = KnownErrorChange.objects.count()
    done = imported(TEXT, approver, at, dry_run=True)
    assert (done.added, done.changed, done.faults) == (["GEO-GONE"], ["DNS"], [])
    assert KnownErrorChange.objects.count() == before
    imported(TEXT, approver, at)
    assert KnownError.objects.get(pk="DNS").title == "Resolver of the site failed"
    assert KnownErrorChange.objects.get(known_error="GEO-GONE").reason == "from the experiment"
    assert imported(TEXT, approver, at).unchanged == ["GEO-GONE", "DNS"]


def test_faults_name_their_lines_and_nothing_is_stored(db, approver, at):
    wrong = (
        TEXT.replace("role: cause", "role: culprit")
        .replace("\\d+ s", "(?=x)")
        .replace("    title: Res", "    titel: Res")
    )
    done = imported(wrong, approver, at)
    faults = [str(fault) for fault in done.faults]
    assert faults[0].startswith("Line 6: GEO-GONE, regex: The pattern does not compile in RE2")
    assert faults[1].startswith("Line 7: GEO-GONE, role: Value 'culprit' is not a valid choice")
    assert faults[2] == "Line 11: Unknown field “titel”."
    assert not KnownError.objects.filter(pk="GEO-GONE").exists()
    for text, why in (
        ("a: [", "Invalid YAML"),
        ("[]", "Start with"),
        ("known_errors: [1, {id: A}, {id: A}]", "needs an id"),
    ):
        assert why in " ".join(map(str, imported(text, approver, at).faults))


def test_page_checks_imports_and_lets_shifters_propose(db, client, shifter):
    client.force_login(shifter)
    url = reverse("diagnosis:known-errors-import")
    assert "1 new: GEO-GONE" in client.post(url, {"text": TEXT, "check": 1}).content.decode()
    bad = client.post(url, {"text": "known_errors: [1]", "save": 1, "reason": "x"})
    assert (bad.status_code, "Line 1: A known error needs an id." in bad.content.decode()) == (
        400,
        True,
    )
    client.post(url, {"text": TEXT, "save": 1, "reason": "from the experiment"})
    assert KnownErrorChange.objects.filter(state="proposed", by=str(shifter)).count() == 2
    answer = client.get(reverse("diagnosis:known-errors-export"), {"q": "XRD-EXPIRED"})
    assert answer.content.decode().startswith("known_errors:\n- id: XRD-EXPIRED\n")


def test_import_offers_an_example_that_can_be_imported(db, client, approver, at):
    client.force_login(approver)
    page = client.get(reverse("diagnosis:known-errors-import"))
    text = page.context["example"]
    assert "Example to copy and change" in page.text
    assert escape(text) in page.text

    done = imported(text, approver, at)
    assert (done.faults, len(done.added)) == ([], 2)
    optional = text.replace("# experiment: NOVA ", "# ").replace("\n    # ", "\n    ")
    with_all_fields = imported(optional, approver, at, dry_run=True)
    assert (with_all_fields.faults, with_all_fields.changed) == ([], ["CALIBRATION-TAG-UNKNOWN"])
    named = {name for entry in yaml.safe_load(optional)["known_errors"] for name in entry}
    assert {*FIELDS} - named == {"experiment", "where", "pack"}


def test_values_of_other_kinds_are_faults_and_null_is_no_value(db, approver, at):
    done = imported(
        TEXT.replace("    title: Res", "    expires_at: 5\n    title: Res"), approver, at
    )
    assert ["expires_at" in str(fault) for fault in done.faults] == [True]
    done = imported(TEXT.replace("    advice:", "    owner: null\n    advice:"), approver, at)
    assert (done.faults, KnownError.objects.get(pk="GEO-GONE").owner) == ([], "")
