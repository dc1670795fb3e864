"""Log in to the portal by a real Keycloak in a real Chromium, and check what the docs promise.

    python -m benchmarks.single_sign_on [--only WORD]

With Java 17 or newer, Maven, which fetches Keycloak once (180 MB), and chromium-headless-shell.
The realm has users in groups; client and settings are those of docs/single-sign-on.md, *Keycloak,
step by step*. Each check opens a new browser and logs in on Keycloak's own page. Between logins,
users, groups, keys and the client are changed at Keycloak by its admin API.

Prints a line for each check, with what was seen. Exits with 1 if one failed.
"""

import argparse
import sys
import time
from collections.abc import Callable

from playwright.sync_api import Error

from benchmarks.portal import portal
from benchmarks.single_sign_on.checks import CHECKS
from benchmarks.single_sign_on.keycloak import VERSION, Keycloak
from benchmarks.single_sign_on.site import Site, site
from dev.messages import SetupError, fail


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="WORD", default="", help="the checks with it in the name")
    options = parser.parse_args()
    checks = [check for check in CHECKS if options.only in check.__name__]
    try:
        with portal() as running:
            keycloak = Keycloak(running.base)
            with site(running, keycloak) as portal_site:
                print(f"Keycloak {VERSION}")
                failures = sum(not passes(check, portal_site) for check in checks)
    except SetupError as error:
        return fail(error)
    print(f"{len(checks) - failures} passed, {failures} failed")
    return int(failures > 0)


def passes(check: Callable[[Site], str], portal_site: Site) -> bool:
    """Run a check and print its line."""
    began = time.monotonic()
    try:
        seen = check(portal_site)
        outcome = "ok"
    except (AssertionError, Error, OSError) as error:
        seen = f"{type(error).__name__}: {error}".partition("\n")[0]
        outcome = "FAILED"
    name = check.__name__.replace("_", " ")
    print(f"{outcome:6} {time.monotonic() - began:5.1f} s  {name}: {seen}", flush=True)
    return outcome == "ok"


if __name__ == "__main__":
    sys.exit(main())
