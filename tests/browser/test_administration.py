"""The back office: setting up an experiment, wide with JavaScript and narrow without it."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Experiment


@pytest.mark.parametrize(("width", "javascript"), [(1280, True), (390, True), (390, False)])
def test_experiment_is_set_up(
    transactional_db, admin, nova, dune, open_as, assert_accessible, width, javascript
):
    page = open_as(admin, width=width, javascript=javascript)
    page.goto("/admin/")
    page.get_by_role("link", name="Set up an experiment").click()
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
    expect(page.locator("#effect")).to_contain_text("adds users: new.person")
    if javascript:
        assert_accessible(page)
    page.get_by_role("button", name="Set up the experiment").click()
    expect(page.get_by_text("is set up")).to_be_visible()
    assert Experiment.objects.filter(key="SBND").exists()
    assert page.problems == []
