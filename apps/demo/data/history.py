"""Two months of jobs before the simulated cluster's own history begins, stored a day at a time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.demo.simulation.logs import log_of
from apps.demo.simulation.outages import Trouble
from apps.demo.simulation.records import record_of
from apps.demo.simulation.workload import FIRST_ID, Attempt, Submission, Workload
from apps.demo.simulation.world import CAMPAIGNS, HOUR, random_of
from apps.jobs.domain.collection import store_records
from apps.jobs.models import Job

DAYS = 60
_SEED = 1
_FIRST_RATE, _LAST_RATE = 150, 500  # jobs a day
_IDS_PER_HOUR = 100
#: Private jobs: the requests of the campaigns are younger.
_CAMPAIGNS = tuple(campaign for campaign in CAMPAIGNS if not campaign.request)


def store_history(
    *, cluster: Cluster, directory: Path, until: datetime, at: datetime, days: int = DAYS
) -> Iterator[int]:
    """Store the jobs of each day before `until` that has none yet, newest day first; yield how many after each day.

    Failed jobs have a log, in `directory`, that the portal reads as any other.
    """
    last_hour = int(until.timestamp()) // HOUR
    workload = Workload(
        seed=_SEED,
        trouble=Trouble(_SEED, int(until.timestamp())),
        rate=lambda hour: _LAST_RATE - (_LAST_RATE - _FIRST_RATE) * min(1, (last_hour - hour) / (24 * days)),
        campaigns=lambda _: _CAMPAIGNS,
        ids_per_hour=_IDS_PER_HOUR,
        first_hour=last_hour,  # IDs are lower than those of the simulated cluster
    )
    mine = Job.objects.filter(cluster=cluster, raw_id__lt=FIRST_ID, raw_id__gte=FIRST_ID - 24 * days * _IDS_PER_HOUR)
    for day in range(days):
        hours = range(last_hour - 24 * (day + 1), last_hour - 24 * day)
        begin, end = (datetime.fromtimestamp(hour * HOUR, UTC) for hour in (hours.start, hours.stop))
        if mine.filter(submitted_at__gte=begin, submitted_at__lt=end).exists():
            continue
        submissions = (submission for hour in hours for submission in workload.hour(hour))
        records = [
            _record(submission, attempt, directory)
            for submission in submissions
            for attempt in submission.attempts
            if attempt.ended < until.timestamp()
        ]
        yield store_records(cluster=cluster, records=records, at=at)[0]


def _record(submission: Submission, attempt: Attempt, directory: Path) -> JobRecord:
    """Return the record of an attempt, and write its log if it failed."""
    log = directory / submission.campaign.experiment.lower() / f"{submission.name}-{attempt.job_id}.out"
    record = record_of(submission, attempt, log)
    if record.state is not JobState.COMPLETED and attempt.started is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        random = random_of(_SEED, "log", attempt.raw_id, attempt.number)
        with log.open("w", encoding="utf-8") as file:
            file.writelines(log_of(submission, attempt, random))
    return record
