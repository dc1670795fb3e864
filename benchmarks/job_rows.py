"""Made-up finished jobs: 90 days of several experiments on several sites, written in bulk,
and counted.
"""

import random
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection

from apps.accounts.domain.experiments import ensure_experiment
from apps.clusters.models import Cluster, Site
from apps.jobs.domain.statistics.blocks import compact_days
from apps.jobs.domain.statistics.monthly import compact_months
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, DirtyHour

DAYS = 90
EXPERIMENTS, SITES, HOSTS, REQUESTS, USERS = 12, 8, 2000, 400, 150
MODELS = ("EPYC 7543", "EPYC 7502", "EPYC 7313", "Xeon 6248R", "Xeon E5-2680 v4")
STAGES = ("generation", "simulation", "reconstruction", "merge", "keep-up")
COLUMNS = (
    "cluster_id",
    "job_id",
    "raw_id",
    "spool_id",
    "attempt",
    "state",
    "exit_code",
    "signal",
    "submitted_at",
    "started_at",
    "ended_at",
    "host",
    "site_id",
    "cpus",
    "cpu_seconds",
    "wall_seconds",
    "max_memory_bytes",
    "requested_memory_bytes",
    "partition",
    "account",
    "user",
    "name",
    "comment",
    "reason",
    "cancelled_by",
    "work_dir",
    "submit_line",
    "stdout_path",
    "stderr_path",
    "cpu_model",
    "host_address",
    "suspended_seconds",
    "log_path",
    "error_log_path",
    "log_path_source",
    "experiment_id",
    "claimed_key",
    "proof",
    "request_key",
    "stage",
    "release",
    "collected_at",
    "record_digest",
)

_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE tablename = %s AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""


class Jobs:
    """Writes jobs that finished in the days before `at`."""

    def __init__(self, at, days=DAYS):
        self.at, self.days = at, days
        self.choose = random.Random(15)
        self.experiments = [
            ensure_experiment(key=f"EXP{n:02d}", name=f"Experiment {n}", by="fill", at=at)
            for n in range(EXPERIMENTS)
        ]
        sites = [Site.objects.create(name=f"Site {n}") for n in range(SITES)]
        self.clusters = [
            Cluster.objects.create(name=f"cluster{n}", scheduler="slurm", site=sites[n])
            for n in range(2)
        ]
        Collection.objects.bulk_create(
            Collection(cluster=cluster, collected_until=at) for cluster in self.clusters
        )
        self.hosts = [
            (f"wn-{n:04d}", sites[int(SITES * (n / HOSTS) ** 2)].pk, MODELS[n % 7 % 5])
            for n in range(HOSTS)
        ]

    def add(self, count):
        """COPY so many jobs, spread over the days as requests run: each for a week,
        thousands of jobs an array.
        """
        copied = f"COPY jobs_job ({', '.join(map(_quoted, COLUMNS))}) FROM STDIN"
        with (
            connection.cursor() as cursor,
            without_indexes(cursor, "jobs_job"),
            cursor.copy(copied) as copy,
        ):
            for number in range(count):
                copy.write_row(self.row(number, count))

    def row(self, number, count):
        choose = self.choose.random
        ended = self.at - timedelta(days=self.days * (1 - number / count), seconds=choose() * 600)
        day = int(self.days * number / count)
        request = (day // 7 * 31 + int(40 * choose() ** 2)) % REQUESTS
        experiment = self.experiments[request % EXPERIMENTS]
        stage = STAGES[int(len(STAGES) * choose())]
        host, site, model = self.hosts[int(HOSTS * choose())]
        wall = 600 + int(14_000 * choose() ** 2)
        failed = choose() < (0.5 if host == "wn-0306" else 0.06)
        state, code, signal = (
            ("failed", self.choose.choice((1, 65, 88, 137, 139)), 0)
            if failed
            else ("completed", 0, 0)
        )
        if not failed and choose() < 0.02:
            state = "cancelled"
        user = f"user{request % USERS:03d}"
        started = ended - timedelta(seconds=wall)
        return (
            self.clusters[number % 2].pk, f"{number}", number, f"{number // 500}", 1, state, code, signal,
            started - timedelta(seconds=int(7200 * choose() ** 3)), started, ended, host, site, 1 + number % 4,
            wall * (1 + number % 4) * (0.5 + 0.45 * choose()), wall, int(3e9 * choose()), 3 << 30, "grid",
            experiment.key.lower(), user, stage, "", "None", "", "/work", "", "", "", model, "", 0, "", "", "",
            experiment.pk, "", "account", f"{experiment.key}-{request:04d}", stage, f"v09_{request % 5:02d}",
            self.at, "",
        )  # fmt: skip

    def count(self):
        """Write the totals and statistics of all hours."""
        first = self.at.replace(minute=0, second=0, microsecond=0) - timedelta(
            days=self.days, hours=1
        )
        DirtyHour.objects.bulk_create(
            DirtyHour(hour=first + timedelta(hours=n)) for n in range(int(24 * self.days) + 2)
        )
        while recompute_dirty_hours(at=self.at) or compact_days(at=self.at):
            pass
        while compact_months(at=self.at):
            pass
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


@contextmanager
def without_indexes(cursor, table):
    """Make the indexes of a table after its rows: else each is written at random places, row by
    row.
    """
    cursor.execute(_INDEXES, [table])
    indexes = cursor.fetchall()
    for name, _ in indexes:
        cursor.execute(f"DROP INDEX {_quoted(name)}")
    yield
    cursor.execute("SET maintenance_work_mem = '512MB'")
    for _, definition in indexes:
        cursor.execute(definition)


def _quoted(name):
    return f'"{name}"'
