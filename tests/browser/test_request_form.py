"""Writing a request in a browser: saved as one types, cloned, kept as a template, exported,
imported and discussed.
"""

import time

import pytest
from playwright.sync_api import expect

from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.clones import clone_request
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.types.versions import load_builtin_workflows
from apps.production.models import Request
from apps.statusboard.models import Service
from tests.browser.conftest import PATIENCE, wait_until_loaded
from tests.factories.people import PASSWORD, person
from tests.factories.requests import AT, content, draft, stage


def test_draft_is_saved_as_one_types(transactional_db, nova, liaison, open_as):
    page = open_as(liaison)
    page.goto("/requests/new/")
    page.get_by_label("Title").fill("Rock muons")
    page.get_by_text("NOVA-0001 saved").wait_for()
    assert page.url.endswith("/requests/NOVA-0001/edit/")
    page.get_by_label("Memory", exact=True).fill("a lot")
    page.get_by_text("Not saved yet. Stage 1 · Memory").wait_for()
    at_field = page.locator("#id_stages-0-memory_bytes_error")
    expect(at_field).to_contain_text("Enter a size")
    expect(page.get_by_label("Memory", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Memory", exact=True).fill("6 GB")
    page.get_by_text("NOVA-0001 saved").wait_for()
    expect(at_field).to_have_count(0)
    made = Request.objects.get()
    assert (made.title, made.stages.get().memory_bytes) == ("Rock muons", 6_000_000_000)

    save_draft(
        request=made, content=content(title="theirs"), version=made.version, by=liaison, at=AT
    )
    page.get_by_label("Title").fill("mine")
    page.get_by_text("Your change was not saved. Your input is kept here.").wait_for()
    assert Request.objects.get().title == "theirs"
    assert page.get_by_label("Title").input_value() == "mine"
    assert page.problems == []


def test_draft_that_could_not_be_saved_is_saved_by_itself_later(
    transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.clock.install()
    page.goto(f"/requests/{made.key}/edit/")
    page.route("**/edit/", lambda route: route.abort(), times=1)
    page.get_by_label("Title").fill("Typed without a connection")
    page.clock.run_for(2_000)
    page.get_by_text("Not saved: the portal is unreachable").wait_for()
    assert title_of(made) != "Typed without a connection"
    page.clock.run_for(15_000)
    page.get_by_text(f"{made.key} saved").wait_for()
    assert title_of(made) == "Typed without a connection"


def test_button_pressed_while_it_is_saved_makes_one_draft(transactional_db, nova, liaison, open_as):
    page = open_as(liaison)
    page.goto("/requests/new/")
    page.get_by_label("Title").fill("Rock muons")
    page.wait_for_timeout(2_005)
    page.get_by_role("button", name="Save draft").first.click()
    page.get_by_text("Saved NOVA-0001 as a draft.").wait_for()
    assert Request.objects.count() == 1
    assert page.problems == []


def title_of(made: Request) -> str:
    return Request.objects.get(pk=made.pk).title


def test_draft_is_saved_when_its_page_is_left_at_once(transactional_db, nova, liaison, open_as):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.get_by_label("Title").fill("Left by a link")
    page.get_by_role("link", name=f"Back to {made.key}").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Left by a link")

    page.go_back()
    page.get_by_label("Title").fill("Left by another address")
    with page.expect_request(lambda request: "autosave" in (request.post_data or "")):
        page.goto("/services/")
    page.wait_for_timeout(500)
    assert title_of(made) == "Left by another address"

    page.goto(f"/requests/{made.key}/edit/")
    page.get_by_label("Title").fill("Left by logging out")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Password").wait_for()
    assert title_of(made) == "Left by logging out"
    assert page.problems == []


def test_page_with_input_that_cannot_be_saved_asks_before_it_is_left(
    transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.locator("#stage-1 > .fold > summary").press("Enter")
    page.get_by_label("Title").fill("Typed")
    page.get_by_label("Events").first.fill("many")
    page.get_by_text("Not saved yet.").wait_for()
    page.once("dialog", lambda dialog: dialog.dismiss())
    with page.expect_event("dialog") as question:
        page.get_by_role("link", name=f"Back to {made.key}").click()
    assert question.value.type == "beforeunload"
    expect(page.get_by_label("Title")).to_have_value("Typed")
    assert page.url.endswith("/edit/")


def test_rename_on_a_clone_keeps_what_is_typed(transactional_db, nova, liaison, open_as):
    copy, _ = clone_request(request=draft(liaison, nova), by=liaison, at=AT)
    page = open_as(liaison)
    page.goto(f"/requests/{copy.key}/edit/")
    page.get_by_label("Title").fill("Typed before Rename")
    page.get_by_role("button", name="Rename").click()
    page.get_by_text("with new names for its output datasets").wait_for()
    expect(page.get_by_label("Title")).to_have_value("Typed before Rename")
    expect(page.get_by_label("Output dataset").first).to_have_value("nova.mc.generation_v2")
    assert title_of(copy) == "Typed before Rename"


def test_enter_in_a_field_saves_the_draft(transactional_db, nova, liaison, open_as):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.get_by_label("Title").fill("Entered")
    page.get_by_label("Title").press("Enter")
    page.get_by_text(f"Saved {made.key} as a draft. It is not submitted yet.").wait_for()
    assert title_of(made) == "Entered"


def test_stage_moves_by_keyboard(transactional_db, nova, liaison, open_as):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.locator("#stage-2 > .fold > summary").focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#id_stages-0-name")).to_have_value("simulation")
    expect(page.locator("#id_stages-0-name")).to_be_focused()
    assert page.problems == []


def test_row_opens_where_something_is_to_do_and_the_first_error_has_the_focus(
    transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    expect(page.get_by_label("Title")).to_be_focused()
    inputs = page.get_by_label("Input dataset")
    expect(inputs.first).not_to_be_visible()
    page.locator("#id_stages-1-name").fill("")
    page.locator("#stage-2 > .fold > summary").press("Enter")
    inputs.nth(1).fill("not a dataset")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_text("did not submit it").wait_for()
    expect(page.locator("#id_stages-1-name")).to_be_focused()
    expect(inputs.nth(1)).to_be_visible()
    expect(inputs.first).not_to_be_visible()


PASTE = """(field, text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  const options = { clipboardData: data, bubbles: true, cancelable: true };
  field.dispatchEvent(new ClipboardEvent("paste", options));
}"""


def test_stages_are_added_and_pasted_without_loading_the_page(
    transactional_db, nova, liaison, open_as, assert_accessible
):
    made = draft(liaison, nova)
    page = open_as(liaison, width=390)
    page.goto(f"/requests/{made.key}/edit/")
    page.evaluate("window.isTheSame = true")
    page.get_by_role("button", name="Add stage").press("Enter")
    expect(page.locator("#id_stages-2-name")).to_be_focused()
    expect(page.locator("#resources tbody tr")).to_have_count(3)
    page.locator("#id_stages-2-name").evaluate(PASTE, "reco\treco.fcl\nmerge\tconcat.fcl\n")
    expect(page.locator("#id_stages-3-configuration")).to_have_value("concat.fcl")
    expect(page.locator("#autosave")).to_contain_text("saved")
    assert_accessible(page, contrast=False)
    assert page.evaluate("window.isTheSame")
    # It may have been saved before the paste, too.
    expected = ["generation", "simulation", "reco", "merge"]
    end = time.monotonic() + PATIENCE / 1000
    names: list[str] = []
    while names != expected and time.monotonic() < end:
        page.wait_for_timeout(100)
        names = [stage.name for stage in content_of(Request.objects.get()).stages]
    assert names == expected
    assert page.problems == []


@pytest.mark.parametrize("stages", [1, 12])
def test_one_more_stage_comes_alone(stages, transactional_db, nova, liaison, open_as):
    made = draft(liaison, nova, stages=tuple(stage(f"s{n}") for n in range(stages)))
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.evaluate("window.isTheSame = true")
    name = page.locator("#id_stages-0-name")
    name.evaluate("field => { field.isTheSame = true; }")
    page.get_by_label("Title").fill("Typed before")
    name.fill("generated")

    for added in range(3):
        page.get_by_role("button", name="Add stage").click()
        expect(page.locator(f"#id_stages-{stages + added}-name")).to_be_focused()
        wait_until_loaded(page)

    count = stages + 3
    expect(page.locator("#stage-count")).to_contain_text(f"{count}, in execution order")
    expect(page.locator("#resources tbody tr")).to_have_count(count)
    expect(page.locator("#steps a[href^='#stage-']")).to_have_count(count)
    hidden = {"include_hidden": True}
    expect(page.get_by_role("button", name="Move down", **hidden)).to_have_count(count - 1)
    expect(page.get_by_role("button", name="Move up", **hidden)).to_have_count(count - 1)
    expect(page.get_by_text("Differs from the other stages")).to_have_count(count)
    expect(page.locator("#submission")).to_contain_text(f"{count} stages")

    assert page.evaluate("window.isTheSame")
    assert name.evaluate("field => field.isTheSame"), "the row is not replaced"
    expect(name).to_have_value("generated")
    page.get_by_role("button", name="Save draft").first.click()
    page.get_by_text(f"Saved {made.key} as a draft.").wait_for()
    saved = content_of(Request.objects.get())
    assert (saved.title, len(saved.stages)) == ("Typed before", count)
    assert saved.stages[0].name == "generated"
    assert page.problems == []


def test_new_stage_takes_no_focus_from_a_field_that_one_types_in(
    transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    held = []

    def hold(route):
        held.append(route)

    page.route("**/edit/", hold)
    page.get_by_role("button", name="Add stage").click()
    field = page.get_by_label("Output dataset", exact=True).first
    field.fill("")
    field.press_sequentially("nova.")
    expect(page.locator("#stage-3")).to_have_count(0)
    for route in held:
        route.continue_()
    page.unroute_all()
    expect(page.locator("#stage-3")).to_have_count(1)
    page.keyboard.type("mc.gen")
    expect(field).to_have_value("nova.mc.gen")
    expect(page.get_by_label("Name", exact=True).nth(2)).to_have_value("")
    # Who only presses the button goes on with the name of the new stage.
    page.get_by_role("button", name="Add stage").click()
    expect(page.get_by_label("Name", exact=True).nth(3)).to_be_focused()
    assert page.problems == []


def test_checks_that_run_while_a_stage_is_removed_are_dropped(
    transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.route("**/check/", lambda route: None)  # without an answer until it is taken back
    with page.expect_request("**/check/"):
        page.get_by_label("Purpose").fill("For the December freeze.")
    remove = page.get_by_role("button", name="Remove stage 2", include_hidden=True)
    with page.expect_response("**/edit/"):
        remove.dispatch_event("click")
    expect(page.locator("#stage-2")).to_have_count(0)
    page.unroute_all()
    page.get_by_text(f"{made.key} saved").wait_for()
    expect(page.locator("#checks .htmx-request")).to_have_count(0)
    assert page.problems == []


def test_what_is_typed_while_a_button_changes_the_stages_is_kept(
    transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    waiting = []

    def is_of_a_button(request):
        return request.url.endswith("/edit/") and "hx-request" in request.headers

    def hold(route):
        if is_of_a_button(route.request):
            waiting.append(route)
        else:
            route.continue_()

    def answer_after_typing(button, typed):
        with page.expect_request(is_of_a_button):
            button.dispatch_event("click")
        for field, text in typed.items():
            page.locator(f"#id_stages-{field}").fill(text)
        with page.expect_response(lambda response: is_of_a_button(response.request)):
            waiting.pop().continue_()

    page.route("**/edit/", hold)
    answer_after_typing(
        page.get_by_role("button", name="Add stage"),
        {"0-name": "generation_2", "1-memory_bytes": "7 GB"},
    )
    expect(page.locator("#id_stages-2-name")).to_have_count(1)
    expect(page.locator("#id_stages-0-name")).to_have_value("generation_2")
    expect(page.locator("#id_stages-1-memory_bytes")).to_have_value("7 GB")

    answer_after_typing(
        page.locator("#stage-1").get_by_role("button", name="Move down", include_hidden=True),
        {"0-name": "generation_3", "1-name": "simulation_3"},
    )
    expect(page.locator("#id_stages-0-name")).to_have_value("simulation_3")
    expect(page.locator("#id_stages-1-name")).to_have_value("generation_3")

    answer_after_typing(
        page.locator("#stage-1").get_by_role("button", name="Remove", include_hidden=True),
        {"0-name": "lost with its stage", "1-name": "generation_4"},
    )
    expect(page.locator("#id_stages-2-name")).to_have_count(0)
    expect(page.locator("#id_stages-0-name")).to_have_value("generation_4")
    page.unroute_all()
    page.get_by_text(f"{made.key} saved").wait_for()
    assert content_of(Request.objects.get()).stages[0].name == "generation_4"
    assert page.problems == []


def test_forms_are_usable_by_keyboard_zoomed_and_on_a_phone(
    transactional_db, nova, liaison, open_as
):
    Service.objects.create(slug="samweb", name="SAM web")
    made = draft(liaison, nova)
    page = open_as(liaison, width=390)
    page.goto(f"/requests/{made.key}/edit/?check=1")
    box = page.locator("#shared input[type=checkbox]").bounding_box()
    assert (box["width"], box["height"]) == (24, 24)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Title")).to_be_focused()
    # 1280 x 900 at 200 %.
    page.set_viewport_size({"width": 640, "height": 450})
    page.locator("#id_stages-0-name").focus()
    covered = page.evaluate("""() => {
      const bars = [document.querySelector(".bar"), document.querySelector(".submit-bar")];
      const seen = (bar) => {
        const { top, bottom } = bar.getBoundingClientRect();
        return Math.max(0, Math.min(bottom, innerHeight) - Math.max(top, 0));
      };
      return bars.reduce((sum, bar) => sum + seen(bar), 0) / innerHeight;
    }""")
    assert covered < 0.5

    page.goto("/requests/import/")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_label("Request in YAML")).to_be_focused()


def expect_errors_everywhere(page, number: int) -> None:
    """Wait until the form shows so many errors in the bar at the bottom, in its checks, in its
    steps and at its fields, which follow a moment after the others.

    Raises AssertionError with what each place shows.
    """
    read = """() => {
      const numbers = (texts, pattern) => [...texts].map((text) => Number(pattern.exec(text)?.[1] ?? 0));
      const sum = (values) => values.reduce((total, value) => total + value, 0);
      const steps = [...document.querySelectorAll("#steps small")].map((step) => step.textContent);
      const bar = [document.querySelector("#findings").textContent];
      return {
        bar: sum(numbers(bar, /([0-9]+) error/)),
        checks: document.querySelectorAll("#checks li.error a").length,
        steps: sum(numbers(steps, /([0-9]+) error/)),
        fields: document.querySelectorAll("form .errorlist:not(.advice) li").length,
      };
    }"""
    expected = {"bar": number, "checks": number, "steps": number, "fields": number}
    end = time.monotonic() + PATIENCE / 1000
    while (shown := page.evaluate(read)) != expected and time.monotonic() < end:
        page.wait_for_timeout(20)
    assert shown == expected


def test_errors_are_the_same_at_all_places_while_one_corrects_them(
    transactional_db, nova, liaison, open_as
):
    stages = (
        stage("generation", release="v09 beta", jobs=None),
        stage("simulation", release="v09 beta", jobs=None),
    )
    made = draft(liaison, nova, stages=stages)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    page.get_by_role("button", name="Submit", exact=True).click()
    bar = page.locator("#findings")
    first_jobs, second_jobs = (page.locator(f"#id_stages-{position}-jobs") for position in (0, 1))

    expect(bar).to_contain_text("3 errors")
    expect_errors_everywhere(page, 3)
    first_jobs.fill("many")
    expect(page.locator("#checks")).to_contain_text("such as")
    expect_errors_everywhere(page, 3)
    expect(first_jobs).to_have_attribute(
        "aria-describedby", "id_stages-0-jobs_helptext id_stages-0-jobs_error"
    )
    for field, value, left in [(first_jobs, "4000", 2), (second_jobs, "4000", 1)]:
        field.fill(value)
        expect(bar).to_contain_text(f"{left} error")
        expect_errors_everywhere(page, left)
    expect(first_jobs).not_to_have_attribute("aria-invalid", "true")
    page.locator("#id_shared-release").fill("v09_72")
    expect(bar).not_to_contain_text("error")
    expect_errors_everywhere(page, 0)
    page.locator("#id_title").fill("")
    expect(bar).to_contain_text("1 error")
    expect_errors_everywhere(page, 1)
    assert page.problems == []


@pytest.mark.parametrize("javascript", [True, False])
def test_clone_template_file_and_discussion(
    javascript, transactional_db, nova, liaison, shifter, open_as, assert_accessible
):
    draft(liaison, nova)
    page = open_as(shifter, javascript=javascript)
    page.goto("/requests/NOVA-0001/")
    page.get_by_role("link", name="Discuss stage 1").click()
    page.get_by_label("Comment").fill(f"Why so few? @{liaison.username}")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.get_by_text("1 open of 1", exact=True)).to_be_visible()

    page = open_as(liaison, javascript=javascript)
    page.goto("/requests/NOVA-0001/")
    page.get_by_role("link", name="Discussion").click()
    page.get_by_role("link", name="Reply").click()
    page.get_by_label("Comment").fill("It is enough.")
    page.get_by_role("button", name="Reply", exact=True).click()
    page.get_by_role("button", name="Resolve").click()
    expect(page.get_by_text("0 open of 1", exact=True)).to_be_visible()
    page.get_by_role("button", name="Clone").click()
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_label("Output dataset").first).to_have_value("nova.mc.generation_v2")
    page.goto("/requests/NOVA-0002/")
    expect(page.get_by_role("link", name="NOVA-0001").first).to_be_visible()
    page.get_by_role("link", name="Save as template").click()
    page.get_by_label("Name").fill("Muons")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Use Muons").click()
    expect(page.get_by_label("Output dataset").first).to_have_value("nova.mc.generation_v2")

    page.goto("/requests/NOVA-0002/")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download YAML").click()
    text = download.value.path().read_text()
    page.goto("/requests/import/")
    page.get_by_label("Request in YAML").fill(text.replace("jobs: 4000", "jobs: many", 1))
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("stages.0.jobs: ")).to_be_visible()
    page.get_by_label("Request in YAML").fill(text)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Imported as draft NOVA-0003")).to_be_visible()
    assert content_of(Request.objects.get(key="NOVA-0003")) == content_of(
        Request.objects.get(key="NOVA-0002")
    )
    assert [problem for problem in page.problems if "400" not in problem] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_the_form_are_accessible(
    width, transactional_db, nova, liaison, open_as, assert_accessible
):
    made = draft(liaison, nova)
    page = open_as(liaison, width=width)
    for path in (
        "import/",
        "templates/",
        f"{made.key}/changes/",
        f"{made.key}/comment/",
        f"{made.key}/template/",
    ):
        page.goto(f"/requests/{path}")
        assert_accessible(page)


def test_saved_draft_changes_its_type_and_its_experiment(transactional_db, nova, dune, open_as):
    load_builtin_workflows(at=AT)
    page = open_as(person("two-experiments", ("liaison", nova), ("liaison", dune)))
    page.goto("/requests/new/?experiment=NOVA")
    page.get_by_label("Title").fill("Rock muons")
    page.get_by_text("NOVA-0001 saved").wait_for()
    page.get_by_label("Experiment").select_option("DUNE")
    page.wait_for_url("**/requests/DUNE-0001/edit/")
    expect(page.get_by_role("heading", level=1)).to_have_text("DUNE-0001 Rock muons")
    page.get_by_label("Workflow type").select_option("monte_carlo")
    page.get_by_role("button", name="Switch type").click()
    expect(page.get_by_label("Run numbers")).to_be_visible()
    expect(page.get_by_text("This stage is now")).to_have_count(0)
    page.get_by_label("Run numbers").fill("900001-904000")
    page.get_by_text("DUNE-0001 saved").wait_for()
    made = Request.objects.get()
    assert (made.key, made.workflow.type.key, made.title) == (
        "DUNE-0001",
        "monte_carlo",
        "Rock muons",
    )
    assert made.arguments["run_block"] == "900001-904000"
    assert page.problems == []


@pytest.mark.parametrize("javascript", [True, False])
def test_login_that_ends_while_one_types_loses_nothing(
    javascript, transactional_db, nova, liaison, open_as
):
    made = draft(liaison, nova)
    page = open_as(liaison, javascript=javascript)
    page.goto(f"/requests/{made.key}/edit/")
    page.context.clear_cookies(name="sessionid")
    page.get_by_label("Title").fill("Typed after the end")
    if javascript:
        dialog = page.get_by_role("dialog", name="You are logged out")
        dialog.get_by_label("Password").fill("wrong")
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog.get_by_role("alert")).not_to_be_empty()
        dialog.get_by_label("Password").fill(PASSWORD)
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog).to_have_count(0)
        expect(page.locator("#autosave")).to_contain_text(f"{made.key} saved")
        assert Request.objects.get().title == "Typed after the end"

        # The form still works: it is checked as one types, and stages are added.
        with page.expect_response(f"**/requests/{made.key}/check/") as checked:
            page.get_by_label("Purpose").fill("Typed after the new login")
        assert checked.value.status == 200
        page.get_by_role("button", name="Add stage").click()
        expect(page.locator("#id_stages-2-name")).to_be_focused()
        page.get_by_role("button", name="Save draft").first.click()
    else:
        page.get_by_role("button", name="Save draft").first.click()
        expect(page.get_by_text("You are logged out.")).to_be_visible()
        login = page.context.new_page()
        login.goto("/accounts/login/")
        login.get_by_label("Username").fill(liaison.username)
        login.get_by_label("Password").fill(PASSWORD)
        login.get_by_role("button", name="Log in").click()
        login.get_by_role("link", name=liaison.username).wait_for()
        page.get_by_role("button", name="Send again").click()
        expect(page.get_by_text("Your login changed after the page was loaded.")).to_be_visible()
        page.get_by_role("button", name="Send again").click()
    page.get_by_text(f"Saved {made.key} as a draft.").wait_for()
    assert Request.objects.get().title == "Typed after the end"
