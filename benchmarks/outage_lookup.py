"""How long it takes to tell which outages a job met:
`python -m benchmarks.outage_lookup [--incidents N]`.

200 services with 10,000 incidents (N) over a year; each question names five services and a run of
up to a day. The answer reads no jobs, so their number does not matter. Prints one JSON object last:
`p95_ms` and `slowest_ms` of 2,000.
"""

import argparse
import json
import random
import statistics
import time
from datetime import UTC, datetime, timedelta

from benchmarks.database import database, set_up_django

SERVICES, QUESTIONS, YEAR = 200, 2_000, timedelta(days=365)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--incidents", type=int, default=10_000)
    arguments = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url)
        print(json.dumps(run(arguments.incidents)))


def run(incidents: int) -> dict[str, object]:
    from apps.statusboard.domain.board.outages import outages_during
    from apps.statusboard.domain.states.history import rebuild
    from apps.statusboard.domain.states.services import create_service
    from apps.statusboard.enums import INCIDENT_STATES, Monitoring, Resolution
    from apps.statusboard.models import Incident, IncidentChange, StateInterval

    now, choose = datetime.now(UTC), random.Random(16)
    services = [
        create_service(
            slug=f"s{n}", name=f"s{n}", by="benchmark", at=now - YEAR, monitoring=Monitoring.MANUAL
        )
        for n in range(SERVICES)
    ]

    def incident(number: int) -> Incident:
        start = now - YEAR * choose.random()
        return Incident(
            service=services[number % SERVICES],
            dedup_key=str(number),
            episode_started_at=start,
            started_at=start,
            ended_at=start + timedelta(minutes=5 + 600 * choose.random() ** 3),
            state=choose.choice(INCIDENT_STATES),
            title="Outage",
            opened_by="benchmark",
            closed_by="benchmark",
            resolution=Resolution.MANUAL,
        )

    made = Incident.objects.bulk_create(incident(number) for number in range(incidents))
    IncidentChange.objects.bulk_create(
        IncidentChange(incident=one, at=one.started_at, state=one.state) for one in made
    )
    rebuild(service_ids=[service.pk for service in services])
    times = []
    for _ in range(QUESTIONS):
        service_ids = [service.pk for service in choose.sample(services, 5)]
        start = now - YEAR * choose.random()
        begun = time.perf_counter()
        outages_during(service_ids, start, start + timedelta(hours=24 * choose.random()), now)
        times.append(1000 * (time.perf_counter() - begun))
    return {
        "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        "slowest_ms": round(max(times), 1),
        "incidents": incidents,
        "intervals": StateInterval.objects.count(),
    }


if __name__ == "__main__":
    main()
