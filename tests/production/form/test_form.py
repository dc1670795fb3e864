"""The request form as a browser without JavaScript uses it."""

import pytest
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition, NotAllowed
from apps.production.domain.content.stages import content_of
from apps.production.domain.discussion import write_comment
from apps.production.domain.lineage.clones import clone_request
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.types.declaration import general_workflow
from apps.production.domain.types.versions import load_builtin_workflows
from apps.production.models import Request
from apps.production.web.forms.request import typed
from apps.production.web.forms.shared import gather, own_or_shared
from tests.factories.history import history
from tests.factories.people import person
from tests.factories.queue import set_pace
from tests.factories.requests import AT, content, draft, request_in, stage

NEW = "/requests/new/"


def post_of(written, **more) -> dict:
    return dict(typed(written, **more).lists())


@pytest.fixture
def form(liaison, browse):
    return browse(liaison)


@pytest.fixture
def both_experiments(nova, dune):
    return person("two-experiments", ("liaison", nova), ("liaison", dune))


def edit(request: Request) -> str:
    return reverse("production:request-edit", args=[request.key])


@pytest.mark.parametrize(
    ("role", "status"),
    [("liaison", 200), ("approver", 403), ("shifter", 403), ("admin", 403), ("both", 200)],
)
def test_new_form_is_for_liaisons(role, status, nova, browse, request):
    assert browse(request.getfixturevalue(role)).get(NEW).status_code == status


def test_new_form_offers_only_ones_own_experiments(nova, dune, form):
    page = form.get(NEW).content.decode()
    assert '<option value="NOVA"' in page
    assert '<option value="DUNE"' not in page
    answer = form.post(NEW, post_of(content(), experiment="DUNE", do="save"))
    assert (answer.status_code, Request.objects.count()) == (400, 0)


def test_saved_draft_holds_what_was_typed_in_human_units(nova, samweb, form):
    written = content(
        stages=(stage("a", services=("samweb",)), stage("b", memory_bytes=3_900_000_000))
    )
    data = post_of(written, experiment="NOVA", do="save")
    assert data["stages-1-memory_bytes"] == ["3.9 GB"]
    data |= {
        "stages-1-memory_bytes": "3900 MB",
        "stages-1-wall_seconds": "08:00:00",
        "stages-1-events": "20 M",
    }
    answer = form.post(NEW, data)
    made = Request.objects.get()
    assert answer["Location"] == edit(made)
    assert content_of(made) == written


def test_incomplete_draft_is_saved(nova, form):
    form.post(
        NEW, post_of(content(title="", deadline=None, stages=()), experiment="NOVA", do="save")
    )
    assert Request.objects.get().state == "draft"


def test_submit_sends_it_for_approval(nova, form, liaison):
    page = form.post(NEW, post_of(content(), experiment="NOVA", do="submit"), follow=True)
    made = Request.objects.get()
    assert (made.state, made.submitted_by) == ("submitted", liaison)
    assert "Submitted NOVA-0001 for approval." in page.content.decode()


def test_submit_of_an_incomplete_form_saves_it_and_shows_all_problems(nova, form):
    data = post_of(content(title="", stages=(stage(jobs=None),)), experiment="NOVA", do="submit")
    page = form.post(NEW, data, follow=True)
    html = page.content.decode()
    assert Request.objects.get().state == "draft"
    assert '<a href="#id_title">Title</a>' in html
    assert '<a href="#id_stages-0-jobs">Stage 1 · Jobs</a>' in html
    assert html.count("Enter the number of jobs.") == 2
    assert html.count('aria-invalid="true"') == 2


def test_submit_of_what_cannot_be_read_shows_all_problems_and_keeps_what_was_typed(nova, form):
    data = post_of(content(title=""), experiment="NOVA", do="submit")
    data |= {"stages-0-memory_bytes": "a lot", "stages-1-wall_seconds": "soon"}
    answer = form.post(NEW, data)
    html = answer.content.decode()
    assert (answer.status_code, Request.objects.count()) == (400, 0)
    assert 'value="a lot"' in html
    assert 'value="soon"' in html
    assert [anchor for anchor, _, _ in answer.context["problems"]] == [
        "id_title",
        "id_stages-0-memory_bytes",
        "id_stages-1-wall_seconds",
    ]


def test_number_beyond_its_range_is_shown_beside_its_field(nova, form):
    answer = form.post(
        NEW, post_of(content(), experiment="NOVA", do="save") | {"stages-0-memory_bytes": "17 TB"}
    )
    assert answer.status_code == 400
    assert "Enter at most 16 TB." in answer.content.decode()


@pytest.mark.parametrize(
    ("button", "names"),
    [
        ("add", ["a", "b", "c", ""]),
        ("remove-1", ["a", "c"]),
        ("up-2", ["a", "c", "b"]),
        ("down-0", ["b", "a", "c"]),
        ("up-0", ["a", "b", "c"]),
        ("down-2", ["a", "b", "c"]),
        ("remove-99", ["a", "b", "c"]),
        ("up-x", ["a", "b", "c"]),
        ("up-²", ["a", "b", "c"]),
        ("remove", ["a", "b", "c"]),
    ],
)
def test_row_buttons_change_rows_and_keep_what_was_typed(button, names, nova, form):
    data = post_of(
        content(stages=(stage("a"), stage("b"), stage("c"))), experiment="NOVA", do=button
    )
    answer = form.post(NEW, data | {"stages-0-memory_bytes": "a lot"})
    assert [stage_form["name"].value() or "" for stage_form in answer.context["stages"]] == names
    assert 'value="a lot"' in answer.content.decode()
    assert Request.objects.count() == 0


def test_rows_move_on_the_form_of_a_saved_draft(nova, liaison, samweb, form):
    made = draft(liaison, nova, stages=(stage("a", services=("samweb",)), stage("b")))
    answer = form.post(edit(made), post_of(content_of(made), version=1, do="down-0"))
    ticks = [stage_form.ticks() for stage_form in answer.context["stages"]]
    none, samweb = ("/none", "None", True), ("samweb", "SAM web", False)
    assert ticks == [[none, samweb], [("/none", "None", False), samweb]]
    assert answer.context["shared"].ticks() == [("samweb", "SAM web", True)]
    form.post(edit(made), dict(answer.context["main"].data.lists()) | {"do": "save"})
    assert [one.services for one in content_of(made).stages] == [(), ("samweb",)]


def test_release_events_and_services_are_entered_once_for_all_stages(nova, samweb, form):
    data = post_of(
        content(stages=(stage("a"), stage("b"), stage("c"))), experiment="NOVA", do="save"
    )
    assert (data["shared-release"], data["stages-1-release"]) == (["v09_72"], [])
    data |= {"shared-release": "v10", "shared-events": "2 M", "shared-services": ["samweb"]}
    form.post(NEW, data | {"stages-1-events": "1 M", "stages-2-services": ["/none"]})
    made = Request.objects.get()
    stages = content_of(made).stages
    assert {one.release for one in stages} == {"v10"}
    assert [one.events for one in stages] == [2_000_000, 1_000_000, 2_000_000]
    assert [one.services for one in stages] == [("samweb",), ("samweb",), ()]
    shown = form.get(edit(made))
    assert [one.value() for one in shown.context["shared"]] == ["v10", "2,000,000", ["samweb"]]
    assert [one.differs() for one in shown.context["stages"]] == [False, True, True]


def test_shared_value_that_cannot_be_read_is_one_problem(nova, form):
    answer = form.post(
        NEW, post_of(content(), experiment="NOVA", do="save") | {"shared-events": "many"}
    )
    assert [(anchor, place) for anchor, place, _ in answer.context["problems"]] == [
        ("id_shared-events", "All stages · Events")
    ]


texts = st.sampled_from(["", "v1", "v2"])
ticked = st.sampled_from([[], ["nfs"], ["samweb", "nfs"]])


@given(
    st.lists(
        st.fixed_dictionaries(
            {"release": st.lists(texts, min_size=1, max_size=1), "services": ticked}
        )
    )
)
@settings(max_examples=50)
def test_shared_input_and_rows_mean_what_the_rows_meant(rows):
    shared, left = gather(
        [{"kind": ["stage"], "events": [""], **row} for row in rows], general_workflow()
    )
    for was, now in zip(rows, left, strict=True):
        assert (
            own_or_shared("".join(now["release"]), "".join(shared.get("shared-release", "")))
            == was["release"][0]
        )
        assert own_or_shared(now["services"], shared["shared-services"]) == was["services"]


def test_second_editor_gets_the_form_back_with_a_clear_message(nova, liaison, browse):
    made = draft(liaison, nova)
    other = person("nova-two", ("liaison", nova))
    save_draft(request=made, content=content(title="First"), version=1, by=other, at=AT)
    answer = browse(liaison).post(
        edit(made), post_of(content(title="Second"), version=1, do="save")
    )
    html = answer.content.decode()
    assert answer.status_code == 409
    assert "NOVA-0001 was changed by nova-two in the meantime" in html
    assert 'value="Second"' in html
    assert Request.objects.get().title == "First"


@pytest.mark.parametrize("version", ["", "abc", "-1", "99"])
def test_garbled_version_overwrites_nothing(version, nova, liaison, form):
    made = draft(liaison, nova)
    answer = form.post(edit(made), post_of(content(title="x"), version=version, do="save"))
    assert answer.status_code in {400, 409}
    assert Request.objects.get().title == content().title


@pytest.mark.parametrize(
    "damage",
    [
        {"stages-TOTAL_FORMS": ""},
        {"stages-TOTAL_FORMS": "many"},
        {"stages-TOTAL_FORMS": "-1"},
        {"stages-INITIAL_FORMS": "x"},
    ],
)
@pytest.mark.parametrize("button", ["save", "submit", "add"])
def test_damaged_form_is_a_clear_message(damage, button, nova, form):
    answer = form.post(NEW, post_of(content(), experiment="NOVA", do=button) | damage)
    assert answer.status_code == 400
    assert "are invalid. Nothing was saved" in answer.content.decode()


@pytest.mark.parametrize("count", [101, 300, 100_000_000])
def test_too_many_stages_is_a_clear_message(count, nova, form):
    answer = form.post(
        NEW, post_of(content(), experiment="NOVA", do="save") | {"stages-TOTAL_FORMS": str(count)}
    )
    assert answer.status_code == 400
    assert "A request has at most 100 stages" in answer.content.decode()


@pytest.mark.slow
def test_hundred_stages_are_shown_saved_and_none_can_be_added(nova, liaison, samweb, form):
    chain = tuple(stage(f"s{i}", services=("samweb",)) for i in range(100))
    form.post(NEW, post_of(content(stages=chain), experiment="NOVA", do="save"))
    made = Request.objects.get()
    page = form.get(edit(made))
    assert len(page.context["stages"]) == 100
    assert "100 stages" in page.content.decode()
    assert 'value="add"' not in page.content.decode()
    more = form.post(edit(made), post_of(content_of(made), version=1, do="add"))
    assert len(more.context["stages"]) == 100


@pytest.mark.parametrize(
    "state", ["submitted", "testing", "running", "rejected", "cancelled", "done"]
)
def test_form_is_closed_once_submitted(state, nova, liaison, approver, form):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    assert form.get(edit(obj)).status_code == 403
    answer = form.post(edit(obj), post_of(content(title="x"), version=obj.version, do="save"))
    assert answer.status_code == 409
    assert Request.objects.get().title == content().title


@pytest.mark.parametrize("role", ["approver", "shifter", "admin"])
def test_form_of_a_draft_is_closed_to_others(role, nova, liaison, browse, request):
    made = draft(liaison, nova)
    client = browse(request.getfixturevalue(role))
    assert client.get(edit(made)).status_code == 403
    assert (
        client.post(edit(made), post_of(content(title="x"), version=1, do="save")).status_code
        == 403
    )


def test_removed_service_is_said_beside_its_stage(nova, liaison, samweb, form):
    data = post_of(content(stages=(stage(services=("nfs",)),)), experiment="NOVA", do="save")
    answer = form.post(NEW, data)
    assert answer.status_code == 400
    assert "Service “nfs” does not exist." in answer.content.decode()


def test_lines_of_purpose_are_the_same_from_form_and_api(nova, liaison, form):
    made = draft(liaison, nova, purpose="one\ntwo")
    form.post(edit(made), post_of(content(purpose="one\r\ntwo"), version=1, do="save"))
    assert Request.objects.get().version == 1


def changed(made, **fields) -> dict:
    return (
        post_of(content_of(made), version=made.version, experiment=made.experiment.key, do="save")
        | fields
    )


def test_draft_changes_its_experiment_and_its_number_is_free_again(
    nova, dune, both_experiments, browse
):
    made = draft(both_experiments, nova)
    form = browse(both_experiments)
    assert (
        form.post(edit(made), changed(made, experiment="DUNE"))["Location"]
        == "/requests/DUNE-0001/edit/"
    )
    made.refresh_from_db()
    assert (made.key, made.experiment, made.version) == ("DUNE-0001", dune, 2)
    event = events_of(made).last()
    assert event.data["changes"][0] == {
        "path": "experiment",
        "old": "NOVA (NOVA-0001)",
        "new": "DUNE (DUNE-0001)",
    }
    assert draft(both_experiments, nova).key == "NOVA-0001"
    assert "DUNE-0001" in form.get("/requests/DUNE-0001/").content.decode()
    assert form.get("/requests/DUNE-0001/changes/").status_code == 200


def test_number_stays_taken_if_it_is_not_the_newest_or_others_edited_the_draft(
    nova, dune, both_experiments, browse
):
    first, second = draft(both_experiments, nova), draft(both_experiments, nova)
    other = person("nova-two", ("liaison", nova))
    save_draft(request=second, content=content(title="theirs"), version=1, by=other, at=AT)
    for made in (first, second):
        browse(both_experiments).post(edit(made), changed(made, experiment="DUNE"))
    assert set(Request.objects.values_list("key", flat=True)) == {"DUNE-0001", "DUNE-0002"}
    assert draft(both_experiments, nova).key == "NOVA-0003"


def test_experiment_is_changed_only_by_liaisons_of_both_and_not_of_clones(
    nova, dune, liaison, both_experiments, browse
):
    made = draft(liaison, nova)
    assert browse(liaison).post(edit(made), changed(made, experiment="DUNE")).status_code == 400
    with pytest.raises(NotAllowed):
        save_draft(
            request=made, content=content_of(made), version=1, by=liaison, at=AT, experiment=dune
        )
    clone, _ = clone_request(request=made, by=both_experiments, at=AT)
    answer = browse(both_experiments).post(edit(clone), changed(clone, experiment="DUNE"))
    assert "was made from a request of NOvA" in answer.content.decode()
    assert set(Request.objects.values_list("experiment__key", flat=True)) == {"NOVA"}


def test_draft_changes_its_type_and_a_submitted_request_neither(
    nova, dune, both_experiments, approver, browse
):
    load_builtin_workflows(at=AT)
    made, form = draft(both_experiments, nova), browse(both_experiments)
    shown = form.post(edit(made), changed(made, do="workflow", workflow="monte_carlo"))
    assert [stage_form.type.key for stage_form in shown.context["stages"]] == [
        "generation",
        "generation",
    ]
    sent = dict(shown.context["main"].data.lists()) | {"do": "save"}
    form.post(edit(made), sent)
    made.refresh_from_db()
    assert (made.workflow.type.key, made.version) == ("monte_carlo", 2)
    assert events_of(made).last().data["changes"][0]["path"] == "workflow"
    asked = request_in("changes_requested", by=both_experiments, experiment=nova, approver=approver)
    page = form.get(edit(asked)).content.decode()
    assert 'name="workflow"' not in page
    form.post(
        edit(asked),
        changed(asked, experiment="DUNE", workflow="monte_carlo", title="Changed title"),
    )
    asked.refresh_from_db()
    assert (asked.experiment, asked.workflow.type.key, asked.title) == (
        nova,
        "general",
        "Changed title",
    )
    with pytest.raises(InvalidTransition):
        save_draft(
            request=asked,
            content=content_of(asked),
            version=asked.version,
            by=both_experiments,
            at=AT,
            experiment=dune,
        )


def test_api_changes_experiment_and_type_of_a_draft(nova, dune, both_experiments, client):
    load_builtin_workflows(at=AT)
    client.force_login(both_experiments)
    made = draft(both_experiments, nova)
    sent = {"version": 1, "experiment": "DUNE", "workflow": "monte_carlo", "stages": []}
    answer = client.patch(f"/api/v1/requests/{made.key}/", sent, content_type="application/json")
    found = answer.json()
    assert (found["key"], found["experiment"], found["workflow"]) == (
        "DUNE-0001",
        "DUNE",
        "monte_carlo",
    )


def test_words_of_the_approver_are_in_the_form_and_beside_their_fields(
    nova, liaison, approver, browse
):
    made = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    write_comment(
        request=made, path="stages.1.jobs", text="Fewer and longer jobs.", by=approver, at=AT
    )
    reason = (
        "Good plan, but:\nDeadline: we have no room before March\n"
        "Stage 1 memory: measure it first\n- simulation › Wall time: too long"
    )
    browse(approver).post(
        f"/requests/{made.key}/request-changes/", {"reason": reason, "version": made.version}
    )
    page = browse(liaison).get(edit(made))
    html = page.content.decode()
    assert "Good plan, but:" in html
    assert html.count("Fewer and longer jobs.") == 2
    assert page.context["main"].fields["deadline"].advice == [
        "opg-one: we have no room before March"
    ]
    assert page.context["stages"][0].fields["memory_bytes"].advice == ["opg-one: measure it first"]
    assert "opg-one: measure it first" in html
    assert page.context["stages"][1].fields["wall_seconds"].advice == ["opg-one: too long"]


@pytest.mark.parametrize(
    ("verb", "label"),
    [
        ("reject", "Reason (required)"),
        ("request-changes", "Reason (required)"),
        ("approve", "Reason (optional)"),
    ],
)
def test_missing_reason_leaves_the_label_as_it_was(verb, label, nova, liaison, approver, browse):
    made = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    client, address = browse(approver), f"/requests/{made.key}/{verb}/"
    shown = client.get(f"/requests/{made.key}/?do={verb}")
    refused = client.post(address, {"reason": "", "version": "x"})
    assert [page.context["form"]["reason"].label for page in (shown, refused)] == [label, label]


def test_form_shows_the_end_that_each_class_would_give(nova, liaison, approver, browse):
    history(request_in("done", by=liaison, experiment=nova, approver=approver))
    for number in range(3):
        request_in(
            "queued", by=liaison, experiment=nova, approver=approver, title=f"Sample {number}"
        )
    set_pace(5000)
    mine = draft(liaison, nova, title="Mine", stages=(stage(jobs=1000),))
    edit, client = reverse("production:request-edit", args=[mine.key]), browse(liaison)
    shown = client.get(edit)
    found = shown.context["prospects"]
    assert (found["low"].rank, found["urgent"].rank) == (4, 1)
    assert found["urgent"].forecast.end.likely < found["low"].forecast.end.likely
    assert f"ends {found['urgent'].forecast.end.likely:%-d %b}" in shown.text
    request_in("queued", by=liaison, experiment=nova, approver=approver, title="Sample 3")
    sent = {**typed(content_of(mine)).dict(), "experiment": "NOVA"}
    panel = client.post(reverse("production:check-new"), sent)
    assert panel.context["prospects"]["low"].rank == 5
    assert 'id="class-ends" hx-swap-oob="true"' in panel.text
