"""Group the failures of broken hosts and of releases of which nearly all jobs fail."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from apps.core.domain.events import publish
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.groups.broken_hosts import (
    find_failing_hosts,
    recent_host_verdicts,
    select_broken_hosts,
)
from apps.diagnosis.domain.groups.fingerprints import Fingerprint
from apps.diagnosis.domain.groups.triage import RELEASE_VERDICTS
from apps.diagnosis.enums import GroupKind, VerdictKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.enums import DEBUG_STAGE, FAILED_STATES
from apps.jobs.models import Job

#: A bad release: minimum number of failures in this time, their share of all its jobs, the ratio to
#: the share of other releases in the same stages (with at least as many jobs), and the minimum
#: number of submissions and hosts.
RELEASE_WITHIN = timedelta(hours=24)
RELEASE_JOBS = 10
RELEASE_SHARE = 0.5
RELEASE_FACTOR = 4
RELEASE_SUBMISSIONS = 3
RELEASE_HOSTS = 2


def group_failures_of_broken_hosts(*, at: datetime) -> list[FailureGroup]:
    """Group the failures of each host on which nearly every job failed in the hours before `at`."""
    recent = recent_host_verdicts(at)
    groups = []
    for failing in select_broken_hosts(find_failing_hosts(at=at), at=at):
        verdicts = recent.filter(job__in=failing.failed_jobs)
        groups.append(_host_group(failing.cluster_id, failing.host, verdicts, at))
    return groups


def _host_group(
    cluster_id: int, host: str, verdicts: QuerySet[Verdict], at: datetime
) -> FailureGroup:
    key = Fingerprint(VerdictKind.SERVICE, cause="host", service=str(cluster_id), message=host)
    title = f"{host}: nearly every job fails"
    return _blame(
        key, verdicts, at, kind=GroupKind.HOST, cluster_id=cluster_id, host=host, title=title
    )


def group_failures_of_bad_releases(*, at: datetime) -> list[FailureGroup]:
    """Group the failures of each release whose jobs mostly fail on any host."""
    recent = Verdict.objects.filter(
        ended_at__gte=at - RELEASE_WITHIN, ended_at__lte=at, verdict__in=RELEASE_VERDICTS
    )
    recent = (
        recent.filter(group__kind=GroupKind.ERROR).exclude(job__release="").exclude(experiment=None)
    )
    counted = (
        recent.order_by()
        .values_list("experiment", "job__release")
        .annotate(
            jobs=Count("pk"),
            submissions=Count(_submission(), distinct=True),
            hosts=Count("job__host", distinct=True),
        )
        .filter(
            jobs__gte=RELEASE_JOBS, submissions__gte=RELEASE_SUBMISSIONS, hosts__gte=RELEASE_HOSTS
        )
    )
    groups = []
    for experiment_id, release, *_ in counted:
        if _is_bad(experiment_id, release, at):
            verdicts = recent.filter(experiment=experiment_id, job__release=release)
            groups.append(_release_group(experiment_id, release, verdicts, at))
    return groups


def _submission() -> Concat:
    return Concat(
        Cast("job__cluster", TextField()), Value("/"), F("job__spool_id"), output_field=TextField()
    )


def _is_bad(experiment_id: int, release: str, at: datetime) -> bool:
    """Return whether most jobs of a release fail, but few of other releases in the same stages."""
    jobs = Job.objects.filter(
        experiment=experiment_id, ended_at__gte=at - RELEASE_WITHIN, ended_at__lte=at
    ).exclude(stage__endswith=DEBUG_STAGE)
    stages = jobs.filter(release=release, state__in=FAILED_STATES).values("stage")
    is_of_release = Q(release=release)
    is_of_others = ~is_of_release & ~Q(release="")
    has_failed = Q(state__in=FAILED_STATES)
    sums = jobs.filter(stage__in=stages).aggregate(
        own=Count("pk", filter=is_of_release),
        bad=Count("pk", filter=is_of_release & has_failed),
        others=Count("pk", filter=is_of_others),
        others_bad=Count("pk", filter=is_of_others & has_failed),
    )
    # If a stage has no other release, the stage itself may be to blame.
    if sums["others"] < RELEASE_JOBS:
        return False
    share: float = sums["bad"] / sums["own"] if sums["own"] else 0.0
    elsewhere: float = sums["others_bad"] / sums["others"]
    return share >= RELEASE_SHARE and share >= RELEASE_FACTOR * elsewhere


def _release_group(
    experiment_id: int, release: str, verdicts: QuerySet[Verdict], at: datetime
) -> FailureGroup:
    key = Fingerprint(
        VerdictKind.CODE, cause="release", service=str(experiment_id), message=release
    )
    title = f"Release {release}: most jobs fail"
    return _blame(
        key,
        verdicts,
        at,
        kind=GroupKind.RELEASE,
        experiment_id=experiment_id,
        release=release,
        title=title,
    )


@transaction.atomic
def _blame(
    key: Fingerprint, verdicts: QuerySet[Verdict], at: datetime, **fields: Any
) -> FailureGroup:
    """Move these verdicts into the group of the host or release; open the group if needed."""
    rows = list(
        verdicts.exclude(group__fingerprint=key.digest).select_related("group").order_by("ended_at")
    )
    if not rows:
        return FailureGroup.objects.get(fingerprint=key.digest)
    lines = Counter(verdict.group.line for verdict in rows if verdict.group)
    line = lines.most_common(1)[0][0] if lines else ""
    group, created = FailureGroup.objects.get_or_create(
        fingerprint=key.digest,
        defaults=fields
        | {
            "verdict": key.verdict,
            "line": line,
            "status_at": at,
            "first_seen_at": rows[0].ended_at,
            "last_seen_at": rows[-1].ended_at,
        },
    )
    Verdict.objects.filter(pk__in=[verdict.pk for verdict in rows]).update(group=group)
    mark_dirty({hour_of(verdict.ended_at) for verdict in rows})
    if created:
        publish(
            kind="group.new", target=group, by="diagnosis", at=at, new=group.verdict, reason=line
        )
    return group
