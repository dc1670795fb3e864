"""How fast the pages of hosts and probes are: `python -m benchmarks.host_pages [--results N]`.

Fills the database with hosts of 20 clusters, their probe jobs of 14 days with the results, the
newest result of each host and probe, and exclusions, and visits each page and list as a shifter.
Prints one JSON object last: p95 of all visits in milliseconds, and for each address the median and
the slowest; also how long the planning of probe jobs takes, and its queries. With `--directory` the
database is kept, and used again.
"""

import argparse
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.database import database, set_up_django
from benchmarks.page_visits import visit_pages

CLUSTERS = 20
PROBES = ("cvmfs", "storage", "catalogue", "database", "scratch", "clock")
HOSTS = """
INSERT INTO clusters_host (cluster_id, name, cpu_model, address, listed_at)
SELECT cluster.id, 'wn-' || number || '.site' || cluster.id || '.example.org', '', '', %(at)s
FROM clusters_cluster cluster, generate_series(1, %(hosts)s) number
"""
EXCLUSIONS = """
INSERT INTO hosts_hostexclusion (cluster_id, host, reason, automatic, failed_jobs, ended_jobs, by,
  started_at, expires_at, ended_at, ended_as, ended_by, end_reason)
SELECT cluster.id, 'wn-' || number, '9 of 9 jobs failed.', true, 9, 9, 'portal',
  %(at)s - number * interval '1 hour', %(at)s + interval '1 day',
  CASE WHEN number > 25 THEN %(at)s - number * interval '1 hour' + interval '20 min' END,
  CASE WHEN number > 25 THEN 'probed' ELSE '' END, '', ''
FROM clusters_cluster cluster, generate_series(1, %(exclusions)s) number
"""
#: Of an excluded host 100 jobs, of the others as many as the number of results allows.
PROBE_JOBS = """
INSERT INTO hosts_probejob (due_at, attempts, last_error, cluster_id, host, name, asked,
  state, spool_id, planned_at, sent_at, ended_at, good)
SELECT %(at)s, 1, '', cluster.id, 'wn-' || host, format('probe-%%s-%%s-%%s', cluster.id, host, round),
  %(asked)s::jsonb, 'ended', host::text,
  %(at)s - round * interval '1 hour', %(at)s - round * interval '1 hour',
  %(at)s - round * interval '1 hour' + interval '30 s', (host + round) %% 50 > 0
FROM clusters_cluster cluster, generate_series(1, %(hosts)s) host,
  generate_series(1, %(rounds)s) round
"""
OF_EXCLUSIONS = """
UPDATE hosts_probejob job SET exclusion_id = exclusion.id FROM hosts_hostexclusion exclusion
WHERE exclusion.cluster_id = job.cluster_id AND exclusion.host = job.host
  AND exclusion.ended_at IS NULL
"""
RESULTS = """
INSERT INTO hosts_proberesult (job_id, probe_id, good, excused, seconds, message, measured_at)
SELECT job.id, probe.id, job.good OR probe.name <> 'cvmfs', false, 2, 'can be read', job.ended_at
FROM hosts_probejob job, hosts_probe probe
"""
STATES = """
INSERT INTO hosts_measuredstate (cluster_id, host, probe_id, good, message, measured_at, since)
SELECT DISTINCT ON (job.cluster_id, job.host, result.probe_id) job.cluster_id, job.host,
  result.probe_id, result.good, result.message, result.measured_at, result.measured_at
FROM hosts_proberesult result JOIN hosts_probejob job ON job.id = result.job_id
ORDER BY job.cluster_id, job.host, result.probe_id, result.measured_at DESC
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--results", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=10, help="of each page")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(base, url, STATIC_DIR=str(base / "static"), LOG_LEVEL="ERROR")
        from django.core.management import call_command

        from apps.hosts.models import HostExclusion, MeasuredState, ProbeResult

        call_command("collectstatic", verbosity=0, interactive=False)
        if not ProbeResult.objects.exists():
            fill(options.hosts, options.results)
        figures = {
            "results": ProbeResult.objects.count(),
            "states": MeasuredState.objects.count(),
            "exclusions": HostExclusion.objects.count(),
            **visit_pages(addresses(), options.visits),
            **measure_planning(),
        }
        print(json.dumps(figures))


def fill(hosts: int, results: int) -> None:
    from django.db import connection

    from apps.clusters.models import Cluster, Site
    from apps.hosts.models import Probe

    at = datetime.now(UTC)
    for number in range(CLUSTERS):
        site = Site.objects.create(name=f"Site {number}")
        Cluster.objects.create(name=f"cluster{number}", scheduler="slurm", submits=True, site=site)
    Probe.objects.update(active=True)
    rounds = round(results / len(PROBES) / hosts)
    values = {
        "at": at,
        "hosts": hosts // CLUSTERS,
        "rounds": rounds,
        "exclusions": 100,
        "asked": json.dumps(PROBES),
    }
    with connection.cursor() as cursor:
        for statement in (HOSTS, EXCLUSIONS, PROBE_JOBS, OF_EXCLUSIONS, RESULTS, STATES):
            cursor.execute(statement, values)
        cursor.execute("VACUUM ANALYZE")


def addresses() -> list[str]:
    """Return the pages and lists, each with its filters."""
    from apps.hosts.models import HostExclusion

    exclusion = HostExclusion.objects.filter(ended_at=None).latest("pk")
    return [
        "/probes/",
        "/probes/?page=40",
        "/probes/?site=Site+3&probe=cvmfs",
        "/probes/?site=Site+3&probe=cvmfs&page=9",
        "/services/",
        "/excluded-hosts/",
        "/excluded-hosts/?cluster=cluster3&page=2",
        f"/excluded-hosts/{exclusion.pk}/",
        f"/excluded-hosts/of/{exclusion.host}/",
        "/api/v1/hosts/measured-states/",
        "/api/v1/hosts/measured-states/?site=Site+3&good=false",
        f"/api/v1/hosts/measured-states/?host={exclusion.host}",
        "/api/v1/hosts/exclusions/?open=true",
    ]


def measure_planning() -> dict[str, object]:
    """Plan the probe jobs of all clusters, of which some are due, and return what it took."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from apps.hosts.domain.probes.probe_jobs import plan_probe_jobs

    with CaptureQueriesContext(connection) as queries:
        started = time.perf_counter()
        planned = plan_probe_jobs(at=datetime.now(UTC) + timedelta(hours=23))
        seconds = time.perf_counter() - started
    return {"planned": planned, "planning_s": round(seconds, 2), "planning_queries": len(queries)}


if __name__ == "__main__":
    main()
