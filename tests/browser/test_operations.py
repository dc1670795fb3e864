"""From the home page to a failed job and its verdict, as a shifter does it."""

from datetime import datetime

import pytest
from django.utils import timezone

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture
def at() -> datetime:
    """Now: the home page shows the last 24 hours."""
    return timezone.now()


@pytest.mark.parametrize("javascript", [True, False], ids=["javascript", "no javascript"])
def test_shifter_goes_from_home_to_the_verdict(world, shifter, open_as, javascript):
    page = open_as(shifter, javascript=javascript)
    assert "samweb is down since" in page.get_by_role("status").inner_text()
    why = page.locator("#why")
    assert "1 of 1 jobs" in why.inner_text()
    why.get_by_role("link", name="SAMWEB-5XX").click()
    page.get_by_role("link", name="4711").click()
    verdict = page.get_by_role("region", name="Verdict")
    assert verdict.inner_text().startswith("Service problem: retry.")
    assert "was out" in verdict.inner_text() or "overlap" in verdict.inner_text() or "down" in verdict.inner_text()
    log = page.locator("#log")
    assert "HTTP error: 503" in log.locator(".cause").inner_text()
    assert '<script>alert("log")</script>' in log.inner_text()
    assert "yes" in page.locator("#outages").inner_text()
    assert page.get_by_role("link", name="NOVA-0001").first.get_attribute("href") == "/requests/NOVA-0001/"
    assert page.problems == []


def test_slash_finds_a_job_by_its_id(world, shifter, open_as):
    page = open_as(shifter)
    page.keyboard.press("/")
    page.keyboard.type("4711")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{world.job.pk}/")


def test_correcting_a_verdict_keeps_both_words(world, shifter, open_as):
    page = open_as(shifter)
    page.goto(f"/jobs/{world.job.pk}/")
    page.get_by_text("This is wrong").click()
    page.get_by_role("combobox", name="Verdict").select_option("code")
    page.get_by_label("Reason").fill("The wrapper calls the old host.")
    page.get_by_role("button", name="Put my verdict in force").click()
    verdict = page.get_by_role("region", name="Verdict").inner_text()
    assert verdict.startswith("Code problem: debug.")
    assert "shift-one" in verdict
    assert "the rules say service" in verdict


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_pages_are_neat_and_accessible(world, shifter, open_as, assert_accessible, width, scheme):
    page = open_as(shifter, width=width, scheme=scheme)
    for path in (
        "/",
        f"/jobs/{world.job.pk}/",
        "/jobs/",
        "/failures/",
        "/reports/",
        "/find/?q=nothing",
        "/accounts/settings/",
    ):
        page.goto(path)
        assert_accessible(page)
    assert page.problems == []


@pytest.mark.parametrize(("width", "scheme"), SIZES[::3])
def test_pages_without_anything_are_accessible(transactional_db, shifter, open_as, assert_accessible, width, scheme):
    page = open_as(shifter, width=width, scheme=scheme)
    for path in ("/", "/jobs/", "/failures/", "/reports/", "/archive/", "/requests/", "/requests/queue/", "/services/"):
        page.goto(path)
        assert_accessible(page)
    assert page.problems == []
