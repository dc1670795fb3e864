"""`archive fill`: give a sink that was added later what the store has."""

import time
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.archive.capture.delivery.drain import FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS
from apps.archive.domain.store.backfill import Batch, Position, batches, jobs_after
from apps.archive.management.times import to_time
from apps.archive.sinks.base import BadSink, Sink, SinkUnavailable
from apps.archive.sinks.registry import open_sink
from apps.archive.sinks.writer import write_all

HELP = "give a sink what the store has; started again it goes on where it was"
_TELL_SECONDS = 5.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="URL", help="URL of the sink")
    parser.add_argument("--cluster", default="", help="only jobs of this cluster")
    parser.add_argument("--since", type=to_time, metavar="DATE", help="only jobs submitted since this time")
    parser.add_argument("--again", action="store_true", help="start from the first job, ignoring earlier progress")
    parser.add_argument(
        "--patience-seconds",
        type=float,
        default=60.0,
        help="how long to wait for an unreachable sink (default: %(default)s)",
    )


def run(
    command: BaseCommand,
    *,
    to: str,
    cluster: str,
    since: datetime | None,
    again: bool,
    patience_seconds: float,
    **_: Any,
) -> None:
    try:
        sink = open_sink(to)
    except BadSink as error:
        raise CommandError(str(error)) from error
    position = Position(settings.VAR_DIR / "fill", sink=sink.name, cluster=cluster, since=since)
    jobs = jobs_after(last=0 if again else position.last, cluster=cluster, since=since)
    total, done, failed, told_at = jobs.count(), 0, 0, time.monotonic()
    with closing(sink):
        for batch in batches(jobs):
            refused = _write(sink, batch, patience_seconds)
            for index, reason in refused.items():
                command.stderr.write(f"{sink.name} refuses job {batch.jobs[index].job_id}: {reason}")
            for damaged in batch.damaged:
                command.stderr.write(damaged)
            position.move(batch.last)
            done += len(batch.jobs) - len(refused)
            failed += len(batch.damaged) + len(refused)
            if time.monotonic() - told_at > _TELL_SECONDS:
                command.stdout.write(f"{done + failed:,} of {total:,} jobs")
                told_at = time.monotonic()
    command.stdout.write(f"{done:,} jobs are in {sink.name}")
    if failed:
        raise CommandError(f"{failed:,} jobs are not")


def _write(sink: Sink, batch: Batch, patience_seconds: float) -> Mapping[int, str]:
    """Write a batch. A sink that is away is tried again, ever more rarely. Raises `CommandError` in the end."""
    delay, until = FIRST_DELAY_SECONDS, time.monotonic() + patience_seconds
    while True:
        try:
            return write_all(sink, batch.jobs) if batch.jobs else {}
        except SinkUnavailable as error:
            if time.monotonic() + delay > until:
                raise CommandError(f"{sink.name}: {error}. Run the same command again to continue.") from error
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)
