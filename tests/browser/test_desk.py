"""The approver's desk in a browser: five decisions by few keys, a comment in place,
several at once.
"""

import pytest
from playwright.sync_api import expect

from apps.production.models import Comment, Request
from tests.browser.conftest import wait_until_loaded
from tests.factories.requests import request_in


@pytest.fixture
def waiting(transactional_db, nova, liaison, approver):
    return [
        request_in(
            "awaiting_approval",
            by=liaison,
            experiment=nova,
            approver=approver,
            title=f"Sample {number}",
        )
        for number in range(6)
    ]


def states() -> list[str]:
    return list(Request.objects.order_by("pk").values_list("state", flat=True))


def test_five_requests_are_decided_by_at_most_fifteen_keys(
    waiting, approver, open_as, assert_accessible
):
    page = open_as(approver)
    page.goto("/requests/inbox/desk/")
    assert_accessible(page)
    pressed = 0

    def press(*keys: str) -> None:
        nonlocal pressed
        for key in keys:
            page.keyboard.press(key)
            pressed += 1

    press("j")
    expect(page.locator(".desk-open h2")).to_contain_text(waiting[1].key)
    for one in waiting[1:5]:
        expect(page.locator(".desk-open h2")).to_contain_text(one.key)
        press("a", "Enter")
        expect(page.get_by_text(f"{one.key} is approved as")).to_be_visible()
        wait_until_loaded(page)  # keys of a page that is still loading do nothing
    expect(page.locator(".desk-open h2")).to_contain_text(waiting[5].key)
    press("r")
    page.keyboard.type("Deadline: too early")  # what is said is not a key of the desk
    press("Tab", "Enter")
    expect(page.get_by_text(f"{waiting[5].key} is now “changes requested”.")).to_be_visible()
    assert pressed <= 15
    assert states() == ["awaiting_approval", *["queued"] * 4, "changes_requested"]
    assert page.problems == []


def test_comment_on_a_field_is_written_in_place_and_several_are_approved(
    waiting, approver, open_as
):
    page = open_as(approver, javascript=False)
    page.goto(f"/requests/inbox/desk/?at={waiting[2].key}")
    page.locator("#stages > summary").click()
    page.get_by_role("link", name="Comment on Memory, Stage 2 simulation").click()
    page.get_by_role("textbox", name="Comment on Memory").fill("Needs 6 GB.")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.get_by_text("Needs 6 GB.")).to_be_visible()
    assert Comment.objects.get().field == "stages.1.memory_bytes"
    for one in waiting[:2]:
        page.get_by_label(f"Select {one.key}").check()
    page.get_by_role("button", name="Approve selected…").click()
    expect(page.get_by_role("heading", name="Approve 2 requests?")).to_be_visible()
    page.get_by_role("button", name="Approve 2 requests").click()
    expect(page.get_by_text(f"{waiting[1].key} is approved as")).to_be_visible()
    assert states()[:3] == ["queued", "queued", "awaiting_approval"]
