"""A new liaison makes a request of four stages from an earlier one: few inputs, little time,
accessible, light.
"""

import gzip
import time
from dataclasses import fields

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of
from apps.production.models import Request
from tests.browser.test_request_life import ahead
from tests.factories.requests import request_in
from tests.factories.workflows import monte_carlo_chain

MOST_INPUTS, MOST_SECONDS, MOST_BYTES = 12, 90, 150_000


@pytest.fixture
def earlier(transactional_db, nova, liaison, approver) -> Request:
    written = monte_carlo_chain(title="ND rock muons, 2025 beam", deadline=ahead())
    values = {field.name: getattr(written, field.name) for field in fields(RequestContent)}
    later = timezone.now()
    return request_in(
        "queued", by=liaison, experiment=nova, approver=approver, later=later, **values
    )


def weight_of(page: Page) -> int:
    """The bytes of the page and of all that it loads,
    static files compressed as the server sends them.
    """
    loaded = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    files = [
        page.request.get(fromkey).body()
        for fromkey in dict.fromkeys(loaded)
        if "/static/" in fromkey
    ]
    assert files
    return len(page.request.get(page.url).body()) + sum(len(gzip.compress(one)) for one in files)


def test_four_stages_from_an_earlier_request_in_few_inputs(earlier, liaison, open_as):
    page, inputs, begun = open_as(liaison), 0, time.monotonic()
    page.goto("/requests/")
    steps = [
        lambda: page.get_by_role("link", name="New request").click(),
        lambda: page.get_by_label("Key, title or output dataset").fill("rock muons"),
        lambda: page.get_by_role("button", name=f"Clone {earlier.key}").click(),
        lambda: page.get_by_label("Title").fill("ND rock muons, 2026 beam"),
        lambda: page.get_by_label("Deadline", exact=True).fill(ahead().isoformat()),
        lambda: page.get_by_role("button", name="Apply all fixes").click(),
        lambda: page.get_by_role("button", name="Submit", exact=True).click(),
    ]
    for step in steps:
        step()
        inputs += 1
    expect(page.get_by_text("for approval.")).to_be_visible()
    made = Request.objects.get(cloned_from=earlier)
    assert made.state == "submitted"
    assert [stage.output_dataset for stage in content_of(made).stages] == [
        f"nova.mc.{name}_v2" for name in ("generation", "simulation", "reconstruction", "merge")
    ]
    assert inputs <= MOST_INPUTS
    assert time.monotonic() - begun < MOST_SECONDS
    assert page.problems == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_start_and_form_have_no_violation_and_are_light(
    width, scheme, earlier, liaison, open_as, assert_accessible
):
    page = open_as(liaison, width=width, scheme=scheme)
    for path in ("start/", "new/?workflow=monte_carlo"):
        page.goto(f"/requests/{path}")
        assert_accessible(page)
    page.goto("/requests/start/")
    page.get_by_role("button", name=f"Clone {earlier.key}").click()
    page.get_by_text("Apply all fixes").wait_for()
    assert_accessible(page)
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_text("did not submit it").wait_for()
    assert_accessible(page)
    for fold in page.locator(".stage > .fold").all():
        if fold.get_attribute("open") is None:
            fold.locator("> summary").press("Enter")
    page.get_by_text("Differs from the other stages").first.click()
    assert_accessible(page)
    assert weight_of(page) < MOST_BYTES
