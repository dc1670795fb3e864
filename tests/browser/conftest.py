"""A real Chromium, without windows, against a live server of the test's own database."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.core.servers.basehttp import ThreadedWSGIServer
from django.test import Client
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    expect,
    sync_playwright,
)

from apps.accounts.models import User
from tests.factories import people
from tests.frames import call_with_large_frame

# Playwright's sync interface runs an event loop in this thread, which Django would take for async
# code.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

#: How long a page is waited for, in milliseconds: far longer than any takes on a machine with other
#: things to do.
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
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):  # thousands: `Path.parents` takes half a second
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(autouse=True, scope="session")
def large_frames_of_the_server():
    """Let the threads of the live server answer as tests run, in memory for all their frames."""
    answer = ThreadedWSGIServer.process_request_thread

    def answer_with_large_frame(*arguments):
        call_with_large_frame(answer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadedWSGIServer, "process_request_thread", answer_with_large_frame)
        yield


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell"), args=ARGUMENTS
        )
        yield browser
        browser.close()


def log_in_by_form(page: Page, user: User) -> None:
    page.goto("/accounts/login/")
    page.get_by_label("Username").fill(user.username)
    page.get_by_label("Password").fill(people.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def session_cookie(user: User, url: str) -> dict[str, str]:
    """Log the user in, and return the cookie that says so to the server at the URL."""
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": url}


#: The open pages of the test.
PAGES = pytest.StashKey[list[Page]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add to a failure what each page says and which errors it had."""
    report = yield
    pages = item.stash.get(PAGES, [])
    if report.when == "call" and report.failed:
        report.sections += [(f"page {page.url}", state_of(page)) for page in pages]
    return report


def state_of(page: Page) -> str:
    """Return the errors of a page and what it says of itself."""
    messages = page.locator("[role=status]:visible, [role=alert]:visible, .notes:visible")
    try:
        said = messages.all_inner_texts()
    except Error as error:
        said = [str(error)]
    return "\n".join(["errors:", *page.problems, "messages:", *said])


@pytest.fixture
def open_page(chromium, live_server, request):
    """Return a blank page of a stranger; `javascript=False` for a browser without it."""
    contexts: list[BrowserContext] = []
    pages = request.node.stash.setdefault(PAGES, [])

    def open_page(*, width: int = 1280, scheme: str = "light", javascript: bool = True) -> Page:
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
        page.on(
            "console",
            lambda message: problems.append(message.text) if is_problem(message) else None,
        )
        page.problems = problems
        pages.append(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def open_as(open_page, live_server):
    """Return a blank page of this user's; the keywords are those of `open_page`."""

    def open_as(user: User, **options: Any) -> Page:
        page = open_page(**options)
        page.context.add_cookies([session_cookie(user, live_server.url)])
        return page

    return open_as


def is_problem(message: ConsoleMessage) -> bool:
    """Tell whether a message is an error.

    A page that is left gives up what htmx still loads, which is none.
    """
    return message.type == "error" and not message.text.startswith(
        ("htmx:sendAbort", "htmx:afterRequest")
    )


def wait_until_loaded(page: Page) -> None:
    """Wait for the page and for what it loads with htmx."""
    page.wait_for_load_state()  # a click waits for the next page to begin, not for its end
    expect(page.locator(".htmx-request, .htmx-swapping, .htmx-settling")).to_have_count(0)


def violations_of(page: Page, *, contrast: bool = True) -> list[str]:
    """Return the violations of axe-core on the page as it is, of whatever severity.

    Contrast takes most of the time, and is the same at any width.
    """
    options = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": contrast}}}
    violations = Axe().run(page, options=options).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {[n['target'] for n in v['nodes']][:3]}"
        for v in violations
    ]


def assert_no_sideways_scrolling(page: Page) -> None:
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"{page.url} scrolls sideways by {overflow} px"


#: Words of at most twelve letters in cells and headings of tables that stand on several lines.
_BROKEN_WORDS = """() => {
    const broken = [];
    for (const cell of document.querySelectorAll("main td, main th")) {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
            const element = texts.currentNode.parentElement;
            if (element.closest(".visually-hidden") || !element.checkVisibility()) continue;
            for (const word of texts.currentNode.data.matchAll(/(?<!\\S)\\S{2,12}(?!\\S)/g)) {
                const range = document.createRange();
                range.setStart(texts.currentNode, word.index);
                range.setEnd(texts.currentNode, word.index + word[0].length);
                const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
                if (lines.size > 1) broken.push(`${word[0]} in ${cell.textContent.trim().slice(0, 40)}`);
            }
        }
    }
    return broken;
}"""


def broken_words(page: Page) -> list[str]:
    """Return the short words in tables that are broken into lines, as if letters were stacked."""
    wait_until_loaded(page)
    words: list[str] = page.evaluate(_BROKEN_WORDS)
    return words


@pytest.fixture
def assert_accessible():
    """Fail on any violation of axe-core, and on sideways scrolling of the page."""

    def check(page: Page, *, contrast: bool = True) -> None:
        wait_until_loaded(page)
        assert violations_of(page, contrast=contrast) == [], page.url
        assert_no_sideways_scrolling(page)

    return check
