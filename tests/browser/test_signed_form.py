"""What is typed in the form of a signed request: kept by the browser when the page is left,
and offered again.
"""

from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.enums import Role
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Request
from tests.browser.conftest import session_cookie
from tests.factories import people
from tests.factories.requests import LATER, request_in


@pytest.fixture
def queued(transactional_db, nova, liaison, approver) -> Request:
    return request_in("queued", by=liaison, experiment=nova, approver=approver)


@pytest.fixture
def page(queued, liaison, open_as) -> Page:
    return open_as(liaison)


def edit(page: Page, request: Request) -> None:
    page.goto(f"/requests/{request.key}/edit/")


def restore(page: Page) -> None:
    page.get_by_role("button", name="Restore what you typed").click()
    expect(page.locator("form[data-unsaved]")).to_have_count(1)


def test_changes_are_offered_after_the_page_was_left_at_once(queued, page):
    edit(page, queued)
    expect(page.locator("#kept")).to_be_hidden()
    page.get_by_label("Title").fill("Typed and left")
    page.goto("/services/")
    assert Request.objects.get(pk=queued.pk).title != "Typed and left"

    edit(page, queued)
    expect(page.locator("#kept")).to_contain_text(
        f"You left changes to {queued.key} without saving them."
    )
    expect(page.get_by_text("The request has changed since")).to_be_hidden()
    restore(page)
    expect(page.get_by_label("Title")).to_have_value("Typed and left")
    page.get_by_role("button", name="Save changes").click()
    page.get_by_text("Its signatures stay valid.").wait_for()
    assert Request.objects.get(pk=queued.pk).title == "Typed and left"

    edit(page, queued)
    expect(page.locator("#kept")).to_be_hidden()
    assert page.problems == []


def test_changes_survive_the_end_of_the_session(queued, page, liaison, live_server):
    edit(page, queued)
    page.get_by_label("Purpose").fill("Two lines\nwith <b>marks</b>")
    names = page.get_by_label("Name", exact=True)
    stages = names.count()
    page.get_by_role("button", name="Add stage").click()
    expect(names).to_have_count(stages + 1)
    names.last.fill("added")
    page.context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Save changes").click()
    page.get_by_text("You are logged out.").wait_for()
    page.context.add_cookies([session_cookie(liaison, live_server.url)])

    edit(page, queued)
    restore(page)
    expect(page.get_by_label("Purpose")).to_have_value("Two lines\nwith <b>marks</b>")
    expect(page.get_by_label("Name", exact=True).last).to_have_value("added")


def test_changes_overwrite_nothing_and_can_be_discarded(queued, page, liaison):
    edit(page, queued)
    page.get_by_label("Title").fill("Mine")
    page.goto("/services/")
    theirs = replace(content_of(queued), title="Theirs")
    save_draft(request=queued, content=theirs, version=queued.version, by=liaison, at=LATER)

    edit(page, queued)
    expect(page.get_by_text("The request has changed since")).to_be_visible()
    restore(page)
    page.get_by_role("button", name="Save changes").click()
    page.get_by_text("Your input is kept below.").wait_for()
    assert Request.objects.get(pk=queued.pk).title == "Theirs"

    edit(page, queued)
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#kept")).to_be_hidden()
    edit(page, queued)
    expect(page.locator("#kept")).to_be_hidden()


def test_another_user_of_the_browser_is_not_offered_them(queued, page, nova, live_server):
    edit(page, queued)
    page.get_by_label("Title").fill("Mine")
    page.goto("/services/")
    other = people.person("other", (Role.LIAISON, nova))
    page.context.add_cookies([session_cookie(other, live_server.url)])
    edit(page, queued)
    expect(page.get_by_label("Title")).to_have_value(queued.title)
    expect(page.locator("#kept")).to_be_hidden()
