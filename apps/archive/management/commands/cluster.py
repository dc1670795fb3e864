"""`manage.py cluster remove NAME`: remove a cluster with its jobs, scripts and statistics."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.archive.domain.cluster_removal import check_removable, contents_of, remove_cluster
from apps.clusters.models import Cluster
from apps.core.errors import InvalidTransition
from apps.jobs.domain.totals.rollups import recompute_dirty_hours


class Command(BaseCommand):
    help = "Remove a cluster, for example one that a mistyped CAPTURE_CLUSTER has created."

    def add_arguments(self, parser: ArgumentParser) -> None:
        remove = parser.add_subparsers(dest="action", required=True).add_parser(
            "remove", help="delete a cluster with its jobs, scripts and statistics"
        )
        remove.add_argument("name", metavar="NAME")
        remove.add_argument(
            "--dry-run", action="store_true", help="only print what would be deleted"
        )

    def handle(self, *, name: str, dry_run: bool, **_: Any) -> None:
        cluster = Cluster.objects.filter(name=name).first()
        if cluster is None:
            raise CommandError(f"Cluster {name} not found.")
        now = timezone.now()
        try:
            if dry_run:
                check_removable(cluster, at=now)
            if dry_run:
                contents = contents_of(cluster)
            else:
                contents = remove_cluster(cluster=cluster, by="cluster remove", at=now)
        except InvalidTransition as error:
            raise CommandError(str(error)) from error
        while not dry_run and recompute_dirty_hours(at=now):
            continue
        self.stdout.write(f"{'would delete' if dry_run else 'deleted'} cluster {name} with")
        for kind, count in sorted(contents.rows.items()):
            self.stdout.write(f"{count:>12,} {kind}")
        self.stdout.write(
            f"{contents.archive_bytes:>12,} bytes of scripts and environments, shared ones included"
        )
        if contents.requests:
            self.stdout.write(
                f"{'to recount' if dry_run else 'recounted'}: {', '.join(contents.requests)}"
            )
