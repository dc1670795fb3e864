"""`manage.py import_jobs`: import job records from a CSV, NDJSON or scheduler file."""

import csv
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Cluster
from apps.clusters.schedulers.exports import FORMATS
from apps.jobs.domain.collection.record_import import import_read, import_records, lines_of
from apps.jobs.domain.totals.rollups import recompute_dirty_hours


class Command(BaseCommand):
    help = (
        "Store the job records of a file: .csv with names of fields in its first line, .ndjson, "
        "or --format."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--cluster", required=True, help="name of the cluster")
        parser.add_argument(
            "--format", choices=sorted(FORMATS), help="what wrote the file, if it is a scheduler's"
        )
        parser.add_argument(
            "--time-zone", default="UTC", type=_zone, help="of times without one: Europe/Berlin"
        )
        parser.add_argument(
            "--scheduler", help="create the cluster with this scheduler if it does not exist"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["file"]
        now = timezone.now()
        if path.suffix not in {".csv", ".ndjson"} and not options["format"]:
            raise CommandError(
                f"{path}: the name must end in .csv or .ndjson, unless --format is given."
            )
        if options["scheduler"]:
            cluster = ensure_cluster(
                name=options["cluster"], scheduler=options["scheduler"], by="import", at=now
            )
        else:
            known = Cluster.objects.filter(name=options["cluster"]).first()
            if known is None:
                raise CommandError(
                    f"Cluster {options['cluster']} not found. Create it with --scheduler NAME."
                )
            cluster = known
        try:
            with path.open(encoding="utf-8", errors="replace", newline="") as lines:
                if options["format"]:
                    newest = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                    records_read = FORMATS[options["format"]](
                        lines.read(), options["time_zone"], newest
                    )
                    done = import_read(cluster=cluster, read=records_read, at=now)
                else:
                    records: Iterator[object]
                    if path.suffix == ".csv":
                        records = csv.DictReader(lines)
                    else:
                        records = lines_of(lines)
                    done = import_records(cluster=cluster, records=records, at=now)
        except (OSError, csv.Error) as error:
            raise CommandError(f"{path}: {error}") from error
        while recompute_dirty_hours(at=timezone.now()):
            pass
        for number, reason in done.problems:
            self.stderr.write(f"record {number}: {reason}")
        self.stdout.write(
            f"{done.records:,} records: {done.new:,} new, {done.changed:,} changed, "
            f"{done.unchanged:,} unchanged, "
            f"{done.rejected:,} rejected"
        )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ArgumentTypeError(f"{name!r} is not a time zone.") from error
