"""What an unchanged snapshot of a long queue costs: `python -m benchmarks.live_queue --jobs 30000`.

Prints one JSON object last: `rows_written` and `seconds` of an unchanged reading (the bar: 0, and
less than 1 s), and
those of one in which a tenth of the jobs started. Then the queues of so many clusters are read as
in ten
minutes, every two, each time with another tenth running: `round_seconds` of the slowest round (the
bar:
120), `memory_mb`, the peak.
"""

import argparse
import json
import resource
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from benchmarks.database import database, set_up_django

ARRAY = 50
ROUNDS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--clusters", type=int, default=25)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url, LOG_LEVEL="ERROR")
        print(json.dumps(measured(options.jobs) | rounds(options.clusters, options.jobs)))


def measured(count):
    from apps.accounts.domain.experiments import ensure_experiment
    from apps.clusters.models import Cluster
    from apps.clusters.schedulers.base import CurrentState

    at = datetime.now(UTC)
    ensure_experiment(key="NOVA", name="NOvA", by="benchmark", at=at)
    cluster = Cluster.objects.create(name="alps", scheduler="slurm")
    snapshot = list(queue(count, at))
    first = stored(cluster, snapshot, at)
    same = stored(cluster, snapshot, at + timedelta(minutes=2))
    moved = [
        replace(one, state=CurrentState.RUNNING, reason="") if number % 10 == 0 else one
        for number, one in enumerate(snapshot)
    ]
    changed = stored(cluster, moved, at + timedelta(minutes=4))
    return {"jobs": count, **same, "first": first, "tenth_started": changed}


def rounds(clusters, count):
    """Read all queues again and again; return the seconds of the slowest round."""
    from apps.clusters.models import Cluster
    from apps.clusters.schedulers.base import CurrentState

    at = datetime.now(UTC)
    made = [
        Cluster.objects.create(name=f"cluster{number}", scheduler="slurm")
        for number in range(clusters)
    ]
    snapshot, seconds = list(queue(count, at)), []
    for number in range(ROUNDS):
        moved = [
            replace(one, state=CurrentState.RUNNING, reason="") if place % 10 == number else one
            for place, one in enumerate(snapshot)
        ]
        seconds.append(
            sum(
                stored(job_list, moved, at + timedelta(minutes=2 * number))["seconds"]
                for job_list in made
            )
        )
    return {
        "clusters": clusters,
        "round_seconds": round(max(seconds), 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def queue(count, at):
    """Yield a reading with one entry per job, as an adapter that does not sum arrays gives it."""
    from apps.clusters.schedulers.base import CurrentJobs, CurrentState

    for number in range(count):
        yield CurrentJobs(
            spool_id=str(number // ARRAY),
            submitted_at=at - timedelta(seconds=number // ARRAY),
            state=CurrentState.HELD if number % 100 == 0 else CurrentState.QUEUED,
            jobs=1,
            account="nova" if number % 3 else f"user{number % 40}",
            reason="JobHeldUser"
            if number % 100 == 0
            else ("Priority", "Resources", "Dependency")[number % 3],
        )


def stored(cluster, snapshot, at):
    """Store a reading; return seconds and how many rows of counts and live jobs it wrote."""
    from django.db import connection

    from apps.jobs.domain.live.queue import store_queue

    before, begun = written(connection), time.perf_counter()
    store_queue(cluster=cluster, jobs=snapshot, origins={}, at=at)
    seconds = time.perf_counter() - begun
    return {"rows_written": written(connection) - before, "seconds": round(seconds, 3)}


def written(connection):
    """Return how many rows of the queue were ever written;
    the time of the reading is not among them.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables "
            "WHERE relname IN ('jobs_livejobs', 'jobs_queuecount')"
        )
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()
