"""Visit pages as a shifter, and measure how long they take, for the benchmarks of pages."""

import os
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any


def shifter() -> Any:
    """Return the user who visits the pages."""
    from apps.accounts.enums import Role
    from apps.accounts.models import Membership, User

    user, _ = User.objects.get_or_create(username="visitor")
    Membership.objects.get_or_create(user=user, role=Role.SHIFTER)
    return user


def visit_pages(addresses: Sequence[str], visits: int) -> dict[str, object]:
    """Visit each address once unmeasured, then as often as asked for, then once to count queries.

    Returns p95 of all measured visits and, for each address, median and slowest, in milliseconds,
    and the number of queries.
    """
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client = Client()
    client.force_login(shifter(), "django.contrib.auth.backends.ModelBackend")
    taken: dict[str, list[float]] = {}
    queries: dict[str, int] = {}
    for address in addresses:
        seconds = []
        for _ in range(visits + 1):
            started = time.perf_counter()
            response = client.get(address)
            seconds.append(time.perf_counter() - started)
            assert response.status_code == 200, (address, response.status_code)
        taken[address] = seconds[1:]
        with CaptureQueriesContext(connection) as captured:
            client.get(address)
        queries[address] = len(captured)
    every_visit = []
    for seconds in taken.values():
        every_visit += seconds
    pages = {}
    for address, seconds in taken.items():
        pages[address] = {
            "median_ms": round(1000 * median(seconds)),
            "slowest_ms": round(1000 * max(seconds)),
            "queries": queries[address],
        }
    return {
        "p95_ms": round(1000 * quantiles(every_visit, n=20)[-1]),
        "pages": pages,
        "load": os.getloadavg()[0],
    }
