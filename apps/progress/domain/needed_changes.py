"""Requests that only their experiment can help: something of them must change."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime

from django.db.models import Count

from apps.core.domain.quantities import count_noun
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import Verdict
from apps.production.domain.attention import Need
from apps.production.enums import NOT_STARTED
from apps.production.models import QueueEntry, Request, Stage
from apps.recovery.models import Decision
from apps.submission.enums import IN_BATCH
from apps.submission.models import RetryJob

#: The verdicts with which a job would fail again, as a text after the number of jobs.
_HOPELESS = {
    VerdictKind.CODE: "with a code problem",
    VerdictKind.RESOURCE: "over a limit",
}


def needed_changes(
    requests: Iterable[Request], stuck: Collection[Request], at: datetime
) -> dict[int, Need]:
    """Return the approved requests most of whose jobs will exceed a limit, and the stuck ones with
    failed jobs that would fail again.
    """
    not_started = [request.pk for request in requests if request.state in NOT_STARTED]
    entries = QueueEntry.objects.filter(request__in=not_started).exclude(needed_change="")
    needs = {}
    for pk, change in entries.order_by().values_list("request", "needed_change"):
        needs[pk] = Need(at, change)

    for pk, jobs in _hopeless_jobs(stuck).items():
        parts = []
        for verdict, problem in _HOPELESS.items():
            if number := jobs[verdict]:
                parts.append(f"{count_noun(number, 'failed job')} {problem}")
        needs[pk] = Need(at, f"{' and '.join(parts)} would fail again")
    return needs


def _hopeless_jobs(stuck: Collection[Request]) -> dict[int, Counter[str]]:
    """Return how many failed jobs of requests would fail again, by primary key and verdict.

    Takes two queries. Stages that were accepted as is do not count, nor jobs that are retried by a
    rule or a batch.
    """
    if not stuck:
        return {}
    open_stages = Stage.objects.filter(request__in=stuck, acceptance=None)
    request_pk_of: dict[tuple[int, str, str], int] = {}
    for experiment_pk, key, name, request_pk in open_stages.values_list(
        "request__experiment", "request__key", "name", "request"
    ):
        request_pk_of[experiment_pk, key, name.lower()] = request_pk

    failed = Verdict.objects.filter(
        job__request_key__in=[request.key for request in stuck],
        verdict__in=_HOPELESS,
        later_state="",
    )
    failed = failed.exclude(job__in=Decision.objects.left_to_rules().values("job"))
    failed = failed.exclude(job__in=RetryJob.objects.filter(state__in=IN_BATCH).values("job"))
    columns = ("experiment", "job__request_key", "job__stage", "verdict")

    jobs: dict[int, Counter[str]] = defaultdict(Counter)
    for experiment_pk, key, name, verdict, number in (
        failed.order_by().values_list(*columns).annotate(Count("pk"))
    ):
        job_request_pk = request_pk_of.get((experiment_pk, key, name.lower()))
        if job_request_pk is not None:
            jobs[job_request_pk][verdict] += number
    return jobs
