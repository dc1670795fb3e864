"""`archive check`: hold the archive against the copies that the scheduler's accounting keeps."""

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.archive.domain.verification import Finding, Kind, check_copies
from apps.archive.management.times import time_text, to_time
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError

HELP = "compare with the scripts and environments in the scheduler's accounting, and say where they differ"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--since", type=to_time, help="check jobs submitted since this time; default: one day ago")
    parser.add_argument("--job", action="append", default=[], dest="jobs", help="check only this job; repeatable")
    parser.add_argument("--backfill", action="store_true", help="store missing jobs from accounting, with a caveat")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(
    command: BaseCommand,
    *,
    cluster: str,
    since: datetime | None,
    jobs: list[str],
    backfill: bool,
    json: bool,
    **_: Any,
) -> None:
    at = timezone.now()
    known = Cluster.objects.filter(name=cluster).first()
    if known is None:
        raise CommandError(f"Cluster {cluster} not found.")
    counts: Counter[Kind] = Counter()
    since = since or (datetime.fromtimestamp(0, at.tzinfo) if jobs else at - timedelta(days=1))
    try:
        for finding in check_copies(
            cluster=known, since=since, job_ids=jobs, backfill=backfill, by="archive check", at=at
        ):
            counts[finding.kind] += 1
            if finding.kind is not Kind.ALIKE:
                sys.stdout.write(_json_line(finding) if json else _line(finding))
    except SchedulerError as error:
        raise CommandError(str(error)) from error
    finally:
        sys.stdout.flush()
    command.stderr.write("".join(f"{count} {kind}\n" for kind, count in counts.most_common()) or "no jobs")
    if counts[Kind.MISSING]:
        raise CommandError(f"{counts[Kind.MISSING]} jobs are missing from the archive.")


def _line(finding: Finding) -> str:
    detail = f": {finding.detail}" if finding.detail else ""
    return f"job {finding.job_id} of {time_text(finding.submitted_at)}: {finding.kind}{detail}\n"


def _json_line(finding: Finding) -> str:
    line = {
        "job_id": finding.job_id,
        "submitted_at": time_text(finding.submitted_at),
        "found": finding.kind.name.lower(),
        "detail": finding.detail,
    }
    return json.dumps(line) + "\n"
