"""The life of a request in a browser, with and without JavaScript."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.production.models import Request
from apps.production.tasks import check_waiting
from apps.statusboard.models import Service
from apps.submission.models import Assignment
from tests.browser.conftest import broken_words
from tests.factories.clusters import cluster
from tests.factories.requests import request_in, stage

STAGE = {
    "Name": "generation",
    "Release": "v09_72",
    "Configuration": "genie_rock.fcl",
    "Output dataset": "nova.mc.gen",
    "Events": "20 M",
    "Jobs": "4000",
    "Memory": "4 GB",
    "Wall time": "8 h",
}


@pytest.mark.parametrize("javascript", [True, False])
def test_request_from_form_to_approved(
    javascript, transactional_db, nova, liaison, approver, open_as
):
    Service.objects.create(slug="samweb", name="SAM web")
    page = open_as(liaison, javascript=javascript)
    page.goto("/")
    page.get_by_role("link", name="Requests", exact=True).click()
    page.get_by_role("link", name="New request").click()
    page.get_by_role("link", name="General").click()
    page.get_by_label("Title").fill("ND rock muons")
    page.get_by_role("button", name="Submit").first.click()
    expect(page.get_by_role("link", name="Stage 1 · Memory").first).to_be_visible()
    for label, text in STAGE.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_label("SAM web").check()
    page.get_by_role("button", name="Add stage").click()
    page.locator("#stage-2 > .fold > summary").press("Enter")
    page.get_by_role("button", name="Remove stage 2").click()
    expect(page.locator("#stage-2")).to_have_count(0)
    page.get_by_label("Deadline", exact=True).fill(
        (timezone.localdate() + timedelta(days=20)).isoformat()
    )
    page.get_by_label("Purpose").fill("For the December freeze.")
    page.get_by_role("button", name="Submit").first.click()
    expect(page.get_by_text("Submitted NOVA-0001 for approval.")).to_be_visible()
    assert page.problems == []
    check_waiting()

    page = open_as(approver, javascript=javascript)
    page.goto("/requests/?mine=turn")
    page.get_by_role("link", name="NOVA-0001").click()
    page.get_by_role("link", name="Review and approve…").click()
    page.locator("#approve").click()
    expect(page.locator(".notes .note").first).to_be_visible()
    assert Request.objects.get().state == "queued"
    assert page.problems == []


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_requests_are_accessible(
    width, transactional_db, nova, liaison, approver, open_as, assert_accessible
):
    Service.objects.create(slug="samweb", name="SAM web")
    ahead = timezone.localdate() + timedelta(days=300)
    chain = (stage("generation", services=("samweb",)), stage("simulation"))
    asked = request_in(
        "changes_requested",
        by=liaison,
        experiment=nova,
        approver=approver,
        deadline=ahead,
        stages=chain,
    )
    queued = request_in(
        "queued", by=liaison, experiment=nova, approver=approver, deadline=ahead, stages=chain
    )
    for who, paths in {
        liaison: ["", f"{asked.key}/", f"{asked.key}/edit/?check=1", "new/"],
        approver: ["queue/", f"{queued.key}/?do=priority"],
    }.items():
        page = open_as(who, width=width)
        for path in paths:
            page.goto(f"/requests/{path}")
            assert_accessible(page)


@pytest.mark.parametrize("width", [1280, 390])
def test_submissions_of_a_request_fit_their_card(
    width, transactional_db, nova, liaison, approver, shifter, open_as
):
    ahead = timezone.localdate() + timedelta(days=300)
    chain = (stage("generation", jobs=12_500), stage("merge", jobs=12_500))
    running = request_in(
        "running", by=liaison, experiment=nova, approver=approver, deadline=ahead, stages=chain
    )
    Assignment.objects.create(
        request=running, cluster=cluster(), assigned_at=timezone.now(), assigned_by="shift-one"
    )
    page = open_as(shifter, width=width)
    page.goto(f"/requests/{running.key}/")
    expect(page.locator("#submissions table")).to_be_visible()
    assert broken_words(page) == []
    if width == 1280:
        table = page.locator("#submissions .scroll")
        assert table.evaluate("table => table.scrollWidth - table.clientWidth") <= 0
