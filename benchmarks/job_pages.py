"""How fast pages, explorer questions and API lists of jobs are: `python -m benchmarks.job_pages --jobs 1000000`.

Prints one JSON object last: `p95_ms` of all requests, `slowest`, and what filling took.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from statistics import quantiles

from django.core.management import call_command

from benchmarks.database import database, set_up_django

QUESTIONS = [
    f"/statistics/?measure={measure}&by={by}&period={period}"
    for period in ("24h", "7d", "30d", "90d")
    for measure, by in (
        ("wasted_core_hours", "verdict,cause"),
        ("failures", "exit_code,signal"),
        ("failure_rate", "site,request"),
        ("failure_rate", "host"),
        ("cpu_efficiency", "stage,release,cpu_model"),
        ("queue_time", "cluster,hour"),
        ("core_hours", "user"),
        ("jobs", "hour,weekday"),
        ("memory", "request,stage"),
    )
]
PAGES = ["/jobs/", "/jobs/?state=any_failure", "/jobs/?host=wn-0306", "/jobs/?user=user007"]
LISTS = [
    "/api/v1/jobs/",
    "/api/v1/jobs/?state=any_failure&experiment=EXP03",
    *(each.replace("/statistics/", "/api/v1/statistics/") for each in QUESTIONS),
    "/api/v1/statistics/?by=host&period=90d&exit_code=65",
    "/api/v1/statistics/?by=stage&period=90d&host=wn-0306",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=3)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url, STATIC_DIR=str(base / "static"), PORTAL_URL="http://localhost", LOG_LEVEL="ERROR")
        call_command("collectstatic", verbosity=0, interactive=False)
        print(json.dumps(measured(options.jobs, options.visits)))


def measured(count, visits):
    from django.test import Client

    from apps.accounts.enums import Role
    from apps.accounts.models import Membership, User
    from benchmarks.job_rows import Jobs

    jobs = Jobs(datetime.now(UTC))
    begun = time.monotonic()
    jobs.add(count)
    copied = time.monotonic()
    jobs.count()
    counted = time.monotonic()
    user = User.objects.create_user("shifter")
    Membership.objects.create(user=user, role=Role.SHIFTER)
    client = Client()
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    taken = {}
    for address in [*PAGES, *QUESTIONS, *LISTS]:
        assert client.get(address).status_code == 200, address
        taken[address] = [_seconds(client, address) for _ in range(visits)]
    times = sorted(1000 * seconds for each in taken.values() for seconds in each)
    best = {address: round(1000 * min(each)) for address, each in taken.items()}
    slowest = sorted(best, key=best.get, reverse=True)[:8]
    return {
        "jobs": count,
        "p95_ms": round(quantiles(times, n=20)[-1]),
        "p50_ms": round(quantiles(times, n=2)[0]),
        "slowest": {address: best[address] for address in slowest},
        "copied_per_s": round(count / (copied - begun)),
        "counted_per_s": round(count / (counted - copied)),
    }


def _seconds(client, address):
    begun = time.perf_counter()
    client.get(address)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
