"""`manage.py demo`: load people, board, requests, and the campaigns of the simulated cluster."""

import os
from argparse import ArgumentParser
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Cluster
from apps.clusters.schedulers.options import LOG_OWNERS
from apps.clusters.schedulers.simulated import PARTITION
from apps.core.domain.events import events_of
from apps.core.domain.outbox import defer_deliveries
from apps.demo.data.board import load_board
from apps.demo.data.debugging import load_debug_profiles
from apps.demo.data.history import store_history, store_outages
from apps.demo.data.people import LOGINS, PASSWORD, load_people
from apps.demo.data.recovery import activate_rules
from apps.demo.data.requests import load_requests
from apps.demo.simulation.catalogue import write_catalogue
from apps.demo.simulation.world import write_campaigns
from apps.jobs.domain.collection.accounting import collect_again
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection
from apps.progress.domain.share_use import count_share_use, count_work_by_day
from apps.progress.domain.stored_forecasts import keep_forecasts

HISTORY = timedelta(days=3)
#: Requests of Mu2e start automatically; the others wait, so that the queue is not empty.
SUBMISSION = {
    "partition": PARTITION,
    "experiments": ["MU2E"],
    "most_in_flight": 2000,
    "array_size": 500,
}


class Command(BaseCommand):
    """Loads the demo. Idempotent: existing rows are kept."""

    # The checks load every page, which takes longer than loading an existing demo.
    requires_system_checks = ()
    help = (
        "Load the demo's people, services and requests. Works only with DEMO=true: the passwords "
        "are public."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--migrate", action="store_true", help="migrate the database first")
        parser.add_argument(
            "--history",
            action="store_true",
            help="store two months of outages and jobs before the demo's first day",
        )
        parser.add_argument(
            "--dir", type=Path, help="directory of `simulate`; default: VAR_DIR/simulation/CLUSTER"
        )

    def handle(self, *args: object, **options: Any) -> None:
        if not settings.DEMO:
            raise CommandError(
                "This creates accounts with public passwords. Set DEMO=true to allow it."
            )
        if options["migrate"]:
            call_command("migrate", interactive=False, skip_checks=True, stdout=StringIO())
        directory = (options["dir"] or settings.VAR_DIR / "simulation" / cluster_name()).absolute()
        if options["history"]:
            self._store_history(directory)
            return
        load(directory, timezone.now())
        for person in LOGINS:
            self.stdout.write(f"  {person.username:<10} {PASSWORD:<6} {person.position}")

    def _store_history(self, directory: Path) -> None:
        cluster = Cluster.objects.get(name=cluster_name())
        until = events_of(cluster).values_list("at", flat=True)[0] - HISTORY
        outages = store_outages(until=until, at=timezone.now())
        self.stdout.write(f"{outages} outages of the last two months stored")
        stored = sum(
            store_history(
                cluster=cluster, directory=directory / "past", until=until, at=timezone.now()
            )
        )
        self.stdout.write(f"{stored} jobs of the last two months stored")


def cluster_name() -> str:
    return settings.CAPTURE_CLUSTER or "hepsim"


def load(directory: Path, at: datetime, history: timedelta = HISTORY) -> None:
    """Create missing data of the demo; `history` is how far back there are jobs."""
    begin = at - timedelta(days=40)
    since = at - history - timedelta(hours=1)
    experiments, users = load_people(begin)
    load_board(users=users, token_file=directory / "feed-token", since=since, at=at)
    load_debug_profiles(experiments)
    activate_rules(by=users["approver"], at=begin)
    cluster = _load_cluster(directory, since, at)
    write_catalogue(directory / "datasets.json", at.timestamp())
    campaigns = load_requests(experiments=experiments, users=users, cluster=cluster, at=at)
    write_campaigns(directory / "campaigns.json", campaigns)
    recompute_dirty_hours(at=at)
    # Workers count these every few minutes; until then, all expected starts would be unknown.
    count_share_use(at=at)
    count_work_by_day(at=at)
    keep_forecasts(at=at)
    defer_deliveries(at=at)


def _load_cluster(directory: Path, since: datetime, at: datetime) -> Cluster:
    (directory / "spool").mkdir(mode=0o700, exist_ok=True)
    is_new = not Cluster.objects.filter(name=cluster_name()).exists()
    # The simulation writes the logs of all users with the account that runs the demo.
    options = {"dir": str(directory), LOG_OWNERS: str(os.getuid()), "owners": "yes"}
    cluster = ensure_cluster(
        name=cluster_name(), scheduler="simulated", options=options, by="demo", at=at
    )
    if is_new:
        Cluster.objects.filter(pk=cluster.pk).update(submits=True, submission=SUBMISSION)
        cluster.refresh_from_db()
    # An earlier version created the cluster with fewer options.
    elif not options.keys() <= cluster.options.keys():
        Cluster.objects.filter(pk=cluster.pk).update(options={**cluster.options, **options})
    if not Collection.objects.filter(cluster=cluster).exists():
        collect_again(cluster=cluster, since=since, at=at)
    return cluster
