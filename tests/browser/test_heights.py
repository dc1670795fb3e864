"""How long the pages are that people look at all day, on a screen of 1280 px."""

from dataclasses import fields
from datetime import datetime

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.production.domain.content.model import RequestContent
from tests.browser.conftest import wait_until_loaded
from tests.factories.requests import draft, request_in
from tests.factories.workflows import monte_carlo_chain

pytestmark = pytest.mark.django_db(transaction=True)

#: The most that each page may need, in pixels.
JOB = 1500
DESK = 1300
HOME = 1400
QUEUE = 1100
FORM = 2400


@pytest.fixture
def at() -> datetime:
    """Now: the home page shows the last 24 hours."""
    return timezone.now()


def height_of(page: Page) -> int:
    wait_until_loaded(page)
    height: int = page.evaluate("document.documentElement.scrollHeight")
    return height


def add_requests(state, count, *, liaison, nova, approver) -> None:
    for number in range(count):
        title = f"Sample {number} of neutrinos, 2026 beam"
        request_in(state, by=liaison, experiment=nova, approver=approver, title=title)


def test_job_page_fits_in_two_screens(world, shifter, open_as):
    page = open_as(shifter)
    page.goto(f"/jobs/{world.job.pk}/")
    assert height_of(page) <= JOB


def test_home_with_an_outage_failures_and_requests(
    world, nova, liaison, approver, shifter, open_as
):
    for state in ("awaiting_approval", "queued", "running"):
        add_requests(state, 4, liaison=liaison, nova=nova, approver=approver)
    for user in (shifter, approver, liaison):
        page = open_as(user)
        page.goto("/")
        assert height_of(page) <= HOME, user


def test_desk_of_six_requests(nova, liaison, approver, open_as):
    add_requests("awaiting_approval", 6, liaison=liaison, nova=nova, approver=approver)
    page = open_as(approver)
    page.goto("/requests/inbox/desk/")
    assert height_of(page) <= DESK


def test_queue_of_thirteen_requests(nova, liaison, approver, open_as):
    add_requests("queued", 13, liaison=liaison, nova=nova, approver=approver)
    page = open_as(approver)
    page.goto("/requests/queue/")
    expect(page.locator(".grip")).to_have_count(13)
    assert height_of(page) <= QUEUE


def test_monte_carlo_form_with_five_errors(nova, liaison, open_as):
    written = monte_carlo_chain()
    values = {}
    for field in fields(RequestContent):
        values[field.name] = getattr(written, field.name)
    made = draft(liaison, nova, **values)
    page = open_as(liaison)
    page.goto(f"/requests/{made.key}/edit/")
    for field, text in {
        "title": "",
        "stages-0-name": "",
        "stages-1-memory_bytes": "a lot",
        "stages-2-wall_seconds": "long",
        "stages-3-jobs": "many",
    }.items():
        page.locator(f"#id_{field}").fill(text)
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#checks li.error")).to_have_count(5)
    assert height_of(page) <= FORM
