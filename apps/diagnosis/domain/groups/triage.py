"""Failure groups: put each verdict into its group, and triage groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.accounts.models import Principal, User
from apps.accounts.permissions import is_opg, scope_of
from apps.core.domain.events import events_of, publish
from apps.core.domain.workflow import move
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.diagnosis.domain.groups.fingerprints import Fingerprint
from apps.diagnosis.enums import CLOSED, GROUP_MOVES, GroupKind, GroupStatus, VerdictKind
from apps.diagnosis.models import DailyCauseTotals, FailureGroup, GroupNote, Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.jobs.domain.records.jobs import short_host
from apps.jobs.enums import DEBUG_STAGE

#: Verdicts that a broken host can explain.
HOST_VERDICTS = (VerdictKind.SERVICE, VerdictKind.UNKNOWN)
#: A host is blamed for failures up to this long after the last failure on it.
HOST_WITHIN = timedelta(hours=6)
#: Verdicts that a bad release can explain.
RELEASE_VERDICTS = (VerdictKind.CODE, VerdictKind.UNKNOWN)


class Suspect(NamedTuple):
    """A host or a release that may be to blame for a failure.

    `owner_pk` is the primary key of the cluster of a host, or of the experiment of a release. The
    name of a host is its short one.
    """

    kind: GroupKind
    owner_pk: int | None
    name: str


def fingerprint_of(verdict: Verdict) -> Fingerprint:
    """Return the fingerprint of a verdict in its effective form."""
    kind = VerdictKind(verdict.verdict)
    return Fingerprint(kind, verdict.cause, verdict.service, verdict.message, verdict.frame)


@dataclass(frozen=True, slots=True)
class UngroupedVerdict:
    """A verdict that needs a group, and the title and log line of a new group for it."""

    verdict: Verdict
    title: str
    line: str


def group_for(verdict: Verdict, *, title: str, line: str, at: datetime) -> FailureGroup | None:
    """Return the group of a verdict; see `groups_for`."""
    return groups_for([UngroupedVerdict(verdict, title, line)], at=at)[0]


def groups_for(
    failures: Sequence[UngroupedVerdict], *, at: datetime, renames: bool = False
) -> list[FailureGroup | None]:
    """Return the group of each verdict; runs in the transaction that stores the verdicts.

    New groups are published. A job on a host, or of a release, with an open group belongs to that
    group, whatever its error. Debug re-runs have no group, since they repeat a known failure.
    With `renames`, groups take the titles of these failures, which follow their known errors.
    """
    open_groups = _open_groups_by_suspect(failures)
    blamed_groups = [_find_blamed_group(failure.verdict, open_groups) for failure in failures]
    digests = [_digest(failure.verdict) for failure in failures]

    in_order = zip(digests, failures, blamed_groups, strict=True)
    by_digest: dict[str, UngroupedVerdict] = {}
    for digest, failure, group in in_order:
        if digest and not group:
            by_digest[digest] = failure
    known = {}
    if by_digest:
        rows = FailureGroup.objects.filter(fingerprint__in=by_digest).only("fingerprint", "title")
        known = {group.fingerprint: group for group in rows}
    # In sorted order, so that two transactions never wait for each other.
    for digest in sorted(by_digest):
        if digest not in known:
            known[digest] = _get_or_create_group(digest, by_digest[digest], at)
        elif renames:
            _rename(known[digest], by_digest[digest])

    groups: list[FailureGroup | None] = []
    for digest, group in zip(digests, blamed_groups, strict=True):
        if digest:
            groups.append(group or known[digest])
        else:
            groups.append(None)
    return groups


def _rename(group: FailureGroup, failure: UngroupedVerdict) -> None:
    """Give a group of a known error the title of its newest failure."""
    verdict = failure.verdict
    is_automatic = verdict.verdict == verdict.machine_verdict
    if verdict.cause and is_automatic and group.title != failure.title:
        group.title = failure.title
        group.save(update_fields=["title"])


def _digest(verdict: Verdict) -> str:
    """Return the key of a verdict's group; "" for a debug re-run."""
    if verdict.job.stage.endswith(DEBUG_STAGE):
        return ""
    return fingerprint_of(verdict).digest


def _suspects(verdict: Verdict) -> list[Suspect]:
    """Return the host and the release that may have caused a verdict of this kind, host first."""
    job = verdict.job
    suspects: list[Suspect] = []
    if verdict.verdict in HOST_VERDICTS and job.host:
        suspects.append(Suspect(GroupKind.HOST, job.cluster_id, short_host(job.host)))
    if verdict.verdict in RELEASE_VERDICTS and job.release and not job.stage.endswith(DEBUG_STAGE):
        suspects.append(Suspect(GroupKind.RELEASE, job.experiment_id, job.release))
    return suspects


def _open_groups_by_suspect(failures: Sequence[UngroupedVerdict]) -> dict[Suspect, FailureGroup]:
    """Return the open groups of the hosts and releases of these failures."""
    suspects: set[Suspect] = set()
    for failure in failures:
        suspects.update(_suspects(failure.verdict))
    if not suspects:
        return {}

    hosts = {suspect.name for suspect in suspects if suspect.kind == GroupKind.HOST}
    releases = {suspect.name for suspect in suspects if suspect.kind == GroupKind.RELEASE}
    any_of = Q(host__in=hosts, kind=GroupKind.HOST) | Q(
        release__in=releases, kind=GroupKind.RELEASE
    )
    groups: dict[Suspect, FailureGroup] = {}
    for group in FailureGroup.objects.filter(any_of).exclude(status__in=CLOSED).order_by("-pk"):
        if group.kind == GroupKind.HOST:
            suspect = Suspect(GroupKind.HOST, group.cluster_id, group.host)
        else:
            suspect = Suspect(GroupKind.RELEASE, group.experiment_id, group.release)
        groups[suspect] = group
    return groups


def _find_blamed_group(
    verdict: Verdict, open_groups: Mapping[Suspect, FailureGroup]
) -> FailureGroup | None:
    for suspect in _suspects(verdict):
        group = open_groups.get(suspect)
        if group is not None and _is_still_to_blame(group, verdict):
            return group
    return None


def _is_still_to_blame(group: FailureGroup, verdict: Verdict) -> bool:
    """Return whether a job failed while the host or release of a group failed most jobs."""
    has_begun = group.first_seen_at <= verdict.ended_at
    is_over = group.kind == GroupKind.HOST and verdict.ended_at > group.last_seen_at + HOST_WITHIN
    return has_begun and not is_over


def _get_or_create_group(digest: str, failure: UngroupedVerdict, at: datetime) -> FailureGroup:
    verdict = failure.verdict
    line = failure.line
    group, created = FailureGroup.objects.get_or_create(
        fingerprint=digest,
        defaults={
            "verdict": verdict.verdict,
            "cause": verdict.cause,
            "service": verdict.service,
            "title": failure.title,
            "line": line,
            "status_at": at,
            "first_seen_at": verdict.ended_at,
            "last_seen_at": verdict.ended_at,
        },
    )
    if created:
        publish(
            kind="group.new", target=group, by="diagnosis", at=at, new=group.verdict, reason=line
        )
    return group


def visible_groups(user: User) -> QuerySet[FailureGroup]:
    """Return the groups with jobs that the user may see."""
    return FailureGroup.objects.filter(
        pk__in=DailyCauseTotals.objects.visible_to(user).values("group")
    )


def sees_all_of(user: User, group: FailureGroup) -> bool:
    """Return whether the user may see all jobs of a group."""
    scope = scope_of(user)
    return (
        scope.sees_all or not _totals(group).exclude(experiment__in=scope.experiment_keys).exists()
    )


def totals_of_others(user: Principal) -> QuerySet[DailyCauseTotals]:
    """Return the totals of jobs that the user may not see."""
    scope = scope_of(user)
    totals = DailyCauseTotals.objects.order_by()
    return totals.none() if scope.sees_all else totals.exclude(experiment__in=scope.experiment_keys)


def hide_lines_of_others(user: User, groups: Iterable[FailureGroup]) -> None:
    """Empty the lines of groups that may be of jobs that the user may not see; one query."""
    shared = {group.pk: group for group in groups if has_line_of_first_job(group)}
    for pk in totals_of_others(user).filter(group__in=shared).values_list("group", flat=True):
        shared[pk].line = ""


def has_line_of_first_job(group: FailureGroup) -> bool:
    """Return whether the line is that of the group's first job, and others may have other lines.

    The jobs of an error without a known one have the same masked line.
    """
    return bool(group.cause) or group.kind != GroupKind.ERROR


def has_in_readable_line(text: str, user: Principal) -> Q:
    """Return a condition for groups with a text in their line, if the user may read the line."""
    hidden = Exists(totals_of_others(user).filter(group=OuterRef("pk")))
    is_readable = Q(cause="", kind=GroupKind.ERROR) | Q(~hidden)
    return Q(line__icontains=text) & is_readable


def may_triage(user: User, group: FailureGroup) -> bool:
    """Return whether the user may change a group: the OPG, or a liaison of all its experiments."""
    experiments = _totals(group).order_by().values_list("experiment", flat=True).distinct()
    return all(may_correct_verdict(user, experiment) for experiment in experiments)


def find_triageable(user: User, keys: Sequence[int]) -> set[int]:
    """Return which of these groups, by primary key, the user may change, in at most one query."""
    if is_opg(user):
        return set(keys)
    totals = DailyCauseTotals.objects.filter(group__in=keys).order_by()
    allowed = set(keys)
    for group, experiment in totals.values_list("group", "experiment").distinct():
        if not may_correct_verdict(user, experiment):
            allowed.discard(group)
    return allowed


def experiments_in(group: FailureGroup) -> set[int | None]:
    """Return the experiments with jobs in a group, even if the group is not counted yet."""
    counted = set(_totals(group).order_by().values_list("experiment", flat=True).distinct())
    newest = Verdict.objects.filter(group=group).order_by("-ended_at", "-pk").first()
    return counted | ({newest.experiment_id} if newest else set())


def _totals(group: FailureGroup) -> QuerySet[DailyCauseTotals]:
    return DailyCauseTotals.objects.filter(group=group)


def _check_may_triage(user: User, group: FailureGroup) -> None:
    if not may_triage(user, group):
        raise NotAllowed(
            "Only the OPG, and liaisons of all experiments in the group, can change it."
        )


def _check_is_as_seen(group: FailureGroup, seen_at: datetime | None) -> None:
    if seen_at is not None and group.status_at > seen_at:
        state = group.get_status_display().lower()
        raise StaleState(
            f"{group} was changed by another user in the meantime: it is now {state}. Check "
            "it again."
        )


@transaction.atomic
def set_status(
    *,
    group: FailureGroup,
    status: GroupStatus,
    by: User,
    at: datetime,
    reason: str = "",
    muted_until: datetime | None = None,
    seen_at: datetime | None = None,
) -> FailureGroup:
    """Mark a group as known, retried, resolved, or muted until a time.

    `seen_at` is when the user saw the group's status; None skips the check. Raises `NotAllowed`,
    `InvalidTransition`, `StaleState`, and `InvalidFields` for a mute without an end or with an end
    in the past.
    """
    _check_may_triage(by, group)
    _check_is_as_seen(group, seen_at)
    if status == GroupStatus.MUTED and muted_until is None:
        raise InvalidFields({"muted_until": ["Enter how long it is muted."]})
    if muted_until is not None and muted_until <= at:
        raise InvalidFields(
            {"muted_until": [f"Choose a time after {timezone.localtime(at):%d %b %Y %H:%M}."]}
        )
    if status not in {
        GroupStatus.KNOWN,
        GroupStatus.RETRIED,
        GroupStatus.RESOLVED,
        GroupStatus.MUTED,
    }:
        raise InvalidFields({"status": ["Choose known, retried, resolved or muted."]})
    until = muted_until if status == GroupStatus.MUTED else None
    change_status(group=group, status=status, by=by, at=at, reason=reason, muted_until=until)
    return group


@transaction.atomic
def assign_group(
    *,
    group: FailureGroup,
    owner: str,
    by: User,
    at: datetime,
    reason: str = "",
    seen_at: datetime | None = None,
) -> FailureGroup:
    """Assign a group to a user, who is notified.

    `seen_at` is when `by` saw the group's status; None skips the check. Raises `NotAllowed`,
    `InvalidFields` for an unknown user, `InvalidTransition`, `StaleState`.
    """
    _check_may_triage(by, group)
    _check_is_as_seen(group, seen_at)
    user = User.objects.filter(username=owner, is_active=True).first()
    if user is None:
        raise InvalidFields({"owner": [f"There is no active user “{owner}”."]})
    if not visible_groups(user).filter(pk=group.pk).exists():
        raise InvalidFields({"owner": [f"{owner} may not see this group."]})
    changes = {"status_at": at, "owner": owner, "muted_until": None}
    old = move(group, to=GroupStatus.ASSIGNED, transitions=GROUP_MOVES, field="status", **changes)
    publish(
        kind="group.assigned", target=group, by=by, at=at, old=old, new=owner, reason=reason.strip()
    )
    return group


@transaction.atomic
def unmute_group(
    *, group: FailureGroup, by: User, at: datetime, seen_at: datetime | None = None
) -> None:
    """Unmute a group: see `end_mute`.

    `seen_at` is when the user saw the group's status; None skips the check. Raises `NotAllowed`,
    `InvalidTransition`, `StaleState`.
    """
    _check_may_triage(by, group)
    _check_is_as_seen(group, seen_at)
    end_mute(group=group, by=by, at=at)


def end_mute(*, group: FailureGroup, by: Principal, at: datetime, reason: str = "") -> None:
    """Return a muted group to its status before the mute.

    Raises `InvalidTransition`, `StaleState`.
    """
    if group.status != GroupStatus.MUTED:
        raise InvalidTransition(f"{group} is not muted.")
    mute = events_of(group).filter(kind="group.moved", new=GroupStatus.MUTED).last()
    status = GroupStatus(mute.old) if mute else GroupStatus.KNOWN
    change_status(group=group, status=status, by=by, at=at, reason=reason, muted_until=None)


@transaction.atomic
def change_status(
    *,
    group: FailureGroup,
    status: GroupStatus,
    by: Principal,
    at: datetime,
    reason: str = "",
    **changes: object,
) -> None:
    """Move a group to a status and publish it. Raises `InvalidTransition`, `StaleState`."""
    old = move(group, to=status, transitions=GROUP_MOVES, field="status", status_at=at, **changes)
    publish(
        kind="group.moved", target=group, by=by, at=at, old=old, new=status, reason=reason.strip()
    )


@transaction.atomic
def add_note(*, group: FailureGroup, text: str, by: User, at: datetime) -> GroupNote:
    """Add a note to a group. Raises `NotAllowed`, and `InvalidFields` for an empty note."""
    _check_may_triage(by, group)
    if not text.strip():
        raise InvalidFields({"text": ["Enter a note."]})
    return GroupNote.objects.create(group=group, by=str(by)[:150], at=at, text=text.strip())
