"""The back office: setting up an experiment, wide with JavaScript and narrow without it."""

import re

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Experiment
from tests.browser.conftest import assert_no_sideways_scrolling
from tests.factories.requests import request_in


@pytest.mark.parametrize(("width", "javascript"), [(1280, True), (390, True), (390, False)])
def test_experiment_is_set_up(
    transactional_db, admin, nova, dune, open_as, assert_accessible, width, javascript
):
    page = open_as(admin, width=width, javascript=javascript)
    page.goto("/admin/")
    page.get_by_role("link", name="Set up an experiment").first.click()
    page.get_by_role("button", name="Check").click()
    page.get_by_label("Key", exact=False).first.fill("nova")
    page.get_by_label("Name:", exact=True).fill("Short-Baseline Near Detector")
    page.get_by_label("Account or user, row 1").fill("sbndpool")
    page.get_by_label("User name, row 1").fill("new.person")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("upper and lower case are the same")).to_be_visible()
    if javascript:
        assert_accessible(page)
    page.get_by_label("Key", exact=False).first.fill("SBND")
    page.get_by_label("E-mail of a new user, row 1").fill("new@example.org")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#effect")).to_contain_text("adds users without a password: new.person")
    if javascript:
        assert_accessible(page)
    page.get_by_role("button", name="Set up the experiment").click()
    expect(page.get_by_text("is set up")).to_be_visible()
    assert Experiment.objects.filter(key="SBND").exists()
    assert page.problems == []


@pytest.mark.parametrize("width", [1280, 390])
def test_error_in_a_declaration_selects_its_line(
    transactional_db, admin, open_as, assert_accessible, width
):
    page = open_as(admin, width=width)
    page.goto("/admin/production/workflowtype/add/")
    text = page.get_by_label("Declaration")
    lines = text.input_value().rstrip("\n").split("\n")
    numbers = page.locator(".line-numbers")
    assert numbers.inner_text().split("\n")[: len(lines)] == [
        str(number) for number in range(1, len(lines) + 1)
    ]
    page.get_by_label("Key:").fill("cosmics")
    lines[len(lines) // 2] = "nonsense: ["
    text.fill("\n".join(lines))
    page.get_by_role("button", name="Save", exact=True).click()
    error = page.locator(".errorlist").inner_text()
    number = int(re.search(r"line (\d+)", error, re.IGNORECASE)[1])
    expect(text).to_be_focused()
    selected = text.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)")
    assert selected == lines[number - 1]
    assert numbers.evaluate("box => box.scrollTop") == text.evaluate("area => area.scrollTop")
    assert_accessible(page)


def test_headings_and_empty_lists_are_accessible(
    transactional_db, admin, open_as, assert_accessible
):
    page = open_as(admin, width=390)
    page.goto("/admin/clusters/cluster/")
    expect(page.get_by_text("There are no clusters yet.")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("link", name="Add cluster").last.click()
    expect(page.get_by_role("heading", name="Scheduler and accounting")).to_be_visible()
    assert_accessible(page)


def test_phone_shows_whole_dates_and_fields_within_their_card(
    transactional_db, nova, liaison, admin, open_as
):
    request_in("draft", by=liaison, experiment=nova, approver=admin)
    page = open_as(admin, width=390)
    page.goto("/admin/core/event/")
    first_row = page.locator("#result_list tbody tr:first-child")
    for cell in first_row.locator("> :not(.action-checkbox, [data-empty])").all():
        assert cell.bounding_box()["width"] >= 70
    assert_no_sideways_scrolling(page)
    here = page.locator("#user-tools").get_by_role("link", name="Back office").bounding_box()
    assert here["x"] + here["width"] <= 390
    page.goto("/admin/accounts/membership/add/")
    card = page.locator("fieldset.module").first.bounding_box()
    for field in page.locator(".form-row select:visible, .form-row .select2-container").all():
        box = field.bounding_box()
        assert box["x"] >= card["x"] + 8
        assert box["x"] + box["width"] <= card["x"] + card["width"] - 8
