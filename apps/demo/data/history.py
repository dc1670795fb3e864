"""Two months of outages and jobs before the history of the simulated cluster starts."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

from django.db import transaction

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.core.domain.outbox import defer_deliveries
from apps.demo.data.board import SOURCE
from apps.demo.simulation.alerts import SimulatedAlert, payload
from apps.demo.simulation.logs import log_of
from apps.demo.simulation.outages import SimulatedOutage, SimulatedTrouble
from apps.demo.simulation.records import record_of
from apps.demo.simulation.workload import FIRST_ID, SimulatedArray, SimulatedAttempt, Workload
from apps.demo.simulation.world import CAMPAIGNS, DAY, HOUR, random_of
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.models import Job
from apps.statusboard.domain.monitoring.payloads import apply_message
from apps.statusboard.domain.monitoring.sources import rebuild_services_of
from apps.statusboard.feeds.alertmanager import Alertmanager
from apps.statusboard.models import MonitoringSource

DAYS = 60
_SEED = 1
_FIRST_RATE, _LAST_RATE = 150, 500  # jobs a day
_IDS_PER_HOUR = 100
#: Only private jobs: the requests of the other campaigns are younger.
_CAMPAIGNS = tuple(campaign for campaign in CAMPAIGNS if not campaign.request)


def planted_outages(*, until: datetime, days: int = DAYS) -> list[SimulatedOutage]:
    """Return the outages of the `days` before `until` that were over by then.

    Jobs of the history fail because of them.
    """
    end = int(until.timestamp())
    outages = SimulatedTrouble(_SEED, end).outages(end - days * DAY, end)
    planted = []
    for outage in outages:
        if outage.ended <= end and outage.started >= end - days * DAY:
            planted.append(outage)
    return planted


def store_outages(*, until: datetime, at: datetime, days: int = DAYS) -> int:
    """Report the outages of the `days` before `until` to the board; return their number.

    They are reported as the source would have done, and the source counts as alive in that time.
    Deliveries of their events are due at `at`. Repeating the call changes nothing.
    """
    source = MonitoringSource.objects.get(slug=SOURCE)
    since = until - timedelta(days=days)
    if source.monitored_since <= since:
        return 0
    outages = planted_outages(until=until, days=days)
    for outage in outages:
        notification = payload(
            SimulatedAlert(outage.ended, "resolved", outage), int(until.timestamp())
        )
        message = Alertmanager().parse(json.dumps(notification).encode())
        with transaction.atomic():
            ended_at = datetime.fromtimestamp(outage.ended, UTC)
            apply_message(source=source, message=message, at=ended_at)
            defer_deliveries(at=at)

    with transaction.atomic():
        MonitoringSource.objects.filter(pk=source.pk).update(monitored_since=since)
        source.services.filter(monitored_since__gt=since).update(monitored_since=since)
        rebuild_services_of(source=source, since=since)
    return len(outages)


def store_history(
    *, cluster: Cluster, directory: Path, until: datetime, at: datetime, days: int = DAYS
) -> Iterator[int]:
    """Store the jobs of each day before `until` that has none, newest day first.

    Yields the number of jobs after each day. Failed jobs have a log in `directory`, which the
    portal reads like any other.
    """
    last_hour = int(until.timestamp()) // HOUR
    # IDs are lower than the ones that the simulated cluster assigns.
    workload = Workload(
        seed=_SEED,
        trouble=SimulatedTrouble(_SEED, int(until.timestamp())),
        rate=lambda hour: (
            _LAST_RATE - (_LAST_RATE - _FIRST_RATE) * min(1, (last_hour - hour) / (24 * days))
        ),
        campaigns=lambda _: _CAMPAIGNS,
        ids_per_hour=_IDS_PER_HOUR,
        first_hour=last_hour,
    )
    own_jobs = Job.objects.filter(
        cluster=cluster, raw_id__lt=FIRST_ID, raw_id__gte=FIRST_ID - 24 * days * _IDS_PER_HOUR
    )
    for day in range(days):
        hours = range(last_hour - 24 * (day + 1), last_hour - 24 * day)
        begin = datetime.fromtimestamp(hours.start * HOUR, UTC)
        end = datetime.fromtimestamp(hours.stop * HOUR, UTC)
        if own_jobs.filter(submitted_at__gte=begin, submitted_at__lt=end).exists():
            continue

        records = []
        for submission in chain.from_iterable(workload.hour(hour) for hour in hours):
            for attempt in submission.attempts:
                if attempt.ended < until.timestamp():
                    records.append(_record(submission, attempt, directory))
        yield store_records(cluster=cluster, records=records, at=at)[0]


def _record(submission: SimulatedArray, attempt: SimulatedAttempt, directory: Path) -> JobRecord:
    """Return the record of an attempt, and write its log if it failed."""
    log = (
        directory
        / submission.campaign.experiment.lower()
        / f"{submission.name}-{attempt.job_id}.out"
    )
    record = record_of(submission, attempt, log)
    if record.state is not JobState.COMPLETED and attempt.started is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        random = random_of(_SEED, "log", attempt.raw_id, attempt.number)
        with log.open("w", encoding="utf-8") as file:
            file.writelines(log_of(submission, attempt, random))
    return record
