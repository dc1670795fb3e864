"""How long the impact of an outage takes to count: `python -m benchmarks.impact [--jobs N]`.

An incident of six hours takes down the service of two clusters while about 100,000 jobs (N) end
there; the three days before, as busy, are its baseline. Prints one JSON object last: `seconds` of
the first count, `again` of a recount, which must find no difference, and the jobs that met the
incident.
"""

import argparse
import json
import time
from datetime import UTC, datetime, timedelta

from benchmarks.database import database, set_up_django

HOURS = 6
DAYS = 3 + 2 * HOURS / 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="that end during the incident")
    arguments = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url)
        print(json.dumps(run(arguments.jobs)))


def run(jobs: int) -> dict[str, object]:
    from django.db import connection

    from apps.diagnosis.domain.causes.impact.recount import recount_impact
    from apps.diagnosis.models import ImpactGroup
    from apps.statusboard.domain.states.services import create_service
    from apps.statusboard.enums import INCIDENT_STATES, Monitoring, Resolution
    from apps.statusboard.models import Incident
    from benchmarks.job_rows import Jobs

    now = datetime.now(UTC)
    filled = Jobs(now, days=DAYS)
    filled.add(int(jobs * 24 * DAYS / HOURS))
    begun = now - timedelta(days=DAYS)
    service = create_service(
        slug="batch", name="Batch", by="benchmark", at=begun, monitoring=Monitoring.MANUAL
    )
    for cluster in filled.clusters:
        cluster.service = service
        cluster.save()
    start = now - timedelta(hours=1.5 * HOURS)
    incident = Incident.objects.create(
        service=service,
        dedup_key="benchmark",
        episode_started_at=start,
        started_at=start,
        ended_at=start + timedelta(hours=HOURS),
        state=INCIDENT_STATES[0],
        title="Outage",
        opened_by="benchmark",
        closed_by="benchmark",
        resolution=Resolution.MANUAL,
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    seconds, _ = timed(lambda: recount_impact(incident_id=incident.pk, at=now))
    again, differs = timed(lambda: recount_impact(incident_id=incident.pk, at=now))
    groups = ImpactGroup.objects.filter(impact__incident=incident)
    met = sum(group.contained + group.containing + group.partial for group in groups)
    return {
        "seconds": seconds,
        "again": again,
        "differs": differs,
        "met": met,
        "groups": len(groups),
    }


def timed(work):
    begun = time.perf_counter()
    result = work()
    return round(time.perf_counter() - begun, 2), result


if __name__ == "__main__":
    main()
