"""`manage.py import_jobs`: store the job records of a file, CSV or NDJSON."""

import csv
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Cluster
from apps.jobs.domain.record_import import import_records, lines_of
from apps.jobs.domain.rollups import recompute_dirty_hours


class Command(BaseCommand):
    help = "Store the job records of a file: .csv with names of fields in its first line, or .ndjson."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--cluster", required=True, help="name of the cluster")
        parser.add_argument("--scheduler", help="create the cluster with this scheduler if it does not exist")

    def handle(self, *args: Any, **options: Any) -> None:
        path, now = options["file"], timezone.now()
        if path.suffix not in {".csv", ".ndjson"}:
            raise CommandError(f"{path}: the name must end in .csv or .ndjson.")
        if options["scheduler"]:
            cluster = ensure_cluster(name=options["cluster"], scheduler=options["scheduler"], by="import", at=now)
        else:
            found = Cluster.objects.filter(name=options["cluster"]).first()
            if found is None:
                raise CommandError(f"Cluster {options['cluster']} not found. Create it with --scheduler NAME.")
            cluster = found
        try:
            with path.open(encoding="utf-8", errors="replace", newline="") as lines:
                records = csv.DictReader(lines) if path.suffix == ".csv" else lines_of(lines)
                done = import_records(cluster=cluster, records=records, at=now)
        except (OSError, csv.Error) as error:
            raise CommandError(f"{path}: {error}") from error
        while recompute_dirty_hours(at=timezone.now()):
            pass
        for number, reason in done.problems:
            self.stderr.write(f"record {number}: {reason}")
        self.stdout.write(
            f"{done.records:,} records: {done.new:,} new, {done.changed:,} changed, {done.unchanged:,} unchanged, "
            f"{done.rejected:,} rejected"
        )
