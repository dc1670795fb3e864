"""From a line of *Your turn* to what it asks for, and unusual figures at their fields,
in a browser.
"""

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from apps.production.models import Attention, Request
from tests.factories.requests import AT, draft, request_in, stage


@pytest.fixture
def late(transactional_db, nova, liaison, approver):
    request = request_in("queued", by=liaison, experiment=nova, approver=approver)
    Attention.objects.create(
        request=request, kind="late", since=AT, words="expected after its deadline"
    )
    return request


def test_late_request_is_postponed_and_another_class_is_set(
    late, liaison, approver, open_as, assert_accessible
):
    page = open_as(liaison)
    page.goto("/requests/inbox/")
    assert_accessible(page)
    page.get_by_role("link", name=f"Deadline or class…: {late.key}").click()
    assert_accessible(page)
    day = late.deadline + timedelta(days=7)
    page.get_by_label("Deadline").fill(day.isoformat())
    page.get_by_label("Request class").select_option("urgent")
    page.get_by_label("Reason").fill("The freeze moved.")
    page.get_by_role("button", name="Save").click()
    expect(
        page.get_by_text(f"Class urgent is requested for {late.key}. An approver decides.")
    ).to_be_visible()
    assert Request.objects.get().deadline == day

    page = open_as(approver)
    page.goto(f"{late.get_absolute_url()}?do=priority")
    expect(page.get_by_label("Class")).to_have_value("urgent")
    page.get_by_label("Reason").fill("Agreed.")
    page.get_by_role("button", name="Set priority").click()
    expect(page.get_by_text(f"The priority of {late.key} is now urgent")).to_be_visible()
    assert page.problems == []


def test_unusual_figures_are_reported_at_the_field_and_in_the_rail(
    transactional_db, nova, liaison, open_as
):
    huge = stage("generation", memory_bytes=900 * 10**9, jobs=1_000_000)
    request = draft(liaison, nova, stages=(huge,))
    page = open_as(liaison)
    page.goto(f"/requests/{request.key}/edit/?check=1")
    message = (
        "This memory is unusual, and the experiment has no earlier request to compare it with. "
        "Check it."
    )
    expect(page.locator(".live").get_by_text(message)).to_be_visible()
    assert page.locator(".errorlist.advice").get_by_text(message).count() == 1
