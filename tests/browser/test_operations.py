"""From the home page to a failed job and its verdict, as a shifter does it."""

from datetime import datetime

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.diagnosis.models import FailureGroup
from apps.statusboard.domain.incidents.incidents import close_incident
from tests.browser.conftest import log_in_by_form

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = [(1280, "light"), (390, "dark")]


@pytest.fixture
def at() -> datetime:
    """Now: the home page shows the last 24 hours."""
    return timezone.now()


@pytest.mark.parametrize("javascript", [True, False], ids=["javascript", "no javascript"])
def test_shifter_goes_from_home_to_the_verdict(world, shifter, open_page, javascript):
    page = open_page(javascript=javascript)
    log_in_by_form(page, shifter)
    strip = page.locator("#alerts")
    assert "samweb since" in strip.inner_text()
    strip.locator("summary").click()
    strip.get_by_role("link", name="Incident details").wait_for()
    page.locator("#why summary").click()
    why = page.locator("#why")
    assert "1 of 1 jobs" in why.inner_text()
    why.get_by_role("link", name="SAMWEB-5XX").click()
    page.get_by_role("link", name="4711").click()
    page.wait_for_load_state()
    verdict = page.get_by_role("region", name="Verdict")
    assert "Service problem: wait until samweb is up (down since " in verdict.inner_text()
    assert (
        "was out" in verdict.inner_text()
        or "overlap" in verdict.inner_text()
        or "down" in verdict.inner_text()
    )
    log = page.locator("#log")
    assert "HTTP error: 503" in log.locator(".cause").inner_text()
    assert '<script>alert("log")</script>' in log.inner_text()
    assert "down" in page.locator("#outages").inner_text()
    assert (
        page.get_by_role("link", name="NOVA-0001").first.get_attribute("href")
        == "/requests/NOVA-0001/"
    )
    assert page.problems == []


def test_home_refreshes_itself_and_says_when_it_cannot(world, shifter, open_as):
    page = open_as(shifter)
    page.clock.install()
    page.goto("/")
    close_incident(incident=world.incident, by=shifter, at=timezone.now(), reason="back")
    with page.expect_response("**/"):
        page.clock.fast_forward(31_000)
    page.locator("#alerts").wait_for(state="detached")
    page.route("**/", lambda route: route.abort())
    page.clock.fast_forward(31_000)
    page.get_by_role("alert").get_by_text("does not answer").wait_for()
    page.unroute("**/")
    page.clock.fast_forward(31_000)
    page.get_by_role("alert").wait_for(state="detached")
    assert page.locator("#operations").is_visible()


def test_home_asks_for_the_login_when_it_has_ended(world, shifter, open_as):
    page = open_as(shifter)
    page.clock.install()
    page.goto("/")
    page.context.clear_cookies()
    page.clock.fast_forward(31_000)
    page.get_by_role("button", name="Log in").wait_for()


def test_slash_finds_a_job_by_its_id(world, shifter, open_as):
    page = open_as(shifter)
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("4711")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{world.job.pk}/")


def test_correcting_a_verdict_keeps_both_words(world, shifter, open_as):
    page = open_as(shifter)
    page.goto(f"/jobs/{world.job.pk}/")
    page.get_by_text("Correct verdict").click()
    page.get_by_role("combobox", name="Verdict").select_option("code")
    page.get_by_label("Reason").fill("The wrapper calls the old host.")
    page.get_by_role("button", name="Override verdict").click()
    page.wait_for_load_state()
    verdict = page.get_by_role("region", name="Verdict").inner_text()
    assert "Code problem: debug" in verdict
    assert "shift-one" in verdict
    assert "Automatic verdict: Service problem" in verdict


def test_parts_of_a_job_are_tabs_that_arrow_keys_move_between(world, shifter, open_as):
    page = open_as(shifter)
    page.goto(f"/jobs/{world.job.pk}/")
    tabs = page.get_by_role("tablist", name="Parts of the job")
    assert page.get_by_role("tabpanel", name="Log").is_visible()
    tabs.get_by_role("tab", name="Log").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tabpanel", name="Script").get_by_text("reco -c prod.fcl").is_visible()
    assert tabs.get_by_role("tab", selected=True).inner_text() == "Script"
    assert page.evaluate("document.activeElement.textContent") == "Script"
    page.keyboard.press("Home")
    assert page.locator("#log").is_visible()
    assert page.evaluate("document.documentElement.scrollHeight") <= 1500
    page.goto(f"/jobs/{world.job.pk}/#environment")
    assert page.get_by_text("EVIL").is_visible()
    assert page.problems == []


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_pages_are_neat_and_accessible(world, shifter, open_as, assert_accessible, width, scheme):
    page = open_as(shifter, width=width, scheme=scheme)
    for path in (
        "/",
        f"/jobs/{world.job.pk}/",
        "/jobs/",
        "/failures/",
        "/statistics/",
        "/jobs/?state=nonsense",
        "/failures/jobs/",
        f"/jobs/{world.job.pk}/log/",
        "/hosts/wn-0233/",
        f"/notify/job/{world.job.pk}/",
        f"/jobs/{world.job.pk}/verdict/",
        f"/archive/{world.archived.pk}/",
        "/services/",
        "/find/?q=nothing",
        "/find/?q=n",
        "/accounts/settings/",
    ):
        page.goto(path)
        assert_accessible(page)
    assert page.problems == []


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_what_is_folded_and_what_is_refused_is_accessible(
    world, liaison, shifter, open_as, assert_accessible, width, scheme
):
    page = open_as(shifter, width=width, scheme=scheme)
    for path in ("/services/", f"/jobs/{world.job.pk}/"):
        page.goto(path)
        for summary in page.locator("main summary").all():
            summary.focus()
            page.keyboard.press("Enter")
        assert page.locator("main details:not([open])").count() == 0
        assert_accessible(page)
    page.goto("/nothing/")
    assert "Page not found" in page.locator("h1").inner_text()
    assert_accessible(page)
    page = open_as(liaison, width=width, scheme=scheme)
    page.goto("/services/incidents/new/")
    assert "Permission denied" in page.locator("h1").inner_text()
    assert_accessible(page)
    page.get_by_role("button", name="Log out").click()
    assert_accessible(page)


def test_admin_is_accessible(world, admin, open_as, assert_accessible):
    page = open_as(admin)
    page.goto("/admin/")
    assert_accessible(page)


def test_role_of_a_marked_line_stays_in_sight(world, shifter, open_as):
    page = open_as(shifter, width=390)
    page.goto(f"/jobs/{world.job.pk}/")
    log, role = page.locator("#log").bounding_box(), page.locator("#log .cause em").bounding_box()
    assert role["x"] + role["width"] <= log["x"] + log["width"] + 1


def test_phone_shows_the_first_failure_before_what_narrows_down(world, shifter, open_as):
    page = open_as(shifter, width=390)
    page.goto("/failures/")
    first = page.locator(".groups a.title").first
    assert first.bounding_box()["y"] < 650
    causes = page.get_by_role("link", name="Causes", exact=True)
    facets = page.get_by_role("navigation", name="Filters")
    expect(causes).to_be_hidden()
    expect(facets).to_be_hidden()
    expect(page.get_by_text("Selected groups")).to_be_hidden()
    page.get_by_text("More…").click()
    page.get_by_text("By verdict, experiment, stage, cluster or status").click()
    expect(causes).to_be_visible()
    expect(facets).to_be_visible()
    page.get_by_role("checkbox", name="Select F-").first.check()
    expect(page.get_by_text("Selected groups")).to_be_visible()

    wide = open_as(shifter)
    wide.goto("/failures/")
    for part in ("Causes", "Known errors"):
        expect(wide.get_by_role("link", name=part, exact=True)).to_be_visible()
    expect(wide.get_by_role("navigation", name="Filters")).to_be_visible()
    expect(wide.get_by_text("Selected groups")).to_be_visible()
    expect(wide.get_by_text("More…")).to_be_hidden()


def test_phone_gives_the_example_log_its_width(world, shifter, open_as):
    page = open_as(shifter, width=390)
    page.goto(FailureGroup.objects.get().get_absolute_url())
    log = page.locator("#log .log")
    text = log.locator(".cause > span").first
    assert text.bounding_box()["width"] > 0.7 * log.bounding_box()["width"]
    label = log.locator(".cause em").first.bounding_box()
    assert label["y"] + label["height"] <= text.bounding_box()["y"] + 1


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_pages_without_anything_are_accessible(
    transactional_db, shifter, open_as, assert_accessible, width, scheme
):
    page = open_as(shifter, width=width, scheme=scheme)
    for path in (
        "/",
        "/jobs/",
        "/failures/",
        "/statistics/",
        "/archive/",
        "/requests/",
        "/requests/queue/",
        "/services/",
    ):
        page.goto(path)
        assert_accessible(page)
    assert page.problems == []
