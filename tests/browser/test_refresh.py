"""Pages that refresh themselves, or wait for the database: what someone reads, does or types on them
stays.
"""

from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from django.db import OperationalError
from django.utils import timezone
from playwright.sync_api import expect

from apps.accounts.web import views
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.verdicts.harvest import harvest_log
from apps.diagnosis.models import LogHarvest, Verdict
from apps.jobs.models import Job

pytestmark = pytest.mark.django_db(transaction=True)

#: Pages, and the part of each that is replaced.
PARTS = {
    "/": "#operations",
    "/services/": "#board",
    "/jobs/": "#jobs",
    "/failures/": "#failures",
    "/failures/jobs/": "#failed",
}

#: A time zone that is chosen in the settings.
TYPED = "Europe/Berlin"
NOTE = "Your input is back in the form"


@pytest.fixture
def at() -> datetime:
    return timezone.now()


def wait_for_refresh(page, part, act):
    page.evaluate("part => { document.querySelector(part).dataset.old = 'yes' }", part)
    with page.expect_response(lambda response: "hx-request" in response.request.headers):
        act()
    page.locator(f"{part}:not([data-old])").wait_for()


def test_pages_refresh_themselves_and_keep_focus_and_scroll(world, shifter, open_as):
    page = open_as(shifter, width=390)
    page.clock.install()
    state = "[document.activeElement.textContent, document.activeElement.href, window.scrollY]"
    for address, part in PARTS.items():
        page.goto(address)
        assert "as of" in page.locator("#as-of").inner_text()
        page.locator(f"{part} :is(td, .what, .a) a:visible").first.focus()
        page.evaluate("window.scrollTo(0, 120)")
        before = page.evaluate(state)
        assert before[1], "a link has the focus"
        wait_for_refresh(page, part, lambda: page.clock.fast_forward(31_000))
        expect(page.locator(".htmx-settling")).to_have_count(0)
        assert page.evaluate(state) == before, address
    assert page.problems == []


def test_page_does_not_refresh_while_it_is_hidden(world, shifter, open_as):
    page = open_as(shifter)
    page.clock.install()
    page.goto("/jobs/")
    hide = (
        "hidden => Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })"
    )
    page.evaluate(hide, True)
    asked = []
    page.on(
        "request",
        lambda request: asked.append(request.url) if "hx-request" in request.headers else None,
    )
    page.clock.fast_forward(31_000)
    page.wait_for_timeout(300)
    assert asked == []
    page.evaluate(hide, False)
    wait_for_refresh(
        page,
        "#jobs",
        lambda: page.evaluate("document.dispatchEvent(new Event('visibilitychange'))"),
    )


def test_refresh_waits_for_a_form_that_is_open(world, shifter, open_as):
    page = open_as(shifter)
    page.clock.install()
    page.goto("/services/")
    page.get_by_text("Cancel…").first.click()
    page.locator("details[open]").get_by_label("Reason").fill("Not needed")
    page.clock.fast_forward(31_000)
    page.wait_for_timeout(300)
    assert page.locator("details[open]").get_by_label("Reason").input_value() == "Not needed"


def test_log_of_a_completed_job_fills_once_it_is_analysed(world, shifter, open_as):
    Verdict.objects.all().delete()
    LogHarvest.objects.all().delete()
    log_path = world.job.log_path
    Job.objects.update(state=JobState.COMPLETED, exit_code=0, log_path="")
    page = open_as(shifter)
    page.goto(f"/jobs/{world.job.pk}/")
    assert "Log path unknown" in page.locator("#log").inner_text()
    page.get_by_role("button", name="Analyse log").click()
    page.get_by_text("Analysing log").wait_for()
    Job.objects.update(log_path=log_path)
    harvest_log(
        harvest=LogHarvest.objects.select_related("job__cluster", "job__experiment").get(),
        at=timezone.now(),
    )
    page.locator("#log").get_by_text("HTTP error: 503").wait_for()
    assert page.problems == []


@pytest.fixture
def long_log(world):
    """A log of 700 lines, the last of them one of a known error that is wider than any page."""
    name = "x" * 400
    lines = [f"record {number}\n" for number in range(700)] + [
        f"HTTP error: 503 Service Unavailable: samweb.{name} END\n"
    ]
    Path(world.job.log_path).write_text("".join(lines))
    LogHarvest.objects.get().excerpts.all().delete()
    return world.job


@pytest.mark.parametrize("width", [1280, 390])
def test_long_log_keeps_its_place_and_its_marked_lines_whole(long_log, shifter, open_as, width):
    page = open_as(shifter, width=width)
    page.goto(f"/jobs/{long_log.pk}/")
    line = page.locator("#log .cause").first
    line.scroll_into_view_if_needed()
    log, text, badge = (
        element.bounding_box()
        for element in (page.locator("#log"), line.locator("span"), line.locator("em"))
    )
    is_above = badge["y"] + badge["height"] <= text["y"] + 1
    is_beside = text["x"] + text["width"] <= badge["x"] + 1
    assert is_above if width == 390 else is_beside
    assert badge["x"] + badge["width"] <= log["x"] + log["width"] + 1
    assert line.evaluate("line => line.scrollWidth <= line.clientWidth")
    top = "document.querySelector('#log').getBoundingClientRect().top"
    page.get_by_role("link", name="500", exact=True).scroll_into_view_if_needed()
    before = page.evaluate(top)
    page.get_by_role("link", name="500", exact=True).click()
    page.locator("#log").get_by_text("record 250", exact=True).wait_for(state="attached")
    page.wait_for_timeout(300)
    assert abs(page.evaluate(top) - before) < 2
    assert page.problems == []


@pytest.fixture
def unavailable(monkeypatch):
    """Return a context in which each view of settings fails as without a database."""

    @contextmanager
    def fail():
        def raise_error(*_, **__):
            raise OperationalError("gone")

        with monkeypatch.context() as patch:
            patch.setattr(views, "SettingsForm", raise_error)
            patch.setattr("apps.core.web.views.check_readiness", raise_error)
            yield

    return fail


def open_settings(open_as, user):
    page = open_as(user)
    page.goto("/accounts/settings/")
    return page


def zone(page):
    return page.locator("select[name=time_zone]")


def test_form_that_was_not_answered_is_back_with_its_input(nova, liaison, open_as, unavailable):
    page = open_settings(open_as, liaison)
    before = zone(page).input_value()
    assert before != TYPED
    zone(page).select_option(TYPED)
    with unavailable():
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("Reconnecting")
        page.wait_for_timeout(2_500)
        expect(page.get_by_role("heading", name="Service unavailable")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text(NOTE)
    assert zone(page).input_value() == TYPED
    liaison.refresh_from_db()
    assert liaison.time_zone != TYPED, "nothing is sent again without the user"

    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    liaison.refresh_from_db()
    assert liaison.time_zone == TYPED
    page.wait_for_function("sessionStorage.getItem('unsent') === null")


def test_page_that_was_not_answered_is_loaded_again(nova, liaison, open_as, unavailable):
    page = open_as(liaison)
    with unavailable():
        page.goto("/accounts/settings/")
        expect(page.get_by_role("status")).to_contain_text("Reconnecting")
    expect(zone(page)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_form_that_met_a_dead_proxy_is_back_after_the_button_back(nova, liaison, open_as):
    page = open_settings(open_as, liaison)
    zone(page).select_option(TYPED)
    page.route("**/accounts/settings/", lambda route: route.fulfill(status=502, body="Bad Gateway"))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Bad Gateway")).to_be_visible()
    page.unroute("**/accounts/settings/")
    page.go_back()
    assert zone(page).input_value() == TYPED


def test_answered_form_is_not_put_back(nova, liaison, open_as):
    page = open_settings(open_as, liaison)
    zone(page).select_option(TYPED)
    page.get_by_role("button", name="Save").click()
    page.wait_for_load_state()
    page.goto("/jobs/")
    page.go_back()
    expect(page.get_by_role("alert")).to_have_count(0)
