"""A portal with a little data behind Keycloak, and browsers in which users log in."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, Route, sync_playwright

from benchmarks.portal import Portal
from benchmarks.single_sign_on import realm
from benchmarks.single_sign_on.keycloak import PASSWORD, Keycloak

TITLE = "Muons that only NOvA may see"
#: The user of the portal, with a password there, who has a namesake at the provider.
LOCAL = "ida"
SESSION_HOURS = 1
PATIENCE_MILLISECONDS = 15_000
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


class Site:
    """The portal, its provider and a browser."""

    def __init__(self, portal: Portal, keycloak: Keycloak, browser: Browser) -> None:
        self.keycloak = keycloak
        self.url = portal.environment["PORTAL_URL"]
        self._log = portal.base / "web.log"
        self._browser = browser

    @contextmanager
    def new_browser(self) -> Iterator[Page]:
        """Yield an empty page of a browser that has no cookies yet."""
        context = self._browser.new_context(base_url=self.url, ignore_https_errors=True)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        try:
            yield page
        finally:
            context.close()

    def go_to_provider(self, page: Page) -> None:
        page.goto("/requests/")
        page.get_by_role("link", name="Log in with Lab login").click()

    def log_in(self, page: Page, username: str) -> None:
        """Log in on the provider's page, wherever that leads."""
        self.go_to_provider(page)
        self.send_password(page, username)

    def send_password(self, page: Page, username: str) -> None:
        """Send the provider's form."""
        page.locator("#username").fill(username)
        page.locator("#password").fill(PASSWORD)
        page.locator("#kc-login").click()
        page.wait_for_load_state()

    def callback_of(self, page: Page, username: str) -> str:
        """Send the provider's form; return where that leads, without going there."""
        addresses: list[str] = []

        def stay(route: Route) -> None:
            answer = route.fetch(max_redirects=0)
            addresses.append(answer.headers["location"])
            route.fulfill(body="The provider has answered.")

        page.route("**/login-actions/authenticate**", stay)
        self.send_password(page, username)
        return addresses[0]

    def log_in_with_password(self, page: Page, username: str) -> None:
        page.goto("/accounts/login/")
        page.get_by_label("Username").fill(username)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_load_state()

    def is_logged_in(self, page: Page) -> bool:
        page.goto("/accounts/settings/")
        return page.url == f"{self.url}/accounts/settings/"

    def newest_reason(self) -> str:
        """Return why the newest login by the provider failed, as the portal has logged it."""
        lines = [line for line in self._log.read_text().splitlines() if "reason=" in line]
        return lines[-1].partition("reason=")[2].strip('"') if lines else ""


def roles_of(username: str) -> set[str]:
    """Return the roles of an account, such as `liaison:NOVA`."""
    from apps.accounts.models import Membership

    roles = set()
    for membership in Membership.objects.filter(user__username=username):
        key = membership.experiment.key if membership.experiment else ""
        roles.add(f"{membership.role}:{key}".rstrip(":"))
    return roles


def create_data() -> None:
    """Create a request of NOvA, and an account with a password."""
    from tests.factories import people, requests

    nova = people.nova()
    people.dune()
    liaison = people.liaison_of(nova)
    approver = people.approver()
    requests.request_in("queued", by=liaison, experiment=nova, approver=approver, title=TITLE)
    people.person(LOCAL, ("approver", None))


@contextmanager
def site(portal: Portal, keycloak: Keycloak) -> Iterator[Site]:
    """Set both up as the guide says, and run them."""
    keycloak.start(realm.realm())
    keycloak.create_client(realm.client(portal.environment["PORTAL_URL"]))
    directory: Path = portal.base / "etc"
    directory.mkdir()
    portal.environment |= realm.settings(directory, keycloak.issuer, keycloak.client_secret())
    portal.environment["OIDC_SESSION_HOURS"] = str(SESSION_HOURS)
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        portal.environment.pop(variable, None)
    portal.environment["SSL_CERT_FILE"] = str(keycloak.certificate)
    portal.environment["STATIC_DIR"] = str(portal.base / "static")
    portal.manage("collectstatic", "--noinput", "--verbosity", "0")
    os.environ |= portal.environment | {
        "DJANGO_SETTINGS_MODULE": "opsportal.settings",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # Playwright runs an event loop in this thread
    }
    import django

    django.setup()
    create_data()
    with portal.serving(), sync_playwright() as playwright:
        executable = shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        try:
            yield Site(portal, keycloak, browser)
        finally:
            browser.close()
