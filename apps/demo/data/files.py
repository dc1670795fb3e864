"""A stage of the demo with files that are missing, and files that were done twice."""

from dataclasses import replace
from datetime import datetime, timedelta

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.datasets.domain.output_files import NamedFile
from apps.demo.data.finished import accept, records_of, store_ended
from apps.jobs.domain.collection.accounting import store_records
from apps.production.enums import PORTAL
from apps.production.models import Request
from apps.quality.domain.posts import name_files
from apps.submission.domain.arrays.files import check_ledger
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.models import Submission

#: Tasks of the array that failed for good, and the one that was retried although it completed.
_FAILED = (7, 19, 33)
_TWICE = 41
_OUTPUT_BYTES = 2_900_000_000
_OUTPUT_EVENTS = 4_000


def end_with_faults(*, request: Request, name: str, by: User, at: datetime) -> None:
    """End the jobs of a stage: some fail, and one counts as failed until its retry has completed.

    `by` reports their output files.
    """
    sent = Submission.objects.select_related("cluster", "request__experiment").get(
        request=request, stage_name=name
    )
    records = []
    for record in records_of(sent, at - timedelta(minutes=50)):
        if int(record.job_id.partition("_")[2]) in {*_FAILED, _TWICE}:
            record = replace(record, state=JobState.FAILED, exit_code=1)  # noqa: PLW2901
        records.append(record)
    store_ended(sent, records, at=at - timedelta(minutes=50))

    retry = plan_retry(
        submission=sent,
        request=lock_request(request),
        indices=[_TWICE],
        by=PORTAL,
        at=at - timedelta(minutes=40),
        reason="The host did not answer.",
    )
    accept(retry, at=at - timedelta(minutes=39))
    retried = list(records_of(retry, at - timedelta(minutes=1)))
    store_ended(retry, retried, at=at)
    late = replace(records[_TWICE], state=JobState.COMPLETED, exit_code=0)
    store_records(cluster=sent.cluster, records=[late], at=at)
    stage = request.stages.get(name=name)
    completed = []
    for record in [*records, *retried]:
        if record.state == JobState.COMPLETED or record == records[_TWICE]:
            completed.append(record)
    for record in completed:
        name_files(stage=stage, key=record.job_id, files=[_output(record)], by=by, at=at)
    check_ledger(stage, at=at)


def _output(record: JobRecord) -> NamedFile:
    """Return the output file of a job; the array and the retry name theirs differently."""
    return NamedFile(f"reco_light_{record.job_id}.root", _OUTPUT_BYTES, _OUTPUT_EVENTS)
