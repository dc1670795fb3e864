"""`manage.py collect`: collect the finished jobs of one cluster, as Beat does every 15 s."""

import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from apps.clusters.domain import ensure_cluster
from apps.clusters.models import Cluster
from apps.jobs.domain.collection.accounting import Collected, collect_again, collect_finished_jobs
from apps.jobs.domain.totals.rollups import recompute_dirty_hours

EVERY_SECONDS = 15


class Command(BaseCommand):
    help = "Collect the finished jobs of one cluster from its accounting."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", required=True, help="name of the cluster")
        parser.add_argument(
            "--scheduler", help="create the cluster with this scheduler if it does not exist"
        )
        parser.add_argument(
            "--since", help="start time (ISO 8601); default: continue from the last run"
        )
        parser.add_argument("--once", action="store_true", help="collect up to now, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        if options["scheduler"]:
            cluster = ensure_cluster(
                name=options["cluster"], scheduler=options["scheduler"], by="collect", at=now
            )
        else:
            known = Cluster.objects.filter(name=options["cluster"]).first()
            if known is None:
                raise CommandError(
                    f"Cluster {options['cluster']} not found. Create it with --scheduler NAME."
                )
            cluster = known
        if options["since"]:
            collect_again(cluster=cluster, since=_moment(options["since"]), at=now)
        if options["once"]:
            self._once(cluster)
        else:
            self._keep_on(cluster)

    def _once(self, cluster: Cluster) -> None:
        """Collect until the window reaches the present."""
        caught_up = False
        while not caught_up:
            done = collect_finished_jobs(cluster=cluster, at=timezone.now())
            self._report(done)
            if done is None or done.problem:
                sys.exit(1)
            caught_up = done.caught_up
        recompute_dirty_hours(at=timezone.now())

    def _keep_on(self, cluster: Cluster) -> None:
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        self.stdout.write(
            f"collecting {cluster} every {EVERY_SECONDS:.0f} s until SIGTERM or Ctrl-C"
        )
        while not stopped.is_set():
            close_old_connections()
            self._report(collect_finished_jobs(cluster=cluster, at=timezone.now()))
            recompute_dirty_hours(at=timezone.now())
            stopped.wait(EVERY_SECONDS)

    def _report(self, done: Collected | None) -> None:
        if done is None:
            self.stderr.write("another process is collecting this cluster")
        elif done.problem:
            self.stderr.write(f"stopped: {done.problem}")
        if done is not None and (done.new or done.changed):
            self.stdout.write(f"{done.new} new, {done.changed} corrected")


def _moment(text: str) -> Any:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(f"Invalid time {text}. Use ISO 8601, for example 2026-11-20T09:00Z.")
    if not timezone.is_naive(moment):
        return moment
    return timezone.make_aware(moment)
