"""What the budgets of rules still allow: core-seconds of today, and retries of each request."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from math import floor

from django.db.models import Count, Sum

from apps.production.models import Stage
from apps.recovery.domain.decisions.choice import Budget
from apps.recovery.domain.decisions.match import ParsedRule
from apps.recovery.enums import ACTED_ARMS, RETRIED_ARMS
from apps.recovery.models import Decision
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission


def read_budget(
    rules: Sequence[ParsedRule], submissions: Sequence[Submission], *, at: datetime
) -> Budget:
    """Return what rules may still spend on the jobs of these submissions, in four queries."""
    return Budget(_core_seconds_left(rules, at), _retries_left(rules, submissions))


def _core_seconds_left(rules: Sequence[ParsedRule], at: datetime) -> dict[int, float]:
    """Return the core-seconds that each rule may still use on this day, UTC."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    spent = Decision.objects.filter(
        decided_at__gte=midnight,
        arm__in=ACTED_ARMS,
        rule__in=[rule.record.pk for rule in rules],
    )
    sums = spent.order_by().values_list("rule_id").annotate(Sum("failed_core_seconds"))
    used = dict(sums)
    left = {}
    for rule in rules:
        budget = rule.definition.limits.core_hours_a_day * 3600
        left[rule.record.pk] = budget - used.get(rule.record.pk, 0)
    return left


def _retries_left(
    rules: Sequence[ParsedRule], submissions: Sequence[Submission]
) -> dict[tuple[int, int | None], int]:
    """Return how many jobs of a request each rule may still retry, by rule and request.

    Rules without this limit have no entry, nor has a request whose number of jobs is not known.
    """
    percent_of_rule = {}
    for rule in rules:
        percent = rule.definition.limits.request_percent
        if percent < 100:
            percent_of_rule[rule.record.pk] = percent
    if not percent_of_rule or not submissions:
        return {}

    requests = {submission.request_id for submission in submissions}
    stages = Stage.objects.filter(request__in=requests).order_by()
    jobs_of_request = dict(stages.values_list("request").annotate(Sum("jobs")))
    retried = _retries_by_request(percent_of_rule, requests)
    left: dict[tuple[int, int | None], int] = {}
    for rule_pk, percent in percent_of_rule.items():
        for request in requests:
            jobs = jobs_of_request[request]
            if jobs is not None:
                left[rule_pk, request] = floor(jobs * percent / 100) - retried[rule_pk, request]
    return left


def _retries_by_request(
    rule_pks: Collection[int], request_pks: Collection[int]
) -> Counter[tuple[int, int]]:
    """Count the retries that rules decided on, by rule and request.

    Jobs are found by the IDs of their arrays, as the proof of their request may come later.
    """
    arrays = Submission.objects.filter(request__in=request_pks, state=SubmissionState.SENT)
    request_of_array = {}
    for cluster_id, spool_id, request_pk in arrays.values_list("cluster", "spool_id", "request"):
        request_of_array[cluster_id, spool_id] = request_pk
    decisions = Decision.objects.filter(
        rule__in=rule_pks,
        arm__in=RETRIED_ARMS,
        job__spool_id__in={spool_id for _, spool_id in request_of_array},
    )
    rows = decisions.order_by().values_list("rule", "job__cluster", "job__spool_id")
    retried: Counter[tuple[int, int]] = Counter()
    for rule_pk, cluster_id, spool_id, jobs in rows.annotate(Count("pk")):
        if (cluster_id, spool_id) in request_of_array:
            retried[rule_pk, request_of_array[cluster_id, spool_id]] += jobs
    return retried
