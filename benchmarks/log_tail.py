"""The last lines of a huge log: `python -m benchmarks.log_tail --gigabytes 4`.

Prints one JSON object last, medians: `tail_ms` to read the last 1,000 lines in process, `page_ms`
for the page of the log, and `middle_ms` for that page in the middle, which is one line of
gigabytes.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.database import database, set_up_django

LINE = "%MSG-i Event:  reco 22-Nov-2026 06:23:59 UTC  run: 32480 subRun: 17 event: {0}\n"
END = "[FATAL] Auth failed\njob script exit status 65\n"
LINES = 100_000
ROUNDS = 25


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(
            base, url, LOG_ROOTS=str(base), PORTAL_URL="http://localhost", LOG_LEVEL="ERROR"
        )
        path = base / "huge.out"
        write_log(path, int(options.gigabytes * 1e9))
        print(json.dumps(measured(path)))


def write_log(path: Path, size: int) -> None:
    """Write a log of this size, sparse but for its last lines."""
    lines = "".join(LINE.format(number) for number in range(LINES)).encode() + END.encode()
    with path.open("wb") as file:
        file.seek(max(0, size - len(lines)))
        file.write(lines)


def measured(path: Path) -> dict[str, object]:
    from django.conf import settings
    from django.test import Client

    from apps.accounts.enums import Role
    from apps.accounts.models import Membership, User
    from apps.clusters.models import Cluster
    from apps.diagnosis.engine.logs.tail import lines_of, read_back
    from apps.jobs.models import Job

    settings.STORAGES["staticfiles"] = {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
    }
    at = datetime.now(UTC)
    cluster = Cluster.objects.create(
        name="alps", scheduler="slurm", options={"log_owners": str(os.getuid())}
    )
    times = {
        "submitted_at": at - timedelta(hours=2),
        "started_at": at - timedelta(hours=1),
        "ended_at": at,
    }
    job = Job.objects.create(
        cluster=cluster,
        job_id="1",
        raw_id=1,
        spool_id="1",
        state="failed",
        collected_at=at,
        log_path=str(path),
        **times,
    )
    user = User.objects.create_user("shifter")
    Membership.objects.create(user=user, role=Role.SHIFTER)
    client = Client()
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    address = f"/jobs/{job.pk}/log/"
    middle = f"{address}?at={path.stat().st_size // 2}"
    for url in (address, middle):
        assert client.get(url).status_code == 200
    assert b"job script exit status 65" in client.get(address).content
    descriptor = os.open(path, os.O_RDONLY)
    return {
        "gigabytes": round(path.stat().st_size / 1e9, 2),
        "tail_ms": _median_ms(lambda: lines_of(read_back(descriptor, lines=1000))),
        "page_ms": _median_ms(lambda: client.get(address)),
        "middle_ms": _median_ms(lambda: client.get(middle)),
    }


def _median_ms(call) -> float:
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begun))
    return round(median(taken), 2)


if __name__ == "__main__":
    main()
