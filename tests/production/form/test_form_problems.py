"""The form of a request has its errors in the checks, in its steps, at the fields and as a number
in the bar at the bottom: always the same.
"""

import re

import pytest
from django.http import HttpResponse
from django.urls import reverse
from django.utils.html import escape

from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.clones import clone_request
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.models import Request
from apps.production.web.forms.request import typed
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, request_in, stage
from tests.pages import text_of

NEW, NEW_CHECK = "/requests/new/", "/requests/new/check/"


def post_of(written, **more) -> dict:
    return dict(typed(written, **more).lists())


def edit(obj) -> str:
    return reverse("production:request-edit", args=[obj.key])


@pytest.fixture
def form(liaison, browse):
    return browse(liaison)


def same_problems(page: HttpResponse) -> set[tuple[str, str]]:
    """Return anchor and message of each error on a page that shows the same errors at all
    places.
    """
    text = text_of(page)
    lines = re.findall(r'<li class="error">.*?</li>', text)
    links = [
        (anchor, re.search(r"<span data-message>([^<]*)</span>", line)[1])
        for line in lines
        for anchor in re.findall(r'<a href="#([^"]+)">', line)
    ]
    in_bar = re.findall(r'<a class="problem" href="#([^"]+)">.*? ([0-9]+) errors?</a>', text)
    in_steps = [step.errors for step in page.context["steps"]]

    items = [(anchor, message) for anchor, _, message in page.context["problems"]]
    assert sorted(escape(message) for _, message in items) == sorted(
        message for _, message in links
    )
    assert len(links) == len(set(links)) == sum(in_steps)
    assert in_bar == ([(items[0][0], str(len(links)))] if links else [])
    return set(links)


def live(form, data: dict, path: str = NEW_CHECK) -> HttpResponse:
    return form.post(path, data | {"touched": "all"})


STAGES = (stage("generation"), stage("simulation", jobs=None), stage("reconstruction", jobs=None))
SHARED = tuple(stage(name, release="v10 beta") for name in ("generation", "simulation", "merge"))
STATES = {
    "empty": (
        content(title="", purpose="", deadline=None, stages=()),
        {},
        {"id_title", "id_purpose", "stages"},
    ),
    "wrong number": (content(), {"stages-1-jobs": "many"}, {"id_stages-1-jobs"}),
    "two stages": (content(stages=STAGES), {}, {"id_stages-1-jobs", "id_stages-2-jobs"}),
    "shared field": (content(stages=SHARED), {}, {"id_shared-release"}),
    "shared number": (
        content(stages=SHARED),
        {"shared-events": "many"},
        {"id_shared-events", "id_shared-release"},
    ),
    "text too long": (content(title="x" * 500, purpose=""), {}, {"id_title", "id_purpose"}),
    "no such service": (content(), {"shared-services": ["no-service"]}, {"id_shared-services"}),
    "too many stages": (content(stages=(stage(),) * 101), {}, {"stages"}),
    "warnings only": (
        content(stages=(stage("generation"), stage("simulation", release="v10"))),
        {},
        set(),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_all_places_show_the_same_errors(state, nova, form):
    written, changes, anchors = STATES[state]
    data = post_of(written, experiment="NOVA") | changes

    while_typing = same_problems(live(form, data))
    checked = same_problems(form.post(NEW, data | {"do": "check"}))

    assert anchors <= {anchor for anchor, _ in checked}
    assert while_typing == checked
    if anchors:
        assert same_problems(form.post(NEW, data | {"do": "submit"}, follow=True)) == checked


@pytest.mark.parametrize(
    "state", ["wrong number", "shared number", "text too long", "no such service"]
)
def test_save_that_fails_shows_what_the_checks_show_of_fields_filled_in(state, nova, form):
    written, changes, _ = STATES[state]
    data = post_of(written, experiment="NOVA", touched="") | changes
    page = form.post(NEW, data | {"do": "save"})
    assert page.status_code == 400
    assert same_problems(page) == same_problems(form.post(NEW_CHECK, data)) != set()
    assert "id_purpose" not in [anchor for anchor, _ in same_problems(page)]


def test_bar_says_what_is_saved_and_which_fields_prevent_it(nova, liaison, form):
    made = draft(liaison, nova)

    def note_of(page: HttpResponse) -> str:
        return re.search(r'id="autosave" role="status">([^<]*)<', text_of(page))[1]

    assert note_of(form.get(edit(made))) == "Saved"
    data = post_of(content(title="New title"), version=1)
    assert note_of(form.post(edit(made), data | {"do": "check"})) == "Not saved yet"
    wrong = {"stages-1-jobs": "many", "deadline": "soon"}
    expected = "Not saved yet. Fix first: Deadline, Stage 2 · Jobs"
    assert note_of(form.post(edit(made), data | wrong | {"do": "save"})) == expected
    answer = form.post(edit(made), data | wrong | {"do": "autosave"})
    assert answer.json()["problem"] == expected


def test_two_errors_of_a_field_count_twice_everywhere(nova, form):
    data = post_of(content(stages=(stage("x" * 300 + " $"),)), experiment="NOVA")
    problems = same_problems(form.post(NEW, data | {"do": "submit"}))
    at_name = {message for anchor, message in problems if anchor == "id_stages-0-name"}
    page = text_of(form.post(NEW, data | {"do": "submit"}))
    errors = re.search(r'<ul class="errorlist" id="id_stages-0-name_error">(.*?)</ul>', page)[1]
    assert len(at_name) == 2
    assert set(re.findall("<li>(.*?)</li>", errors)) == at_name
    assert same_problems(live(form, data)) == problems


def test_fix_of_a_field_that_stages_share_is_one_error_and_fixes_all(nova, liaison, form):
    obj = draft(liaison, nova, stages=SHARED)
    data = post_of(content_of(obj), version=1)
    page = form.post(edit(obj), data | {"do": "check"})
    assert {anchor for anchor, _ in same_problems(page)} == {"id_shared-release"}
    [fix] = set(re.findall(r'value="(fix:[^"]+)"', text_of(page)))
    after = form.post(edit(obj), data | {"do": fix}, follow=True)
    assert same_problems(after) == set()
    assert (
        len({stage.release for stage in content_of(Request.objects.get()).stages} - {"v10 beta"})
        == 1
    )


def test_experiment_that_cannot_be_saved_is_listed_everywhere(nova, dune, form):
    liaison = person("both", ("liaison", nova), ("liaison", dune))
    form.force_login(liaison)
    copy, _ = clone_request(request=draft(liaison, nova), by=liaison, at=AT)
    page = form.post(edit(copy), post_of(content_of(copy), experiment="DUNE", version=1, do="save"))
    assert page.status_code == 400
    assert "id_experiment" in {anchor for anchor, _ in same_problems(page)}


def test_unknown_experiment_and_damaged_stages_are_listed_everywhere(nova, liaison, form):
    page = form.post(NEW, post_of(content(), experiment="NONE", do="save"))
    assert page.status_code == 400
    assert {anchor for anchor, _ in same_problems(page)} == {"id_experiment"}
    damaged = form.post(NEW, {"experiment": "NOVA", "do": "save", "stages-TOTAL_FORMS": "x"})
    assert {anchor for anchor, _ in same_problems(damaged)} == {"stages"}

    obj = draft(liaison, nova)
    check = reverse("production:check-typed", args=[obj.key])
    typed_in = live(form, post_of(content_of(obj), experiment="NONE", version=1), check)
    assert {anchor for anchor, _ in same_problems(typed_in)} == {"id_experiment"}


def test_change_of_a_signed_request_shows_all_errors_everywhere(nova, liaison, approver, form):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    data = post_of(content_of(obj), version=obj.version, touched="") | {
        "purpose": "",
        "stages-0-jobs": "",
    }
    page = form.post(edit(obj), data | {"do": "save"})
    assert page.status_code == 400
    assert {anchor for anchor, _ in same_problems(page)} == {"id_purpose", "id_stages-0-jobs"}
    check = reverse("production:check-typed", args=[obj.key])
    assert same_problems(live(form, data, check)) == same_problems(page)


def test_bar_counts_errors_warnings_and_what_is_still_to_fill_in(nova, form):
    two_releases = (stage("generation"), stage("simulation", release="v10"))
    data = post_of(content(title="", purpose="", stages=two_releases), experiment="NOVA")
    assert "Not checked yet" in text_of(form.get(NEW))
    panel = text_of(form.post(NEW_CHECK, data | {"touched": "id_title"}))
    bar = re.search(r'<p class="findings" id="findings".*?</p>', panel)[0]
    assert 'hx-swap-oob="true"' in bar
    assert re.findall(r'href="#([^"]+)">(?:<span.*?</span>)? ?([^<]+)</a>', bar) == [
        ("id_title", "1 error"),
        ("checks", "1 warning"),
        ("id_purpose", "1 to fill in"),
    ]
    assert "No problems" in text_of(form.post(NEW_CHECK, post_of(content(), experiment="NOVA")))


def test_apply_all_fixes_applies_only_those_that_are_shown(nova, form):
    workflow = workflow_of(newest_version("keep_up"))
    files = {"configuration": "reco.fcl", "input_dataset": "raw", "output_dataset": "reco"}
    stages = tuple(stage(f"reco {name}", kind="reconstruction", **files) for name in "ab")
    written = content(workflow=workflow, arguments={"split": "per N files"}, stages=stages)
    data = post_of(written, experiment="NOVA", touched="")

    checked = form.post(NEW_CHECK, data)
    saved = text_of(form.post(NEW, data | {"do": "fix-all"}, follow=True))

    shown = [fix.label for fix in checked.context["checked"].fixes]
    assert "id_files_per_job" in {anchor for anchor, _ in checked.context["empty"]}
    assert f"Saved NOVA-0001 with {len(shown)} fixes: {', '.join(shown)}." in saved
