"""A real Chromium against a live server of the test's own database."""

import os
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from tests.factories import people

# Playwright's sync interface runs an event loop in this thread, which Django would take for async code.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

#: How long a page is waited for, in milliseconds: far longer than any takes on a machine with other things to do.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_as(chromium, live_server):
    """Log a person in and return a page at the home page; `javascript=False` for a browser without it."""
    contexts: list[BrowserContext] = []

    def open_as(user, *, width: int = 1280, scheme: str = "light", javascript: bool = True) -> Page:
        context = chromium.new_context(
            base_url=live_server.url,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=javascript,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.problems = problems
        page.goto("/accounts/login/")
        page.get_by_label("Username").fill(user.username)
        page.get_by_label("Password").fill(people.PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(live_server.url + "/")
        return page

    yield open_as
    for context in contexts:
        context.close()


@pytest.fixture
def assert_accessible():
    """Fail on any violation of axe-core, and on sideways scrolling of the page."""
    axe = Axe()

    def check(page: Page) -> None:
        page.wait_for_load_state()  # a click waits for the next page to begin, not for its end
        expect(page.locator(".htmx-request")).to_have_count(0)  # what is loading is pale
        found = axe.run(page).response["violations"]
        violations = [f"{v['id']} ({v['impact']}): {v['help']}: {[n['target'] for n in v['nodes']][:3]}" for v in found]
        assert violations == [], page.url
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{page.url} scrolls sideways by {overflow} px"

    return check
