"""After each recount: groups that are back or jump, when they were seen, what they share, and broken hosts."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, F, Func, Max, Min, Q, QuerySet, Sum, TextField, Value
from django.db.models.functions import Cast, Concat

from apps.core.domain.events import publish
from apps.core.domain.workflow import move
from apps.diagnosis.domain.causes import mark_dirty
from apps.diagnosis.domain.fingerprints import Fingerprint
from apps.diagnosis.domain.group_profile import store_profile
from apps.diagnosis.domain.groups import HOST_VERDICTS, change_status
from apps.diagnosis.enums import CLOSED, GROUP_MOVES, GroupKind, GroupStatus, VerdictKind
from apps.diagnosis.models import CauseTotals, FailureGroup, Verdict
from apps.jobs.domain.records import hour_of
from apps.jobs.enums import FAILED_STATES
from apps.jobs.models import SHORT_HOST, Job

#: A jump: so many failures in one hour, and so many times the mean of the day before; published once in a while.
JUMP_JOBS, JUMP_FACTOR, JUMP_PAUSE = 20, 5, timedelta(hours=6)
#: What is common is computed again after this time, for so many groups per run.
PROFILE_AGE, PROFILES = timedelta(minutes=10), 20
#: A black hole: so many failures in this time, a share of all jobs on the host, and so much above the rest.
HOST_WITHIN, HOST_JOBS, HOST_SHARE, HOST_FACTOR, HOST_KINDS = timedelta(hours=6), 10, 0.8, 4, 2


def sweep_groups(*, group_ids: Iterable[int], at: datetime) -> None:
    """Update the groups whose totals were recounted, and look for hosts that fail nearly every job."""
    groups = list(FailureGroup.objects.filter(pk__in=list(group_ids)).order_by("pk"))
    for group in groups:
        _note_seen(group)
        _reopen(group, at)
        _note_jump(group, at)
    stale = FailureGroup.objects.filter(pk__in=[group.pk for group in groups])
    for group in stale.filter(Q(profiled_at=None) | Q(profiled_at__lte=at - PROFILE_AGE)).order_by("-pk")[:PROFILES]:
        store_profile(group=group, at=at)
    if groups:
        find_broken_hosts(at=at)


def _note_seen(group: FailureGroup) -> None:
    seen = CauseTotals.objects.filter(group=group).aggregate(first=Min("first_ended_at"), last=Max("last_ended_at"))
    if seen["first"] and (seen["first"], seen["last"]) != (group.first_seen_at, group.last_seen_at):
        group.first_seen_at, group.last_seen_at = seen["first"], seen["last"]
        group.save(update_fields=["first_seen_at", "last_seen_at"])


def _reopen(group: FailureGroup, at: datetime) -> None:
    """Reopen a closed group if a job failed that started after it was closed, and end an expired mute."""
    if group.status == GroupStatus.MUTED and group.muted_until and group.muted_until <= at:
        change_status(group=group, status=GroupStatus.KNOWN, by="diagnosis", at=at, reason="Mute expired.")
    again = Verdict.objects.filter(group=group, job__started_at__gt=group.status_at)
    if group.status in CLOSED and again.exists():
        with transaction.atomic():
            old = move(group, to=GroupStatus.REGRESSED, transitions=GROUP_MOVES, field="status", status_at=at)
            publish(kind="group.regressed", target=group, by="diagnosis", at=at, old=old, new=group.status)


def _note_jump(group: FailureGroup, at: datetime) -> None:
    hour = hour_of(at)
    totals = CauseTotals.objects.filter(group=group, hour__lte=hour).aggregate(
        now=Sum("jobs", filter=Q(hour=hour)),
        before=Sum("jobs", filter=Q(hour__gte=hour - timedelta(hours=24), hour__lt=hour)),
    )
    jobs, mean = totals["now"] or 0, (totals["before"] or 0) / 24
    is_muted = group.status == GroupStatus.MUTED or (group.jumped_at and group.jumped_at > at - JUMP_PAUSE)
    if jobs >= JUMP_JOBS and jobs >= JUMP_FACTOR * mean and not is_muted:
        with transaction.atomic():
            FailureGroup.objects.filter(pk=group.pk).update(jumped_at=at)
            publish(kind="group.jumped", target=group, by="diagnosis", at=at, data={"jobs": jobs})


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


@transaction.atomic
def _host_group(cluster: int, host: str, verdicts: QuerySet[Verdict], at: datetime) -> FailureGroup:
    """Move these verdicts into the group of their host, which is opened, or opened again."""
    rows = list(verdicts.select_related("group").order_by("ended_at"))
    line = rows[-1].group.line if rows[-1].group else ""
    group, created = FailureGroup.objects.get_or_create(
        fingerprint=Fingerprint(VerdictKind.SERVICE, cause="host", service=str(cluster), message=host).digest,
        defaults={
            "kind": GroupKind.HOST,
            "verdict": VerdictKind.SERVICE,
            "cluster_id": cluster,
            "host": host,
            "title": f"{host}: nearly every job fails",
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
