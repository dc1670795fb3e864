"""`manage.py archive ACTION`: work with archived jobs, the same for every scheduler and sink."""

import json
import os
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.archive.domain.links import link_all
from apps.archive.domain.retention import delete_expired, find_excess_storage
from apps.archive.domain.sinks import drop_refused, forget_sink, retry_refused, sinks_health
from apps.archive.domain.store.backfill import JobBatch, Position, jobs_after, read_batches
from apps.archive.domain.store.contents import (
    DamagedContent,
    damaged_blobs,
    jobs_in_order,
    jobs_with,
    newest_job,
    read_blob,
    wrong_sizes,
)
from apps.archive.domain.verification import CopyFinding, CopyResult, check_copies
from apps.archive.models import RefusedJob, SinkState
from apps.archive.sinks.base import BadSink, Sink, SinkUnavailable, write_all
from apps.archive.sinks.registry import open_sink
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.errors import DomainError

_PROGRESS_SECONDS = 5.0
_EXPIRY_BATCHES = 1_000


def to_time(text: str) -> datetime:
    """Read a time in ISO 8601; one without a zone is in UTC. Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_text(moment: datetime) -> str:
    """Return a time in ISO 8601, in UTC."""
    return moment.astimezone(UTC).isoformat()


#: Of retries while a sink is unavailable.
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0


class Command(BaseCommand):
    """Each action is the method of its name."""

    help = "Work with archived jobs."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)

        fill = actions.add_parser(
            "fill", help="deliver what the store has to a sink; run again to continue"
        )
        fill.add_argument("--to", required=True, metavar="URL", help="URL of the sink")
        fill.add_argument("--cluster", default="", help="only jobs of this cluster")
        fill.add_argument(
            "--since", type=to_time, metavar="DATE", help="only jobs submitted since this time"
        )
        fill.add_argument(
            "--again",
            action="store_true",
            help="start from the first job, ignoring earlier progress",
        )
        fill.add_argument(
            "--patience-seconds",
            type=float,
            default=60.0,
            help="how long to wait for an unreachable sink (default: %(default)s)",
        )

        listing = actions.add_parser("list", help="print one JSON object per job")
        listing.add_argument("--cluster", required=True)

        link = actions.add_parser("link", help="link every archived job to accounting again")
        link.add_argument("--cluster", required=True)

        check = actions.add_parser(
            "check", help="compare with the scripts and environments that accounting keeps"
        )
        check.add_argument("--cluster", required=True)
        check.add_argument(
            "--since",
            type=to_time,
            help="check jobs submitted since this time; default: one day ago",
        )
        check.add_argument(
            "--job",
            action="append",
            default=[],
            dest="jobs",
            help="check only this job; repeatable",
        )
        check.add_argument(
            "--backfill",
            action="store_true",
            help="store missing jobs from accounting, with a caveat",
        )
        check.add_argument(
            "--json", action="store_true", dest="as_json", help="print one JSON object per line"
        )

        retain = actions.add_parser(
            "retain", help="delete jobs that have expired by the retention rules"
        )
        retain.add_argument(
            "--dry-run", action="store_true", help="only print what would be deleted"
        )

        sinks = actions.add_parser("sinks", help="list the sinks, and handle what they refused")
        handled = sinks.add_mutually_exclusive_group()
        handled.add_argument("--refused", action="store_true", help="list the refused jobs instead")
        handled.add_argument(
            "--retry", metavar="NAME", help="let this sink try again what it refused"
        )
        handled.add_argument("--drop", metavar="NAME", help="drop for good what this sink refused")
        handled.add_argument(
            "--forget", metavar="NAME", help="remove a sink that is no longer configured"
        )
        sinks.add_argument("--job", default="", help="with --drop: only this job")

        show = actions.add_parser("show", help="write a job's script as it was stored")
        show.add_argument("job_id", metavar="JOB")
        show.add_argument("--cluster", required=True)
        show.add_argument(
            "--environment", action="store_true", help="print the environment instead of the script"
        )
        show.add_argument(
            "--submitted-at",
            type=to_time,
            help="submit time, if the job ID was reused; default: the newest job",
        )

        verify = actions.add_parser("verify", help="recompute every hash and size")
        verify.add_argument("--cluster", default="")

    def handle(self, *, action: str, **options: Any) -> None:
        try:
            getattr(self, f"_{action}")(**options)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _fill(
        self,
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
        total = jobs.count()
        done = 0
        failed = 0
        printed_at = time.monotonic()
        with closing(sink):
            for batch in read_batches(jobs):
                refused = _deliver(sink, batch, patience_seconds)
                for index, reason in refused.items():
                    self.stderr.write(
                        f"{sink.name} refuses job {batch.jobs[index].job_id}: {reason}"
                    )
                for damaged in batch.damaged:
                    self.stderr.write(damaged)
                position.move(batch.last)
                done += len(batch.jobs) - len(refused)
                failed += len(batch.damaged) + len(refused)
                if time.monotonic() - printed_at > _PROGRESS_SECONDS:
                    self.stdout.write(f"{done + failed:,} of {total:,} jobs")
                    printed_at = time.monotonic()
        self.stdout.write(f"{done:,} jobs are in {sink.name}")
        if failed:
            raise CommandError(f"{failed:,} jobs are not")

    def _list(self, *, cluster: str, **_: Any) -> None:
        for job in jobs_in_order(cluster=cluster):
            line = {
                "job_id": job.job_id,
                "submitted_at": time_text(job.submitted_at),
                "script_sha256": job.script_sha256,
                "environment_sha256": job.environment_sha256,
                "script_bytes": job.script_bytes,
                "environment_bytes": job.environment_bytes,
                "captured_at": time_text(job.captured_at),
                "request": job.request_key,
                "stage": job.stage,
                "masked": job.masked_names,
            }
            sys.stdout.write(json.dumps(line) + "\n")

    def _link(self, *, cluster: str, **_: Any) -> None:
        self.stdout.write(
            f"changed {link_all(cluster=_cluster(cluster))} archived jobs of {cluster}"
        )

    def _check(
        self,
        *,
        cluster: str,
        since: datetime | None,
        jobs: list[str],
        backfill: bool,
        as_json: bool,
        **_: Any,
    ) -> None:
        at = timezone.now()
        since = since or (datetime.fromtimestamp(0, at.tzinfo) if jobs else at - timedelta(days=1))
        counts: Counter[CopyResult] = Counter()
        try:
            for finding in check_copies(
                cluster=_cluster(cluster),
                since=since,
                job_ids=jobs,
                backfill=backfill,
                by="archive check",
                at=at,
            ):
                counts[finding.kind] += 1
                if finding.kind is not CopyResult.ALIKE:
                    sys.stdout.write(_line(finding, as_json=as_json))
        except SchedulerError as error:
            raise CommandError(str(error)) from error
        finally:
            sys.stdout.flush()
        self.stderr.write(
            "".join(f"{count} {kind}\n" for kind, count in counts.most_common()) or "no jobs"
        )
        if counts[CopyResult.MISSING]:
            raise CommandError(f"{counts[CopyResult.MISSING]} jobs are missing from the archive.")

    def _retain(self, *, dry_run: bool, **_: Any) -> None:
        at = timezone.now()
        for excess in find_excess_storage(at=at):
            self.stdout.write(
                f"{excess.cluster}: {excess.size_bytes} bytes of contents;"
                f" {excess.too_old} jobs are too old, about {excess.for_size} of the oldest "
                "too much for the size"
            )
        if not dry_run:
            deleted = 0
            while more := delete_expired(by="archive retain", at=at, batches=_EXPIRY_BATCHES):
                deleted += more
            self.stdout.write(f"deleted {deleted} jobs")

    def _sinks(
        self, *, refused: bool, retry: str, drop: str, forget: str, job: str, **_: Any
    ) -> None:
        if refused:
            refused_jobs = (
                RefusedJob.objects.select_related("sink").defer("data").order_by("sink__name", "pk")
            )
            for refused_job in refused_jobs.iterator():
                columns = [
                    str(refused_job.sink),
                    refused_job.job_id,
                    time_text(refused_job.submitted_at),
                    str(refused_job.size_bytes),
                    refused_job.reason,
                ]
                self.stdout.write("\t".join(columns))
        elif name := retry or drop or forget:
            self._handle_sink(name, retry=bool(retry), drop=bool(drop), job=job)
        else:
            for sink in sinks_health(at=timezone.now()):
                if sink.behind:
                    lag = f"{sink.behind} jobs behind, {sink.lag_seconds:.0f} s"
                else:
                    lag = "0 jobs behind"
                facts = [
                    sink.sink.name,
                    sink.state[1],
                    lag,
                    f"{sink.refused} refused",
                    sink.sink.last_error,
                ]
                self.stdout.write("\t".join(facts).rstrip())

    def _handle_sink(self, name: str, *, retry: bool, drop: bool, job: str) -> None:
        sink = SinkState.objects.filter(name=name).first()
        if sink is None:
            raise CommandError(f"Sink “{name}” not found.")
        act: dict[str, Any] = {"sink": sink, "by": "archive", "at": timezone.now()}
        try:
            if retry:
                self.stdout.write(f"{sink}: {retry_refused(**act)} refused jobs will be retried")
            elif drop:
                self.stdout.write(f"{sink}: {drop_refused(job_id=job, **act)} refused jobs dropped")
            else:
                forget_sink(**act)
                self.stdout.write(f"{sink}: removed")
        except DomainError as error:
            raise CommandError(str(error)) from error

    def _show(
        self,
        *,
        job_id: str,
        cluster: str,
        environment: bool,
        submitted_at: datetime | None,
        **_: Any,
    ) -> None:
        job = newest_job(cluster=cluster, job_id=job_id, submitted_at=submitted_at)
        if job is None:
            when = ""
            if submitted_at:
                when = f" submitted at {time_text(submitted_at)}"
            raise CommandError(f"Job {job_id}{when} of cluster {cluster} is not in the archive.")
        try:
            sys.stdout.buffer.write(read_blob(job.environment if environment else job.script))
        except DamagedContent as error:
            raise CommandError(
                f"Job {job_id} of cluster {cluster} is damaged in the archive: it {error}"
            ) from error

    def _verify(self, *, cluster: str, **_: Any) -> None:
        differences = 0
        for blob, difference in damaged_blobs(cluster=cluster):
            differences += 1
            users = ", ".join(str(job) for job in jobs_with(blob)[:5])
            self.stderr.write(f"{blob.kind} {blob} {difference} (jobs: {users or 'none'})")
        for job in wrong_sizes(cluster=cluster):
            differences += 1
            self.stderr.write(f"job {job}: its sizes are not those of its contents")
        if differences:
            raise CommandError(f"{differences} differences found.")
        self.stdout.write("Every content is as it was stored.")


def _cluster(name: str) -> Cluster:
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        raise CommandError(f"Cluster {name} not found.")
    return cluster


def _deliver(sink: Sink, batch: JobBatch, patience_seconds: float) -> Mapping[int, str]:
    """Write a batch, retrying with growing delays while the sink is unavailable.

    Raises `CommandError` in the end.
    """
    delay = FIRST_DELAY_SECONDS
    until = time.monotonic() + patience_seconds
    while True:
        try:
            return write_all(sink, batch.jobs) if batch.jobs else {}
        except SinkUnavailable as error:
            if time.monotonic() + delay > until:
                raise CommandError(
                    f"{sink.name}: {error}. Run the same command again to continue."
                ) from error
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)


def _line(finding: CopyFinding, *, as_json: bool) -> str:
    at = time_text(finding.submitted_at)
    if as_json:
        fields = {
            "job_id": finding.job_id,
            "submitted_at": at,
            "found": finding.kind.name.lower(),
            "detail": finding.detail,
        }
        return json.dumps(fields) + "\n"

    detail = f": {finding.detail}" if finding.detail else ""
    return f"job {finding.job_id} of {at}: {finding.kind}{detail}\n"
