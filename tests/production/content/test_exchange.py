"""Requests as YAML: what is written is read back the same, and each fault is told with its line."""

from datetime import date

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.production.domain.content.model import MAX_STAGES, RequestContent, StageContent
from apps.production.domain.content.serialization import read_plain, write_request_yaml
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.exchange import (
    InvalidText,
    export_request,
    import_request,
    read_import,
)
from apps.production.domain.types.fields import CORE
from apps.production.domain.types.versions import (
    load_builtin_workflows,
    newest_version,
    workflow_of,
)
from apps.production.domain.yaml_text import parse_yaml
from apps.production.models import Request, WorkflowType, WorkflowVersion
from tests.factories.requests import AT, content, draft, stage
from tests.factories.workflows import builtin, monte_carlo
from tests.pumps import seconds_of

IMPORT = "/requests/import/"

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60
) | st.sampled_from(
    [
        "yes",
        "no",
        "1.0",
        "null",
        "~",
        "2026-01-01",
        "08:00:00",
        "a: b",
        "- a",
        "# a",
        "a\nb",
        " a\n b \n",
        "\n",
        "\r\n",
        "'",
        '"',
        "\t",
        "\x85",
        "\ufeff",
        "!x",
        "&a",
        "*a",
        "%",
        "@",
        "`",
        "|",
        ">",
        "0o7",
        "1e5",
        "<<",
        "=",
    ]
)


def numbers(name):
    return st.none() | st.integers(1, CORE[name].most)


TYPED = builtin("monte_carlo")
stages = st.builds(
    StageContent,
    kind=st.just("generation"),
    name=texts,
    release=texts,
    configuration=texts,
    input_dataset=texts,
    output_dataset=texts,
    events=numbers("events"),
    jobs=numbers("jobs"),
    memory_bytes=numbers("memory_bytes"),
    wall_seconds=numbers("wall_seconds"),
    services=st.lists(texts, max_size=3, unique=True).map(tuple),
    arguments=st.fixed_dictionaries(
        {},
        optional={
            "generator": st.text(
                st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=20
            ),
            "filter_efficiency": st.floats(0.000001, 1),
        },
    ),
)
contents = st.builds(
    RequestContent,
    workflow=st.just(TYPED),
    arguments=st.fixed_dictionaries({}, optional={"first_seed": st.integers(1, 900_000_000)}),
    title=texts,
    purpose=texts,
    deadline=st.none() | st.dates(date(2000, 1, 1), date(2100, 12, 31)),
    requested_priority=st.sampled_from(["low", "normal", "high", "urgent"]),
    priority_reason=texts,
    stages=st.lists(stages, max_size=4).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(contents)
def test_what_is_written_is_read_back_the_same(written):
    parsed = parse_yaml(write_request_yaml(written, experiment="NOVA"))

    assert parsed.faults == []
    assert read_plain(parsed.data, TYPED) == (written, {})


@settings(max_examples=60, deadline=None)
@given(
    st.text()
    | st.lists(
        st.sampled_from(
            [
                "a: ",
                "- ",
                "[",
                "{",
                "&a ",
                "*a",
                "\n",
                "  ",
                "!!int ",
                "x",
                "'",
                "|\n",
                "? ",
                "<<: ",
                "---\n",
            ]
        )
    ).map("".join)
)
def test_any_text_is_read_or_told_of(text):
    parsed = parse_yaml(text)

    _, problems = read_plain(parsed.data, TYPED)
    assert parsed.faults or problems or isinstance(parsed.data, dict)


@pytest.mark.parametrize(
    "written", [content(stages=(stage("a", services=("samweb",)), stage("b"))), monte_carlo()]
)
def test_request_exported_and_imported_is_the_same(written, nova, liaison, samweb):
    load_builtin_workflows(at=AT)
    made = draft(liaison, nova, **vars(written))

    again = import_request(text=export_request(made), by=liaison, at=AT)

    assert again.key == "NOVA-0002"
    assert again.workflow == made.workflow
    assert content_of(again) == content_of(made)


def test_units_are_read_as_people_type_them(nova, liaison):
    text = (
        "experiment: NOVA\nstages:\n- {events: 20 M, memory_bytes: 4 GB, wall_seconds: 8 "
        "h}\ndeadline: 2026-12-24\n"
    )
    found = read_import(text, by=liaison, at=AT).content
    assert found.deadline == date(2026, 12, 24)
    only = found.stages[0]
    assert (only.events, only.memory_bytes, only.wall_seconds) == (
        20_000_000,
        4_000_000_000,
        28_800,
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("yes", "yes"),
        ("08:00:00", "08:00:00"),
        ("59:59:59", "59:59:59"),
        ("2026-12-24", "2026-12-24"),
        ("0o7", "0o7"),
        (".inf", ".inf"),
        ("'5'", "5"),
        ("1e3", 1000.0),
        ("-17", -17),
        ("true", True),
        ("~", None),
    ],
)
def test_values_are_those_of_json(written, read):
    assert parse_yaml(f"a: {written}").data == {"a": read}


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "59:" * 60_000 + "59",
        "a: " + "9" * 200_000,
        "[" * 200_000,
        "a: 1\n" * 40_000,
        "- {a: [1]}\n" * 18_000,
        "stages:\n" + "- {x: 1}\n" * 20_000,
        "".join(f"a{i}: 1\n" for i in range(20_000)),
    ],
    ids=["clock", "number", "depth", "same name", "items", "stages", "names"],
)
def test_worst_texts_end_soon(text):
    assert seconds_of(lambda: read_plain(parse_yaml(text).data, TYPED)) < 2


def faults(text, by):
    with pytest.raises(InvalidText) as caught:
        import_request(text=text, by=by, at=AT)
    assert Request.objects.count() == 0
    return [(fault.line, fault.message) for fault in caught.value.faults]


FAULTY = """\
experiment: NOVA
title: 5
colour: red
requested_priority: at once
deadline: soon
stages:
  - name: a
    memory_bytes: a lot
    jobs: -1
    services: [nothing]
    name: b
  - 7
"""


def test_every_fault_is_told_with_its_line(nova, liaison):
    found = faults(FAULTY, liaison)
    assert [line for line, _ in found] == [2, 3, 4, 5, 8, 9, 10, 11, 12]
    assert found[0][1] == "title: Enter text. Put it in quotes."
    assert "memory_bytes: " in found[4][1]
    assert found[7][1] == "“name” appears twice."


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "Enter the experiment"),
        ("experiment: NOVA\na: [1", 2, "Invalid YAML"),
        ("experiment: [NOVA", 1, "Invalid YAML"),
        ("experiment: DUNE", 1, "You are not a liaison of “DUNE”."),
        ("- NOVA", 1, "Enter names with values."),
        ("a: &a [*a]", 1, "References"),
        ("[" * 5000, 1, "nested deeper"),
        (
            "experiment: NOVA\nworkflow: tea",
            2,
            "The workflow type “tea” does not exist, or is not available.",
        ),
        (
            "experiment: NOVA\nworkflow: skim\nworkflow_version: 9",
            3,
            "has no version 9. Remove this line to use the newest one, 1.",
        ),
        (
            "experiment: NOVA\nworkflow: merge",
            2,
            "The workflow type “merge” does not exist, or is not available.",
        ),
        ("a: !!python/object/apply:os.system [ls]", 0, "Enter the experiment"),
        ("x" * 2_000_001, 0, "Use at most 2,000,000 bytes"),
        (
            "experiment: NOVA\nstages:\n" + "- {name: a, jobs: 5}\n" * 10_000,
            103,
            "A request has at most 100 stages. This one has 10,000.",
        ),
        ('experiment: NOVA\ntitle: "\\0"', 2, "NUL"),
        ("experiment: NOVA\ndeadline: 2026-02-31", 2, "Enter a date as 2026-12-31."),
    ],
)
def test_each_fault_has_a_clear_message(text, line, words, nova, liaison):
    load_builtin_workflows(at=AT)
    WorkflowType.objects.filter(key="merge").update(enabled=False)
    assert any(at == line and words in message for at, message in faults(text, liaison)), faults(
        text, liaison
    )


def test_version_that_is_gone_loses_nothing_of_the_text(nova, liaison, browse):
    load_builtin_workflows(at=AT)
    text = write_request_yaml(
        monte_carlo(workflow=workflow_of(newest_version("monte_carlo"))), experiment="NOVA"
    )
    WorkflowVersion.objects.filter(type__key="monte_carlo").update(number=2)

    answer = browse(liaison).post(IMPORT, {"text": text})

    assert answer.status_code == 400
    assert "has no version 1. Remove this line to use the newest one, 2." in answer.content.decode()
    assert answer.context["form"]["text"].value() == text
    kept = browse(liaison).post(IMPORT, {"text": text.replace("workflow_version: 1\n", "")})
    assert content_of(Request.objects.get()).stages == monte_carlo().stages
    assert kept.status_code == 302


def test_cyclic_chain_becomes_a_draft_and_is_told(nova, liaison, browse):
    circle = content(
        stages=(stage("a", input_dataset="nova.mc.b"), stage("b", input_dataset="nova.mc.a"))
    )
    page = browse(liaison).post(
        IMPORT, {"text": write_request_yaml(circle, experiment="NOVA")}, follow=True
    )
    assert "Stage 2 writes this dataset later" in page.content.decode()
    assert content_of(Request.objects.get()).stages == circle.stages


def test_file_is_taken_and_one_that_is_none_is_told(nova, liaison, browse):
    good = SimpleUploadedFile("a.yaml", write_request_yaml(content(), experiment="NOVA").encode())
    assert browse(liaison).post(IMPORT, {"file": good}).status_code == 302
    for body, words in [
        (b"\xff\xfe\x00", "Not valid UTF-8."),
        (b"x" * 2_300_000, "At most 2,000,000 bytes; this file has 2,300,000."),
        (b"", "empty"),
    ]:
        answer = browse(liaison).post(IMPORT, {"file": SimpleUploadedFile("a.yaml", body)})
        assert answer.status_code == 400
        assert words in answer.content.decode()
    assert Request.objects.count() == 1


def test_what_was_typed_is_escaped_and_stays(nova, liaison, browse):
    answer = browse(liaison).post(IMPORT, {"text": "<script>: [\n</textarea>"})
    assert answer.status_code == 400
    assert "<script>:" not in answer.content.decode()
    assert answer.context["form"]["text"].value() == "<script>: [\n</textarea>"


def test_download_of_a_request(nova, liaison, other_liaison, browse):
    made = draft(liaison, nova)
    answer = browse(liaison).get(f"/requests/{made.key}/yaml/")
    assert answer["Content-Disposition"] == 'attachment; filename="NOVA-0001.yaml"'
    assert read_plain(parse_yaml(answer.content.decode()).data, content().workflow) == (
        content(),
        {},
    )
    assert browse(other_liaison).get(f"/requests/{made.key}/yaml/").status_code == 404


def test_over_the_api(nova, liaison, shifter, browse):
    made = draft(liaison, nova)
    text = browse(liaison).get(f"/api/v1/requests/{made.key}/yaml/")
    assert text["Content-Type"].startswith("application/yaml")

    new = browse(liaison).post(
        "/api/v1/requests/import/", text.content, content_type="application/yaml"
    )
    as_json = browse(liaison).post(
        "/api/v1/requests/import/", {"yaml": text.content.decode()}, content_type="application/json"
    )
    refused = browse(shifter).post(
        "/api/v1/requests/import/", text.content, content_type="application/yaml"
    )
    faulty = browse(liaison).post(
        "/api/v1/requests/import/", FAULTY, content_type="application/yaml"
    )

    assert (new.status_code, new.json()["key"]) == (201, "NOVA-0002")
    assert (as_json.status_code, as_json.json()["key"]) == (201, "NOVA-0003")
    assert refused.status_code == 403
    assert faulty.status_code == 400
    assert faulty.json()["stages.0.memory_bytes"][0].startswith("Line 8: ")
    assert len(content_of(made).stages) <= MAX_STAGES
