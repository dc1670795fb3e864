"""Workflow types: their declarations, arguments, versions,
and what requests of a type must hold.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.production.domain.checks import Facts
from apps.production.domain.checks.report import check_shape
from apps.production.domain.content.model import RequestContent, StageContent, list_changes
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import create_draft
from apps.production.domain.types.arguments import TYPES, Argument, runs_in
from apps.production.domain.types.declaration import (
    DeclarationError,
    builtin_texts,
    general_workflow,
    read_declaration,
)
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.domain.types.versions import newest_version, save_workflow, workflow_of
from apps.production.models import Request, Stage, WorkflowType, WorkflowVersion
from apps.production.web.forms.request import blank, typed
from tests.factories.checks import blocking
from tests.factories.requests import AT, request_in, stage
from tests.factories.workflows import builtin, monte_carlo

FACTS = Facts(today=AT.date(), services=frozenset({"samweb"}))


def faults(text):
    with pytest.raises(DeclarationError) as caught:
        read_declaration(text, key="t")
    return dict(caught.value.problems)


@pytest.mark.parametrize("key", builtin_texts())
def test_types_that_come_with_the_portal_can_be_read(key):
    workflow = builtin(key)

    assert workflow.begins_with
    assert all(kind.argument("name") for kind in workflow.stages)


def test_every_fault_of_a_declaration_is_told_with_its_place():
    told = faults(
        """
title: ""
surplus: 1
arguments:
  - {name: title}
  - release
  - {name: a, type: colour}
  - {name: b, type: choice}
  - {name: c, type: count, minimum: 5, default: 2}
  - {name: c2, pattern: "("}
  - {name: d, editable_in: [lost]}
begins_with: [nothing]
stages:
  Bad Key: {title: x, arguments: [name, name, {name: events, type: size}], command: ["{rm}", "{name!r}", "{"]}
"""
    )

    assert set(told) == {
        "surplus",
        "title",
        "arguments.0",
        "arguments.1",
        "arguments.2.type",
        "arguments.3.choices",
        "arguments.4.default",
        "arguments.5.pattern",
        "arguments.6.editable_in",
        "begins_with",
        "stages.Bad Key",
        "stages.Bad Key.arguments.1",
        "stages.Bad Key.arguments.2.type",
        "stages.Bad Key.command",
    }


def test_a_stage_that_merges_reads_files_and_has_no_number_of_jobs():
    declaration = """
title: x
stages:
  merge: {title: x, merges: true, arguments: [name, jobs], command: [x]}
"""
    assert set(faults(declaration)) == {"stages.merge.command", "stages.merge.arguments"}


@pytest.mark.parametrize(
    "text",
    ["", "[", "5", "a: &a [*a]", "!!python/object/apply:os.system [ls]", "title: x", "[" * 5000],
)
def test_what_is_no_declaration_is_refused(text):
    assert faults(text)


@pytest.mark.parametrize(
    ("argument", "typed", "value"),
    [
        (Argument(name="a", type="count"), "20 M", 20_000_000),
        (Argument(name="a", type="size"), "4 GB", 4_000_000_000),
        (Argument(name="a", type="number", maximum=1), "0.25", 0.25),
        (Argument(name="a", type="runs"), "105, 1-100", "1-100, 105"),
        (Argument(name="a", type="yes_no"), "no", False),
        (Argument(name="a", type="date"), "2026-12-31", "2026-12-31"),
        (Argument(name="a", type="lines"), " a \n\n b", ["a", "b"]),
        (Argument(name="a", type="choice", choices=("x", "y")), "y", "y"),
        (Argument(name="a"), "  ", None),
    ],
)
def test_argument_reads_what_people_type_and_writes_it_back(argument, typed, value):
    read = argument.parse(typed)

    assert read == value
    assert argument.parse(argument.write(read)) == value


@pytest.mark.parametrize(
    ("argument", "typed", "told"),
    [
        (Argument(name="a", type="number", maximum=1), "1.5", "Enter at most 1."),
        (Argument(name="a", type="size", maximum=16 * 10**12), "9000 PB", "Enter at most 16 TB."),
        (Argument(name="a", type="size"), "9000 PB", "Enter at most 1 PB."),
        (Argument(name="a", type="duration", minimum=300), "1 min", "Enter at least 5 min."),
        (Argument(name="a", type="runs"), "1-5, 3", "listed twice"),
        (Argument(name="a", type="runs"), "5-1", "ends before"),
        (Argument(name="a", type="choice", choices=("x",)), "z", "Choose one of: x"),
        (Argument(name="a", pattern="v[0-9]+", help="Such as v1."), "1", "Such as v1."),
        (Argument(name="a", type="date"), "31.12.2026", "2026-12-31"),
    ],
)
def test_argument_says_what_to_write_instead(argument, typed, told):
    with pytest.raises(ValueError, match=told):
        argument.parse(typed)


@given(
    st.sampled_from(sorted(TYPES)),
    st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.lists(st.text())),
)
def test_argument_takes_any_json_value_without_falling_over(name, value):
    argument = Argument(name="a", type=name, choices=("x",) if name == "choice" else ())
    if not argument.problem(value):
        assert argument.problem(argument.parse(argument.write(value)) or value) == ""


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 50)), min_size=1, max_size=8))
def test_runs_are_in_order_and_overlap_nowhere(parts):
    text = ", ".join(f"{first}-{first + more}" for first, more in parts)
    wanted = [run for first, more in parts for run in range(first, first + more + 1)]
    try:
        found = [run for first, last in runs_in(text) for run in range(first, last + 1)]
    except ValueError:
        assert len(set(wanted)) < len(wanted)
    else:
        assert found == sorted(wanted)


def test_texts_that_are_allowed_fit_their_columns():
    for model, fields in ((Request, REQUEST), (Stage, CORE)):
        widths = {name: model._meta.get_field(name).max_length for name in fields}
        assert {
            name: width for name, width in widths.items() if width and width != fields[name].most
        } == {name: 16 for name in fields if name == "requested_priority"}


def test_references_in_a_declaration_are_refused():
    shared = (
        "title: x\nstages: {a: {title: A, arguments: &all [name, release]}, b: {title: B, "
        "arguments: *all}}"
    )
    assert "References (&name, *name) are not supported" in faults(shared)["declaration"]
    laughs = "a0: &a0 [ha, ha, ha]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    assert "References (&name, *name) are not supported" in faults(laughs)["declaration"]


def test_line_of_a_fault_is_told():
    found = faults(
        "title: x\nstages:\n  a:\n    title: A\n    arguments: [name]\n    command: ['{seeds}']\n"
    )
    assert found["stages.a.command"].endswith("(line 6)")


def test_request_of_a_type_must_hold_what_it_declares():
    empty = RequestContent(
        workflow=builtin("monte_carlo"), stages=(StageContent(kind="generation", name="g"),)
    )
    missing = blocking(empty, FACTS)

    assert missing["arguments.run_block"] == ["Enter the run numbers of the new events."]
    assert missing["stages.0.arguments.generator"] == ["Enter the generator."]
    assert missing["stages.0.release"] == ["Enter the software release."]
    assert "stages.0.input_dataset" not in missing
    assert blocking(monte_carlo(), FACTS) == {}


def test_what_the_type_does_not_know_cannot_be_stored():
    wrong = monte_carlo(
        arguments={"run_block": 5, "colour": "red"},
        stages=(
            stage(kind="skim"),
            stage("r", kind="reconstruction", arguments={"generator": "x"}),
        ),
    )

    assert set(check_shape(wrong, FACTS)) == {
        "arguments.run_block",
        "arguments.colour",
        "stages.0.kind",
        "stages.1.arguments.generator",
    }


def test_changed_arguments_are_told_as_people_write_them():
    new = monte_carlo(arguments={"run_block": "900001-904000", "first_seed": 2_000_000})

    changes = list_changes(monte_carlo(), new)

    assert changes == [{"path": "arguments.first_seed", "old": "1", "new": "2000000"}]


@pytest.mark.django_db
def test_request_keeps_the_version_it_was_made_with(liaison, nova):
    made = create_draft(experiment=nova, content=monte_carlo(), by=liaison, at=AT)
    assert content_of(made) == monte_carlo()

    kind = WorkflowType.objects.get(key="monte_carlo")
    text = builtin_texts()["monte_carlo"].replace("first_seed", "seed_of_job_0")
    save_workflow(workflow_type=kind, declaration=text, by="ana", at=AT)
    made.refresh_from_db()

    assert made.workflow.number == 1
    assert content_of(made) == monte_carlo()
    other = create_draft(
        experiment=nova,
        content=replace(
            monte_carlo(),
            workflow=workflow_of(kind.versions.first()),
            arguments={"seed_of_job_0": 5},
        ),
        by=liaison,
        at=AT,
    )
    assert other.workflow.number == 2


@pytest.mark.django_db
def test_same_declaration_makes_no_new_version_and_a_bad_one_none(nova):
    kind = WorkflowType.objects.get(key="skim")

    assert (
        save_workflow(
            workflow_type=kind, declaration=builtin_texts()["skim"], by="ana", at=AT
        ).number
        == 1
    )
    with pytest.raises(InvalidFields) as refused:
        save_workflow(workflow_type=kind, declaration="title: x", by="ana", at=AT)

    assert "stages: Declare from 1 to 50 kinds of stages." in refused.value.problems["declaration"]
    assert kind.versions.count() == 1
    assert not Event.objects.filter(kind="workflow.saved").exists()


@pytest.mark.django_db
def test_type_of_another_experiment_or_out_of_use_is_refused(liaison, nova, dune):
    for change in ({"experiment": dune}, {"experiment": None, "enabled": False}):
        WorkflowType.objects.filter(key="monte_carlo").update(**change)
        with pytest.raises(InvalidFields, match="“monte_carlo” does not exist"):
            create_draft(experiment=nova, content=monte_carlo(), by=liaison, at=AT)


@pytest.mark.django_db
def test_types_come_back_where_they_are_missing(liaison, nova):
    WorkflowVersion.objects.all().delete()
    WorkflowType.objects.all().delete()

    made = create_draft(experiment=nova, content=RequestContent(), by=liaison, at=AT)

    assert workflow_of(made.workflow) == general_workflow()


def post_of(written, **more):
    return dict(typed(written, **more).lists())


def test_form_of_a_type_asks_for_its_arguments_and_saves_them(liaison, nova, browse):
    page = browse(liaison).get("/requests/new/?workflow=monte_carlo").content.decode()
    assert "Say which" not in page
    assert [
        text in page for text in ("Run numbers", "Stage 1 · Generation", "Generator version")
    ] == [True] * 3

    data = post_of(monte_carlo(), experiment="NOVA", workflow="monte_carlo", do="submit")
    browse(liaison).post("/requests/new/", data)

    made = Request.objects.get()
    assert (made.state, content_of(made)) == ("submitted", monte_carlo())
    shown = browse(liaison).get(made.get_absolute_url()).content.decode()
    assert [text in shown for text in ("900001-904000", "GENIE", "Monte Carlo")] == [True] * 3


def test_argument_of_a_stage_may_be_named_as_a_field_of_the_request(admin, liaison, nova, browse):
    declaration = (
        "title: T\nstages: {a: {title: A, arguments: [name, {name: title}, {name: purpose, type: "
        "yes_no}]}}"
    )
    kind = WorkflowType.objects.create(key="t")
    workflow = workflow_of(
        save_workflow(workflow_type=kind, declaration=declaration, by=admin, at=AT)
    )
    stages = (StageContent(kind="a", name="x", arguments={"title": "y", "purpose": False}),)
    written = RequestContent(workflow=workflow, title="z", stages=stages)

    browse(liaison).post(
        "/requests/new/", post_of(written, experiment="NOVA", workflow="t", do="save")
    )

    assert content_of(Request.objects.get()) == written


def test_form_shows_what_a_type_lacks_beside_its_fields(liaison, nova, browse):
    wrong = post_of(monte_carlo(), experiment="NOVA", workflow="monte_carlo", do="save")
    wrong |= {"run_block": "9-1", "stages-0-filter_efficiency": "2", "stages-0-generator": ""}

    answer = browse(liaison).post("/requests/new/", wrong | {"do": "submit"})

    assert answer.status_code == 400
    assert [anchor for anchor, _, _ in answer.context["problems"]] == [
        "id_run_block",
        "id_stages-0-generator",
        "id_stages-0-filter_efficiency",
    ]
    assert Request.objects.count() == 0


def test_changed_type_begins_with_its_stages_and_keeps_the_rest(liaison, nova, browse):
    data = post_of(
        replace(blank(general_workflow()), title="Muons"), experiment="NOVA", do="workflow"
    ) | {"workflow": "skim"}

    page = browse(liaison).post("/requests/new/", data)

    assert page.context["main"]["title"].value() == "Muons"
    assert [form.type.key for form in page.context["stages"]] == ["skim"]
    assert page.context["main"]["shown_workflow"].value() == "skim"
    assert "This stage is now" not in page.content.decode()
    filled = post_of(monte_carlo(), experiment="NOVA", do="workflow") | {"workflow": "skim"}
    page = browse(liaison).post("/requests/new/", filled | {"do": "workflow-confirm"})
    assert [form.type.key for form in page.context["stages"]] == ["skim", "skim"]
    assert (
        "Stage 1 generation: Skim has no stages of the kind “generation”" in page.content.decode()
    )
    shared = page.context["shared"]["release"].value()
    assert [form["release"].value() or shared for form in page.context["stages"]] == [
        s.release for s in monte_carlo().stages
    ]
    assert "“generator” was dropped" in page.content.decode()
    added = post_of(
        monte_carlo(), experiment="NOVA", workflow="monte_carlo", do="add", add_kind="merge"
    )
    page = browse(liaison).post("/requests/new/", added)
    assert [form.type.key for form in page.context["stages"]] == [
        "generation",
        "reconstruction",
        "merge",
    ]


@pytest.mark.parametrize("button", ["workflow", "save", "submit", "add", "check"])
def test_what_another_type_does_not_have_is_left_out_only_after_confirmation(
    button, liaison, nova, browse
):
    filled = post_of(monte_carlo(), experiment="NOVA") | {"workflow": "skim", "do": button}

    page = browse(liaison).post("/requests/new/", filled)

    new, left_out = page.context["switching"]
    assert (new.key, page.context["workflow"].key) == ("skim", "monte_carlo")
    assert ("Stage 1 generation", "generator", "GENIE") in [
        (left.place, left.name, left.text) for left in left_out
    ]
    assert "run_block" in [left.name for left in left_out]
    assert page.context["main"]["workflow"].value() == "skim"
    assert page.context["stages"][0]["generator"].value() == "GENIE"
    autosaved = browse(liaison).post("/requests/new/", filled | {"do": "autosave"}).json()
    assert "Switch the type first" in autosaved["problem"]
    assert not Request.objects.exists()


def test_new_request_has_release_configurations_and_services_of_the_last_one(
    liaison, nova, samweb, approver, browse
):
    last = monte_carlo()
    stages = tuple(replace(stage, services=("samweb",)) for stage in last.stages)
    values = {"arguments": last.arguments, "workflow": last.workflow, "stages": stages}
    request_in("submitted", by=liaison, experiment=nova, approver=approver, **values)

    page = browse(liaison).get("/requests/new/?workflow=monte_carlo")

    shown = [
        (form["configuration"].value(), form["output_dataset"].value())
        for form in page.context["stages"]
    ]
    assert shown == [("generation.fcl", ""), ("", ""), ("reco.fcl", "")]
    changed = dict(page.context["main"].data.lists()) | {"workflow": "skim", "do": "workflow"}
    page = browse(liaison).post("/requests/new/", changed)
    assert [form.type.key for form in page.context["stages"]] == ["skim"]
    # What was proposed and has no place in the new type is dropped without a word.
    assert "was dropped" not in page.content.decode()


def test_type_of_others_is_neither_offered_nor_taken(liaison, nova, dune, browse):
    WorkflowType.objects.filter(key="skim").update(experiment=dune)

    page = browse(liaison).get("/requests/new/?workflow=skim")

    assert page.context["workflow"].key == "general"
    assert b"Skim" not in browse(liaison).get("/requests/workflows/").content
    assert browse(liaison).get("/requests/workflows/skim/").status_code == 404
    assert browse(liaison).get("/api/v1/workflow-types/skim/").status_code == 404


def test_api_tells_the_schema_and_takes_the_arguments(liaison, nova, browse):
    client = browse(liaison)
    schema = client.get("/api/v1/workflow-types/monte_carlo/").json()
    assert schema["request"]["required"] == ["run_block", "first_seed"]
    assert schema["stages"]["generation"]["properties"]["filter_efficiency"]["maximum"] == 1

    stages = [
        {
            "kind": "generation",
            "name": "g",
            "arguments": {"generator": "GENIE", "filter_efficiency": 0.5},
        }
    ]
    sent = {
        "experiment": "NOVA",
        "workflow": "monte_carlo",
        "arguments": {"first_seed": 7},
        "stages": stages,
    }
    made = client.post("/api/v1/requests/", sent, content_type="application/json").json()
    assert (made["workflow"], made["workflow_version"], made["arguments"]) == (
        "monte_carlo",
        1,
        {"first_seed": 7},
    )
    assert made["stages"][0]["arguments"] == {"generator": "GENIE", "filter_efficiency": 0.5}

    wrong = {
        "stages": [{"kind": "generation", "arguments": {"filter_efficiency": "half"}}],
        "version": 1,
    }
    told = client.patch(f"/api/v1/requests/{made['key']}/", wrong, content_type="application/json")
    assert (told.status_code, list(told.json())) == (400, ["stages.0.arguments.filter_efficiency"])
    unknown = client.post(
        "/api/v1/requests/", {**sent, "workflow": "x"}, content_type="application/json"
    )
    assert unknown.json() == {"workflow": ["Workflow type “x” does not exist."]}


def test_admin_edits_a_type_and_gets_every_fault(admin, browse):
    client, skim = browse(admin), WorkflowType.objects.get(key="skim")
    change = f"/admin/production/workflowtype/{skim.pk}/change/"
    bad = client.post(
        change,
        {"enabled": "on", "declaration": "title: x\nstages: {a: {title: A, arguments: [b]}}"},
    )
    assert "stages.a.arguments.0" in bad.content.decode()

    text = builtin_texts()["skim"].replace("title: Skim\nhelp", "title: Selection\nhelp")
    client.post(change, {"enabled": "on", "declaration": text.replace("\n", "\r\n")})

    assert [(v.number, v.title) for v in skim.versions.all()] == [(2, "Selection"), (1, "Skim")]
    assert Event.objects.get(kind="workflow.saved").actor == str(admin)
    client.post(
        "/admin/production/workflowtype/add/", {"key": "mine", "enabled": "on", "declaration": text}
    )
    assert newest_version("mine").number == 1
    refused = client.post("/admin/production/workflowtype/add/", {"key": "A-B"})
    assert "Use at most 40 lower-case letters, digits and _." in refused.content.decode()
