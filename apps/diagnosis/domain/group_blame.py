"""Groups of what is to blame, whatever the error: hosts and releases whose jobs nearly all fail."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from apps.core.domain.events import publish
from apps.diagnosis.domain.causes import mark_dirty
from apps.diagnosis.domain.fingerprints import Fingerprint
from apps.diagnosis.domain.groups import HOST_VERDICTS, RELEASE_VERDICTS
from apps.diagnosis.enums import GroupKind, VerdictKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.records import hour_of
from apps.jobs.enums import DEBUG_STAGE, FAILED_STATES
from apps.jobs.models import SHORT_HOST, Job

#: A black hole: so many failures in this time, a share of all jobs on the host, and so much above the rest.
HOST_WITHIN, HOST_JOBS, HOST_SHARE, HOST_FACTOR, HOST_KINDS = timedelta(hours=6), 10, 0.8, 4, 2
#: A bad release: so many failures in this time, in so many submissions and on so many hosts, a share of all its jobs,
#: and so much above at least as many jobs of other releases in the same stages.
RELEASE_WITHIN, RELEASE_JOBS, RELEASE_SHARE, RELEASE_FACTOR = timedelta(hours=24), 10, 0.5, 4
RELEASE_SUBMISSIONS, RELEASE_HOSTS = 3, 2


def find_broken_hosts(*, at: datetime) -> list[FailureGroup]:
    """Give each host on which nearly every job fails, whatever its stage or experiment, a group of its own."""
    recent = Verdict.objects.filter(ended_at__gte=at - HOST_WITHIN, ended_at__lte=at, verdict__in=HOST_VERDICTS)
    recent = recent.filter(group__kind=GroupKind.ERROR).exclude(job__host="")
    counted = (
        recent.annotate(short=_host("job__host"))
        .order_by()
        .values_list("job__cluster", "short")
        .annotate(jobs=Count("pk"), kinds=Count(_kind(), distinct=True))
        .filter(jobs__gte=HOST_JOBS, kinds__gte=HOST_KINDS)
    )
    found = []
    for cluster, host, _, _ in counted:
        if _is_broken(cluster, host, at):
            on_host = Q(job__host=host) | Q(job__host__startswith=f"{host}.")
            found.append(_host_group(cluster, host, recent.filter(on_host, job__cluster=cluster), at))
    return found


def _host(name: str) -> Func:
    return Func(F(name), Value("."), Value(1), function="split_part", output_field=TextField())


def _kind() -> Concat:
    return Concat(Cast("experiment", TextField()), Value("/"), F("job__stage"), output_field=TextField())


def _is_broken(cluster: int, host: str, at: datetime) -> bool:
    """Return whether the share of failed jobs on a host is high, and far above that of the cluster's other hosts."""
    jobs = Job.objects.filter(cluster=cluster, ended_at__gte=at - HOST_WITHIN, ended_at__lte=at)
    here, failed = Q(short=host), Q(state__in=FAILED_STATES)
    sums = jobs.annotate(short=SHORT_HOST).aggregate(
        here=Count("pk", filter=here),
        bad=Count("pk", filter=here & failed),
        all=Count("pk"),
        all_bad=Count("pk", filter=failed),
    )
    rest = sums["all"] - sums["here"]
    elsewhere = (sums["all_bad"] - sums["bad"]) / rest if rest else 1.0
    share = sums["bad"] / sums["here"] if sums["here"] else 0.0
    return share >= HOST_SHARE and share >= HOST_FACTOR * elsewhere


def _host_group(cluster: int, host: str, verdicts: QuerySet[Verdict], at: datetime) -> FailureGroup:
    key = Fingerprint(VerdictKind.SERVICE, cause="host", service=str(cluster), message=host)
    title = f"{host}: nearly every job fails"
    return _blame(key, verdicts, at, kind=GroupKind.HOST, cluster_id=cluster, host=host, title=title)


def find_bad_releases(*, at: datetime) -> list[FailureGroup]:
    """Give each release of an experiment whose jobs mostly fail, on any host, a group of its own."""
    recent = Verdict.objects.filter(ended_at__gte=at - RELEASE_WITHIN, ended_at__lte=at, verdict__in=RELEASE_VERDICTS)
    recent = recent.filter(group__kind=GroupKind.ERROR).exclude(job__release="").exclude(experiment=None)
    counted = (
        recent.order_by()
        .values_list("experiment", "job__release")
        .annotate(
            jobs=Count("pk"),
            submissions=Count(_submission(), distinct=True),
            hosts=Count("job__host", distinct=True),
        )
        .filter(jobs__gte=RELEASE_JOBS, submissions__gte=RELEASE_SUBMISSIONS, hosts__gte=RELEASE_HOSTS)
    )
    return [
        _release_group(experiment, release, recent.filter(experiment=experiment, job__release=release), at)
        for experiment, release, *_ in counted
        if _is_bad(experiment, release, at)
    ]


def _submission() -> Concat:
    return Concat(Cast("job__cluster", TextField()), Value("/"), F("job__spool_id"), output_field=TextField())


def _is_bad(experiment: int, release: str, at: datetime) -> bool:
    """Return whether most jobs of a release fail, and few of other releases in the same stages."""
    within: dict[str, Any] = {"ended_at__gte": at - RELEASE_WITHIN, "ended_at__lte": at}
    jobs = Job.objects.filter(experiment=experiment, **within).exclude(stage__endswith=DEBUG_STAGE)
    stages = jobs.filter(release=release, state__in=FAILED_STATES).values("stage")
    has, failed = Q(release=release), Q(state__in=FAILED_STATES)
    sums = jobs.filter(stage__in=stages).aggregate(
        own=Count("pk", filter=has),
        bad=Count("pk", filter=has & failed),
        others=Count("pk", filter=~has & ~Q(release="")),
        others_bad=Count("pk", filter=~has & ~Q(release="") & failed),
    )
    if sums["others"] < RELEASE_JOBS:  # a stage that fails with its only release may be to blame itself
        return False
    share: float = sums["bad"] / sums["own"] if sums["own"] else 0.0
    elsewhere: float = sums["others_bad"] / sums["others"]
    return share >= RELEASE_SHARE and share >= RELEASE_FACTOR * elsewhere


def _release_group(experiment: int, release: str, verdicts: QuerySet[Verdict], at: datetime) -> FailureGroup:
    key = Fingerprint(VerdictKind.CODE, cause="release", service=str(experiment), message=release)
    title = f"Release {release}: most jobs fail"
    return _blame(key, verdicts, at, kind=GroupKind.RELEASE, experiment_id=experiment, release=release, title=title)


@transaction.atomic
def _blame(key: Fingerprint, verdicts: QuerySet[Verdict], at: datetime, **fields: Any) -> FailureGroup:
    """Move these verdicts into the group of what is to blame, which is opened, or opened again."""
    rows = list(verdicts.select_related("group").order_by("ended_at"))
    line = rows[-1].group.line if rows[-1].group else ""
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
    Verdict.objects.filter(pk__in=[row.pk for row in rows]).update(group=group)
    mark_dirty({hour_of(row.ended_at) for row in rows})
    if created:
        publish(kind="group.new", target=group, by="diagnosis", at=at, new=group.verdict, reason=line)
    return group
