"""The queue in a browser: a request is dragged, or moved by the keyboard,
and its reason asked before it moves.
"""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.core.domain.events import events_of
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.enums import Verb
from tests.factories.requests import request_in


def order() -> list[str]:
    return [request.key for request in ranked_requests()]


@pytest.fixture
def queue(transactional_db, nova, liaison, approver, open_as):
    """The page of a queue of four, as an approver sees it."""
    for number in range(4):
        request_in(
            "queued", by=liaison, experiment=nova, approver=approver, title=f"Sample {number}"
        )
    page = open_as(approver)
    page.goto("/requests/queue/")
    return page


def test_phone_says_once_when_a_request_on_hold_is_due(
    transactional_db, nova, liaison, approver, open_as
):
    deadline = timezone.localdate() + timedelta(days=30)
    held = request_in("queued", by=liaison, experiment=nova, approver=approver, deadline=deadline)
    MOVE_FUNCTIONS[Verb.HOLD](request=held, by=approver, at=timezone.now(), reason="memory")
    page = open_as(approver, width=390)
    page.goto("/requests/queue/")
    shown = page.locator(f"#{held.key}").inner_text()
    assert shown.count("due ") == 1
    assert "on hold" in shown
    assert "start" not in shown


def drag(page, key, onto):
    """Drag a row by its grip onto another, with the mouse itself."""
    start = page.locator(f"#{key} .grip").bounding_box()
    end = page.locator(f"#{onto} > td:nth-child(2)").bounding_box()
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + 40, end["y"] + end["height"] / 2, steps=5)
    page.mouse.move(end["x"] + 44, end["y"] + end["height"] / 2, steps=2)
    return page.mouse.up


def assert_asked(page, key, rank):
    """The form of this row alone is open at this rank, with the effect of the move, and the reason
    is what is typed next.
    """
    form = page.locator(f"#{key} details.move")
    expect(form).to_have_attribute("open", "")
    expect(page.locator("details.move[open]")).to_have_count(1)
    expect(form.get_by_label("To rank")).to_have_value(str(rank))
    expect(form.locator("button.main")).to_have_text("Move")  # after its preview
    expect(form.get_by_label("Reason")).to_be_focused()


def test_row_is_dragged_and_moves_only_with_a_reason(queue, approver):
    before = order()
    drop = drag(queue, before[3], before[1])
    expect(queue.locator(f"#{before[1]}")).to_have_class("drop-before")  # where it would go
    drop()
    expect(queue.locator(".drop-before, .drop-after")).to_have_count(0)
    assert_asked(queue, before[3], 2)
    assert order() == before

    queue.keyboard.press("Enter")  # the browser asks for what is missing
    assert_asked(queue, before[3], 2)
    queue.keyboard.type("The freeze is near")
    queue.keyboard.press("Enter")
    expect(queue.get_by_text(f"{before[3]} moved from rank 4 to 2.")).to_be_visible()
    assert order() == [before[0], before[3], before[1], before[2]]
    expect(queue.locator("tr[data-rank] > td > a b")).to_have_text(order())
    told = queue.locator("#changes li").first
    expect(told).to_contain_text(approver.username)
    expect(told).to_contain_text("“The freeze is near”")
    moved = events_of(
        next(request for request in ranked_requests() if request.key == before[3])
    ).last()
    assert (moved.kind, moved.actor, moved.reason) == (
        "request.moved",
        approver.username,
        "The freeze is near",
    )
    assert queue.problems == []


def test_row_that_is_let_go_elsewhere_asks_nothing(queue):
    before = order()
    drop = drag(queue, before[0], before[0])
    drop()
    expect(queue.locator("details.move[open]")).to_have_count(0)
    assert order() == before
    assert queue.problems == []


def test_row_moves_by_keyboard_alone(queue):
    before = order()
    queue.locator(f"#{before[2]} .grip").focus()
    queue.keyboard.press("Alt+ArrowUp")
    assert_asked(queue, before[2], 2)
    queue.keyboard.press("Alt+ArrowUp")
    queue.keyboard.press("Alt+ArrowUp")  # there is none above the first
    assert_asked(queue, before[2], 1)
    queue.keyboard.press("Alt+ArrowDown")
    queue.keyboard.press("Alt+ArrowUp")
    queue.keyboard.type("It is small")
    assert order() == before
    queue.keyboard.press("Enter")
    expect(queue.get_by_text(f"{before[2]} moved from rank 3 to 1.")).to_be_visible()
    assert order() == [before[2], before[0], before[1], before[3]]
    assert queue.problems == []


def test_second_of_two_who_look_at_one_queue_is_told(queue, approver, second_approver, open_as):
    before = order()
    other = open_as(second_approver)
    other.goto("/requests/queue/")
    told = (
        f"{approver.username} changed the queue in the meantime: {before[1]} was moved from rank "
        "2 to 1."
    )
    moves = ((queue, before[1], f"{before[1]} moved from rank 2 to 1."), (other, before[2], told))
    for page, key, answer in moves:
        page.locator(f"#{key} .grip").focus()
        page.keyboard.press("Alt+ArrowUp")
        expect(page.locator(f"#{key} button.main").first).to_have_text("Move")
        page.keyboard.type("It is late")
        page.keyboard.press("Enter")
        expect(page.get_by_text(answer)).to_be_visible()
    assert order() == [before[1], before[0], before[2], before[3]]
    assert other.problems == []
