"""The portal's rows in the drill: many made-up ones, and requests that mark moments."""

import os
from datetime import datetime

from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Concat
from django.test import Client
from django.utils import timezone

from apps.accounts.enums import Role
from apps.accounts.models import Membership, User
from apps.clusters.models import Site
from apps.core.domain.health import check_readiness
from apps.production.domain.content.model import RequestContent
from apps.production.domain.requests.drafts import create_draft
from apps.production.models import Hold, Request
from apps.submission.models import KnownDatabase
from apps.submission.tasks import send_all
from benchmarks.job_rows import COLUMNS, Jobs
from benchmarks.production_rows import Filler

REQUESTS = 300
#: So many jobs are made one by one; the others are their copies, with other numbers and times.
JOBS = 20_000
COPY_EVERY_JOBS = 500_000
CONTENTS = 100_000
CONTENT_BYTES = 2000
#: The part of the size that contents of the archive have, which cannot be compressed again.
SHARE_OF_CONTENTS = 0.5
_COPIED = {
    "job_id": "(%(last)s + row_number() OVER ())::text",
    "raw_id": "%(last)s + row_number() OVER ()",
    "submitted_at": "submitted_at - %(last)s * interval '1 ms'",
}
_TABLES = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname
"""


class Rows:
    """Fills the database of the settings, and counts what is in it."""

    def __init__(self) -> None:
        at = timezone.now()
        filler = Filler(at, stages=2)
        filler.add(REQUESTS)
        # The jobs come with sites of the same names.
        Site.objects.update(name=Concat(Value("Grid "), "name"))
        Jobs(at).add(JOBS)
        self.experiment = filler.of[0]
        self.liaison = User.objects.get(username="liaison-0-0")
        self.operator = User.objects.create(username="operator")
        Membership.objects.create(user=self.operator, role=Role.APPROVER)
        self._jobs = JOBS
        with connection.cursor() as cursor:
            cursor.execute("CREATE UNLOGGED TABLE drill_noise (data bytea)")
            cursor.execute("INSERT INTO drill_noise VALUES (%s)", [os.urandom(16 << 20)])

    def fill(self, size_bytes: int) -> None:
        """Add contents, then jobs, until the database has this size."""
        while self.size_bytes() < size_bytes * SHARE_OF_CONTENTS:
            self.add_contents(CONTENTS)
        while (left := size_bytes - self.size_bytes()) > 0:
            self.add_jobs(max(JOBS, min(COPY_EVERY_JOBS, left // 1000)))
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")

    def size_bytes(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])

    def add_contents(self, count: int) -> None:
        """Add contents of the archive: bytes as random as compressed ones."""
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO archive_blob (sha256, kind, size_bytes, data)"
                " SELECT sha256(data), 'script', %(bytes)s, data FROM ("
                "  SELECT substr(noise.data, 1 + (random() * ((16 << 20) - %(bytes)s))::int,"
                "                %(bytes)s) AS data"
                "  FROM generate_series(1, %(count)s), drill_noise noise OFFSET 0) AS contents"
                " ON CONFLICT DO NOTHING",
                {"bytes": CONTENT_BYTES, "count": count},
            )

    def add_jobs(self, count: int) -> None:
        """Add copies of the first jobs."""
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        values = ", ".join(_COPIED.get(name, f'"{name}"') for name in COLUMNS)
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO jobs_job ({names}) SELECT {values}"
                " FROM (SELECT * FROM jobs_job ORDER BY id LIMIT %(first)s) AS jobs,"
                " generate_series(1, %(times)s) LIMIT %(count)s",
                {
                    "last": self._jobs,
                    "first": JOBS,
                    "times": -(-count // JOBS),
                    "count": count,
                },
            )
        self._jobs += count

    def mark(self, name: str) -> datetime:
        """Commit a request of this title; return a moment after that, by PostgreSQL's clock."""
        create_draft(
            experiment=self.experiment,
            content=RequestContent(title=name),
            by=self.liaison,
            at=timezone.now(),
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            return cursor.fetchone()[0]

    def titles(self) -> list[str]:
        """Return the marks, in their order."""
        marks = Request.objects.filter(title__startswith="mark ").order_by("pk")
        return list(marks.values_list("title", flat=True))


def count_rows() -> dict[str, int]:
    """Count the rows of each table, of one moment."""
    counts = {}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(_TABLES)
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            counts[table] = cursor.fetchone()[0]
    del counts["drill_noise"]  # it is in no backup, because it is unlogged
    return counts


def start_portal() -> None:
    """Do what the portal does first, and then every 15 s."""
    send_all()


def problems_of_portal(operator: User) -> list[str]:
    """Return what is wrong with a portal that was just restored and started."""
    problems = []
    for check in check_readiness():
        if not check.ok:
            problems.append(f"not ready: {check.name}: {check.detail}")
    newest = KnownDatabase.objects.latest("pk")
    if newest.state_at is None:
        problems.append("the restore was not noticed")
    if not Hold.objects.filter(experiment=None, stage=None, lifted_at=None).exists():
        problems.append("production is not on hold")
    call_command("collectstatic", verbosity=0, interactive=False)
    client = Client()
    client.force_login(operator)
    for path in ("/requests/holds/", "/"):
        if b"The database is a copy of" not in client.get(path).content:
            problems.append(f"{path} does not say that production is on hold")
    return problems
