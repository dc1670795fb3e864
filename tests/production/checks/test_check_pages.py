"""Checks and estimate in the form, on the page and in the API; only a fix saves."""

import re
from datetime import timedelta
from importlib.metadata import EntryPoint

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.core.domain.events import events_of
from apps.production.domain.checks import Fix, Problem, Severity, rule
from apps.production.domain.checks.registry import RULES
from apps.production.domain.content.stages import content_of
from apps.production.domain.desk.desk import bulk_approval, read_desk
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, check_request
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import Verb
from apps.production.models import Request
from apps.production.web.forms.request import typed
from apps.production.web.templatetags.requests import lower_first, places
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.enums import State
from tests.factories.history import history
from tests.factories.requests import AT, S, content, draft, request_in, stage
from tests.factories.statusboard import service
from tests.pages import text_of

NEW, NEW_CHECK = "/requests/new/", "/requests/new/check/"
TWO_RELEASES = (stage("generation"), stage("simulation", release="v09_73"))


def post_of(written, **more) -> dict:
    return dict(typed(written, **more).lists())


def edit(obj) -> str:
    return reverse("production:request-edit", args=[obj.key])


@pytest.fixture
def form(liaison, browse):
    return browse(liaison)


@pytest.fixture
def past(nova, liaison, approver):
    """A request whose generation has past jobs."""
    obj = request_in(S.QUEUED, by=liaison, experiment=nova, approver=approver, title="Last year's")
    history(obj)
    return obj


def test_bar_counts_the_lines_of_the_panel(nova, form, shifter):
    samweb = service("samweb", AT - timedelta(days=9))
    now = timezone.now()
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=now)
    service("dcache", AT - timedelta(days=9))
    both = ("dcache", "samweb")
    stages = (stage("generation", services=("samweb",)), stage("reco", services=both))
    page = form.post(NEW, post_of(content(stages=stages), experiment="NOVA", do="check"))
    html = page.content.decode()
    lines = html.partition('<ul class="live">')[2].partition("</ul>")[0].count(">Warning:</span>")
    assert lines > 0
    assert f"{lines} warning{'s' if lines > 1 else ''}</a>" in text_of(page)
    assert len(page.context["checked"].of(Severity.WARNING)) > lines
    steps = page.context["steps"]
    assert sum(step.warnings for step in steps) == lines
    assert {step.title for step in steps if step.kind == "warning"} == {"All stages", "reco"}


def test_check_without_javascript_shows_all_and_saves_nothing(nova, form):
    page = form.post(
        NEW, post_of(content(title="", stages=TWO_RELEASES), experiment="NOVA", do="check")
    )
    text = text_of(page)
    assert page.status_code == 200
    assert "1 error</a>" in text
    assert "1 warning</a>" in text
    assert 'value="fix:same_release:stages.1.release"' in text
    assert '<ul class="errorlist advice"><li>The first stage uses v09_72.' in text
    assert 'value="v09_73"' in text
    assert not Request.objects.exists()


def test_panel_for_what_is_typed(nova, form, past):
    page = form.post(NEW_CHECK, post_of(content(stages=TWO_RELEASES), experiment="NOVA"))
    text = text_of(page)
    assert "<html" not in text
    assert "warnings</a>" in text
    assert re.search(r"<b>generation</b>: .*Based on 100 past jobs of NOVA-0001", text)
    assert '<b>simulation</b>: <span class="soft">no past jobs.</span>' in text
    assert Request.objects.count() == 1


def test_request_whose_jobs_cannot_finish_has_neither_running_time_nor_end(nova, form, past):
    """Past jobs took 7000 s or more, nine of ten of them."""

    def panel_with(wall_seconds: int) -> str:
        stages = (stage("generation", wall_seconds=wall_seconds),)
        return text_of(form.post(NEW_CHECK, post_of(content(stages=stages), experiment="NOVA")))

    never = panel_with(600)
    assert "1 error</a>" in never
    assert "Nearly no job of generation will finish within 10 min" in never
    # In the review and in the estimate.
    assert never.count("Will not finish:") == 2
    assert "until its jobs are ended at their time limit" in never
    assert "<dt>Running time</dt>" not in never
    assert "started today</dt>" not in never
    assert "Expected finish" not in never

    some = panel_with(12_000)
    assert "Will not finish:" not in some
    assert "<dt>Running time</dt>" in some


def test_panel_says_the_same_of_several_stages_once_with_a_link_to_each(nova, form):
    empty = tuple(
        stage(name, release="", configuration="") for name in ("generation", "simulation")
    )
    text = text_of(form.post(NEW_CHECK, post_of(content(stages=empty), experiment="NOVA")))
    assert text.count("Enter the configuration file.") == 1
    assert 'href="#id_stages-0-configuration"' in text
    assert 'href="#id_stages-1-configuration">stage 2 · Configuration' in text
    assert 'href="#id_stages-0-configuration">Stage 1</a>, ' in text
    assert text.count("Enter the software release.") == 1
    assert text.partition('<ul class="live">')[2].count('href="#id_shared-release"') == 1
    assert "3 errors</a>" in text


def test_fields_are_no_problem_until_one_was_in_them(nova, form):
    data = post_of(content(title="", purpose="", stages=()), experiment="NOVA")
    shown = form.get(NEW).context
    assert (shown["problems"], shown["touched"]) == ([], "")
    page = form.post(NEW_CHECK, data | {"touched": "id_deadline id_title"})
    text = text_of(page)
    assert "Enter a title that others will recognise." in text
    assert "Enter the purpose" not in text
    assert page.context["empty"] == [("id_purpose", "Purpose")]
    assert [(step.title, step.kind, step.errors, step.empty) for step in page.context["steps"]] == [
        ("Request", "error", 1, 1),
        ("All stages", "error", 1, 0),
        ("Review", "", 0, 0),
    ]
    assert "Enter the purpose" in text_of(form.post(NEW_CHECK, data | {"touched": "all"}))
    assert 'name="touched" value="all"' in text_of(
        form.post(NEW, data | {"do": "submit"}, follow=True)
    )


def test_panel_offers_to_submit_with_warnings_only_once_nothing_is_to_fill_in(nova, form):
    offer = "You can submit with"
    data = post_of(content(title="", stages=TWO_RELEASES), experiment="NOVA")
    text = text_of(form.post(NEW_CHECK, data | {"touched": "id_deadline"}))
    assert "1 field still to fill in" in text
    assert offer not in text
    data = post_of(content(stages=TWO_RELEASES), experiment="NOVA")
    assert offer in text_of(form.post(NEW_CHECK, data | {"touched": "id_deadline"}))


def test_panel_of_a_draft_takes_what_is_typed_and_knows_the_request(nova, liaison, form):
    obj = draft(liaison, nova)
    path = reverse("production:check-typed", args=[obj.key])
    text = form.post(path, post_of(content(title="Other muons"), version=1)).content.decode()
    assert "All checks passed." in text
    assert content_of(Request.objects.get()).title != "Other muons"


@pytest.mark.parametrize("who", ["approver", "other_liaison"])
def test_panel_is_for_those_who_write_it(who, nova, dune, liaison, browse, request):
    obj = draft(liaison, nova)
    answer = browse(request.getfixturevalue(who)).post(
        reverse("production:check-typed", args=[obj.key]), {}
    )
    assert answer.status_code in {403, 404}
    assert (
        browse(request.getfixturevalue(who)).post(NEW_CHECK, {"experiment": "NOVA"}).status_code
        == 403
    )


def test_panel_survives_what_cannot_be_read(nova, form):
    data = post_of(content(), experiment="NOVA") | {
        "stages-0-events": "many",
        "deadline": "soon",
        "title": "a\0b",
    }
    assert form.post(NEW_CHECK, data).status_code == 200
    assert (
        form.post(NEW_CHECK, {"experiment": "NOVA", "stages-TOTAL_FORMS": "-3"}).status_code == 200
    )
    assert (
        form.post(NEW, {"experiment": "NOVA", "do": "check", "stages-TOTAL_FORMS": "x"}).status_code
        == 400
    )


def test_one_click_mends_and_saves_and_is_an_edit(nova, liaison, form):
    obj = draft(liaison, nova, stages=TWO_RELEASES)
    data = post_of(content_of(obj), version=1, do="fix:same_release:stages.1.release")
    answer = form.post(edit(obj), data)
    assert answer["Location"] == f"{edit(obj)}?check=1&touched=#checks"
    obj.refresh_from_db()
    assert content_of(obj).stages[1].release == "v09_72"
    change = events_of(obj).get(kind="request.edited").data["changes"]
    assert change == [{"path": "stages.1.release", "old": "v09_73", "new": "v09_72"}]


def test_all_fixes_are_applied_in_one_save_and_named(nova, liaison, form):
    three = (*TWO_RELEASES, stage("reconstruction", release="v09_74"))
    obj = draft(liaison, nova, stages=three)
    data = post_of(content_of(obj), version=1)
    assert "Apply all fixes" in text_of(form.post(edit(obj), data | {"do": "check"}))
    text = text_of(form.post(edit(obj), data | {"do": "fix-all"}, follow=True))
    assert "Saved NOVA-0001 with 2 fixes: Use v09_72, Use v09_72." in text
    assert "Apply all fixes" not in text
    assert [one.release for one in content_of(Request.objects.get()).stages] == ["v09_72"] * 3
    assert events_of(obj).filter(kind="request.edited").count() == 1


@rule(Severity.WARNING)
def no_text(written, known):
    """A request has neither title nor purpose: two fixes that clear required fields."""
    for path in ("title", "purpose"):
        if getattr(written, path):
            yield Problem(path, "Better without.", Fix(f"Clear the {path}", {path: ""}))


def test_all_fixes_that_only_lead_to_errors_are_left_out(nova, liaison, form, monkeypatch):
    entry = EntryPoint("no_text", f"{__name__}:no_text", RULES.group)
    monkeypatch.setitem(RULES._found, "no_text", entry)
    obj = draft(liaison, nova)
    answer = form.post(edit(obj), post_of(content_of(obj), version=1, do="fix-all"), follow=True)
    assert "without a fix: each one offered leads to another problem" in text_of(answer)
    assert content_of(Request.objects.get()) == content_of(obj)


@pytest.mark.parametrize(
    "fix", ["fix:same_release:stages.7.release", "fix:nothing:title", "fix:", "fix:a:b:c:d"]
)
def test_a_fix_that_is_not_offered_changes_nothing_else(fix, nova, liaison, form):
    obj = draft(liaison, nova, stages=TWO_RELEASES)
    answer = form.post(edit(obj), post_of(content_of(obj), version=1, do=fix), follow=True)
    assert "This fix is no longer offered. Saved NOVA-0001 without it." in text_of(answer)
    assert content_of(Request.objects.get()) == content_of(obj)


def test_mend_of_something_changed_meanwhile_overwrites_nothing(nova, liaison, form):
    obj = draft(liaison, nova, stages=TWO_RELEASES)
    data = post_of(content_of(obj), version=1, do="fix:same_release:stages.1.release")
    save_draft(request=obj, content=content(title="Changed"), version=1, by=liaison, at=AT)
    assert form.post(edit(obj), data).status_code == 409
    assert Request.objects.get().title == "Changed"


def test_warnings_do_not_block_and_approvers_read_them(nova, liaison, approver, form, browse):
    form.post(NEW, post_of(content(stages=TWO_RELEASES), experiment="NOVA", do="submit"))
    obj = Request.objects.get()
    assert obj.state == S.SUBMITTED
    check_request(request=obj, at=AT + timedelta(minutes=1))
    text = browse(approver).get(obj.get_absolute_url()).content.decode()
    assert "1 warning ·" in text
    assert "The first stage uses v09_72. Is this release intended?" in text


def test_page_of_a_request_shows_its_estimate_or_that_there_is_none(nova, liaison, form, past):
    text = text_of(form.get(draft(liaison, nova).get_absolute_url()))
    assert "Based on 100 past jobs of NOVA-0001: same release and configuration" in text
    other = draft(liaison, nova, stages=(stage("skim"),))
    assert "no past jobs" in form.get(other.get_absolute_url()).content.decode()


def test_the_same_said_of_several_stages_is_one_line(nova, approver, form, browse):
    alike = (
        stage("generation"),
        stage("simulation", release="v09_73"),
        stage("reco", release="v09_73"),
    )
    form.post(NEW, post_of(content(stages=alike), experiment="NOVA", do="submit"))
    obj = Request.objects.get()
    check_request(request=obj, at=AT + timedelta(minutes=1))
    for query in ("", "?checks=now"):
        text = browse(approver).get(obj.get_absolute_url() + query).content.decode()
        assert "1 warning ·" in text, query
    assert text.count("The first stage uses v09_72.") == 1
    assert "stages 2–3 › release" in text
    assert "completed the checks, with 1 warning" in text


def test_a_message_about_several_stages_is_one_warning_everywhere(
    nova, approver, form, past, browse
):
    """Each stage has its own fix."""
    history(past, name="again", configuration="again.fcl")
    little = [stage(name, memory_bytes=10**9) for name in ("generation", "again")]
    alike = (*little, *map(stage, ("simulation", "reco", "skim")))
    checked = form.post(NEW_CHECK, post_of(content(stages=alike), experiment="NOVA"))
    panel = text_of(checked)
    assert "used more than 1 GB." in panel
    for place in (0, 1):
        assert panel.count(f'value="fix:memory_sufficient:stages.{place}.memory_bytes"') == 1
    number = checked.context["warnings"]
    assert f"{number} warnings</a>" in panel
    assert panel.partition('<ul class="live">')[2].count(">Warning:</span>") == number
    assert sum(step.warnings for step in checked.context["steps"]) == number

    form.post(NEW, post_of(content(stages=alike), experiment="NOVA", do="submit"))
    obj = Request.objects.exclude(pk=past.pk).get()
    check_request(request=obj, at=AT + timedelta(minutes=1))
    client = browse(approver)
    for query in ("", "?checks=now"):
        text = text_of(client.get(obj.get_absolute_url() + query))
        assert f"{number} warnings ·" in text, query
        assert f"completed the checks, with {number} warnings" in text
    desk = read_desk(approver, at=AT)
    bulk = bulk_approval(desk.rows, desk.queue, user=approver, at=AT)
    assert len(bulk.warnings_for(desk.rows[0])) == number


def test_warnings_about_services_at_submission_are_counted_apart(
    nova, approver, shifter, form, browse
):
    """Their messages no longer hold, but the activity counts them too."""
    now = timezone.now()
    samweb = service("samweb", now)
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=now, started_at=now)
    stages = (stage("generation", services=("samweb",)), stage("simulation", release="v09_73"))
    form.post(NEW, post_of(content(stages=stages), experiment="NOVA", do="submit"))
    obj = Request.objects.get()
    check_request(request=obj, at=now)
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=obj, by=approver, at=now, reason="Another release."
    )
    text = text_of(browse(approver).get(obj.get_absolute_url()))
    assert "completed the checks, with 2 warnings" in text
    assert "1 warning of the checks" in text
    assert "1 warning · 1 about services at that time · at submission" in text


def test_request_with_warnings_about_services_alone_did_not_pass_without_warnings(
    nova, approver, shifter, form, browse
):
    now = timezone.now()
    open_incident(
        service=service("samweb", now),
        state=State.DOWN,
        title="503",
        by=shifter,
        at=now,
        started_at=now,
    )
    form.post(
        NEW,
        post_of(
            content(stages=(stage("reco", services=("samweb",)),)), experiment="NOVA", do="submit"
        ),
    )
    obj = Request.objects.get()
    check_request(request=obj, at=now)
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=obj, by=approver, at=now, reason="Another release."
    )
    text = text_of(browse(approver).get(obj.get_absolute_url()))
    assert "no other warning · 1 about services at that time" in text
    assert "passed all checks without warnings" not in text


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([""], ""),
        (["title"], "title"),
        (["stages.0.memory_bytes"], "stage 1 › memory"),
        (["stages.2"], "stage 3"),
        ([f"stages.{n}.services" for n in (4, 0, 1, 2)], "stages 1–3, 5 › services"),
        (
            ["stages.0.jobs", "stages.1.jobs", "stages.0.events"],
            "stages 1–2 › jobs · stage 1 › events",
        ),
        (["stages.0.arguments.geometry", "stages.1.arguments.geometry"], "stages 1–2 › geometry"),
        (["stages", "title"], "stages · title"),
    ],
)
def test_places_of_several_fields(paths, words):
    assert places(paths) == words


def test_a_step_inside_a_sentence_keeps_the_names_in_it():
    assert lower_first("Start it when SAM web is up") == "start it when SAM web is up"
    assert lower_first("") == ""


def test_rules_are_listed(form):
    text = form.get("/requests/checks/").content.decode()
    assert "Every required field is filled in." in text
    assert "deadline_reachable" in text


BODY = {
    "experiment": "NOVA",
    "title": "Rock muons",
    "stages": [
        {
            "name": "generation",
            "release": "v09_72",
            "configuration": "generation.fcl",
            "events": 20_000_000,
            "jobs": 4000,
        },
        {"name": "simulation", "release": "v09_73"},
    ],
}


def test_api_checks_and_estimates_and_saves_nothing(nova, form, past):
    answer = form.post("/api/v1/requests/check/", BODY, content_type="application/json")
    assert answer.status_code == 200
    found = {one["rule"]: one for one in answer.json()["findings"]}
    assert found["same_release"] == {
        "rule": "same_release",
        "severity": "warning",
        "blocks": False,
        "path": "stages.1.release",
        "message": "The first stage uses v09_72. Is this release intended?",
        "fix": {"text": "Use v09_72", "values": {"stages.1.release": "v09_72"}},
    }
    assert found["required"]["blocks"]
    estimate = form.post("/api/v1/requests/estimate/", BODY, content_type="application/json").json()
    assert estimate == answer.json()["estimate"]
    assert (estimate["past_jobs"], estimate["without"], estimate["finish"]) == (
        100,
        ["simulation"],
        None,
    )
    assert estimate["stages"][0]["core_seconds"] == {"low": 32e6, "mid": 36e6, "high": 40e6}
    assert Request.objects.count() == 1


def test_api_tells_what_cannot_be_read_and_nothing_of_other_experiments(nova, dune, form):
    bad = form.post(
        "/api/v1/requests/check/",
        {**BODY, "stages": [{"events": "x"}]},
        content_type="application/json",
    )
    assert (bad.status_code, list(bad.json())) == (400, ["stages.0.events"])
    other = form.post(
        "/api/v1/requests/estimate/",
        {**BODY, "experiment": "DUNE"},
        content_type="application/json",
    )
    # The answer is as for one that does not exist.
    assert (other.status_code, list(other.json())) == (
        400,
        ["experiment"],
    )


@pytest.mark.parametrize(
    ("field", "text"), [("events", "20 milion"), ("jobs", "abc"), ("memory_bytes", "4 gigs")]
)
def test_number_that_cannot_be_read_is_not_reported_as_missing(field, text, nova, liaison, browse):
    data = dict(typed(content(stages=(stage("a"),)), experiment="NOVA").lists()) | {
        f"stages-0-{field}": text
    }
    for address, action in (("/requests/new/check/", {}), ("/requests/new/", {"do": "submit"})):
        page = browse(liaison).post(address, data | action)
        found = [
            finding
            for finding in page.context["checked"].findings
            if finding.path == f"stages.0.{field}"
        ]
        assert [(problem.severity, problem.message.split()[:2]) for problem in found] == [
            ("invalid", ["Enter", "a"])
        ]
        assert "such as" in found[0].message


def test_problem_of_a_field_that_stages_share_counts_once(nova, form):
    stages = tuple(stage(name, release="") for name in ("a", "b", "c", "d"))
    page = form.post(NEW_CHECK, post_of(content(stages=stages), experiment="NOVA"))
    text = text_of(page)
    assert text.count("Enter the software release.") == 1
    assert "1 error</a>" in text
    assert next(step.errors for step in page.context["steps"] if step.anchor == "stages") == 1
