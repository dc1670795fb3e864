"""What events can be about, and what notifications need to know about each kind of target.

A new kind of target is a class here; if notifications show it, also a column of `Notification`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import Model, QuerySet
from django.urls import reverse

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.enums import Group
from apps.core.models import Event
from apps.diagnosis.domain.groups.triage import visible_groups
from apps.diagnosis.models import ExperimentPack, FailureGroup, KnownError, KnownErrorChange
from apps.jobs.models import Job
from apps.notifications.domain.recipients import (
    concerned_by,
    concerned_by_catalogue,
    concerned_by_failures,
    concerned_by_hold,
    concerned_by_message,
    concerned_by_proposal,
    concerned_by_rule,
)
from apps.notifications.models import Webhook
from apps.production.domain.holds import sees_hold
from apps.production.models import Hold, Request
from apps.progress.models import WeeklyReport
from apps.recovery.domain.rules.lifecycle import visible_rules
from apps.recovery.models import RecoveryRule
from apps.search.models import LineTemplate
from apps.statusboard.models import Incident


@dataclass(frozen=True)
class Recipients:
    """The users to notify with their group, and the experiments whose webhooks are called.

    Users and experiments are given by their primary keys.
    """

    groups: Mapping[int, Group] = field(default_factory=dict)
    experiment_pks: frozenset[int] = frozenset()


class TargetKind:
    """One kind of target.

    `events` are the kinds of its events that notify, and `column` is the field of `Notification`
    that refers to it, if any.
    """

    models: tuple[type[Model], ...] = ()
    events: tuple[str, ...] = ()
    column = ""

    def recipients(self, event: Event, target: Any) -> Recipients:
        """Return whom an event about the target concerns."""
        return Recipients()

    def is_visible(self, target: Any, user: User) -> bool:
        """Return whether a user may still see the target."""
        raise NotImplementedError

    def url(self, target: Any) -> str | None:
        """Return the address of the page about the target, if there is one."""
        address = getattr(target, "get_absolute_url", None)
        return f"{settings.PORTAL_URL}{address()}" if address else None


def _holds(rows: QuerySet[Any], target: Model) -> bool:
    return rows.filter(pk=target.pk).exists()


class RequestTarget(TargetKind):
    models = (Request,)
    events = ("request.*",)
    column = "request"

    def recipients(self, event: Event, target: Request) -> Recipients:
        return Recipients(concerned_by(event, target), frozenset({target.experiment_id}))

    def is_visible(self, target: Request, user: User) -> bool:
        return _holds(Request.objects.visible_to(user), target)


class HoldTarget(TargetKind):
    models = (Hold,)
    events = ("hold.*",)
    column = "hold"

    def recipients(self, event: Event, target: Hold) -> Recipients:
        groups, experiment_pks = concerned_by_hold(event, target)
        return Recipients(groups, frozenset(experiment_pks))

    def is_visible(self, target: Hold, user: User) -> bool:
        return sees_hold(user, target)

    def url(self, target: Hold) -> str:
        return settings.PORTAL_URL + reverse("production:holds")


class FailureGroupTarget(TargetKind):
    models = (FailureGroup,)
    events = ("group.*",)
    column = "failures"

    def recipients(self, event: Event, target: FailureGroup) -> Recipients:
        return Recipients(concerned_by_failures(event, target))

    def is_visible(self, target: FailureGroup, user: User) -> bool:
        return _holds(visible_groups(user), target)


class IncidentTarget(TargetKind):
    models = (Incident,)
    events = ("impact.*",)
    column = "incident"

    def recipients(self, event: Event, target: Incident) -> Recipients:
        return Recipients(concerned_by_failures(event, target))

    def is_visible(self, target: Incident, user: User) -> bool:
        return scope_of(user).sees_all


class WeeklyReportTarget(TargetKind):
    models = (WeeklyReport,)
    events = ("report.weekly",)
    column = "report"

    def recipients(self, event: Event, target: WeeklyReport) -> Recipients:
        return Recipients(concerned_by_failures(event, target))

    def is_visible(self, target: WeeklyReport, user: User) -> bool:
        return scope_of(user).sees(target.experiment_id)


class KnownErrorTarget(TargetKind):
    """A known error or a proposed change of one; all users may read the catalogue."""

    models = (KnownError, KnownErrorChange)
    events = ("known_error.*",)

    def recipients(self, event: Event, target: KnownError | KnownErrorChange) -> Recipients:
        if isinstance(target, KnownErrorChange):
            return Recipients(concerned_by_proposal(event, target))
        return Recipients(concerned_by_catalogue(event))

    def is_visible(self, target: KnownError | KnownErrorChange, user: User) -> bool:
        return True


class ExperimentPackTarget(TargetKind):
    models = (ExperimentPack,)
    events = ("pack.*",)

    def recipients(self, event: Event, target: ExperimentPack) -> Recipients:
        return Recipients(concerned_by_proposal(event, target))

    def is_visible(self, target: ExperimentPack, user: User) -> bool:
        return scope_of(user).sees(target.experiment_id)


class RecoveryRuleTarget(TargetKind):
    models = (RecoveryRule,)
    events = ("recovery.stopped",)

    def recipients(self, event: Event, target: RecoveryRule) -> Recipients:
        return Recipients(concerned_by_rule(event, target))

    def is_visible(self, target: RecoveryRule, user: User) -> bool:
        return _holds(visible_rules(user), target)


class JobTarget(TargetKind):
    """A job, which messages to an experiment are about."""

    models = (Job,)

    def is_visible(self, target: Job, user: User) -> bool:
        return _holds(Job.objects.visible_to(user), target)


class LineTarget(TargetKind):
    """A line in the logs of an experiment's jobs."""

    models = (LineTemplate,)
    events = ("line.*",)

    def recipients(self, event: Event, target: LineTemplate) -> Recipients:
        if event.kind == "line.seen":
            return Recipients(concerned_by_message(event))
        return Recipients(concerned_by_failures(event, target))

    def is_visible(self, target: LineTemplate, user: User) -> bool:
        return _holds(LineTemplate.objects.visible_to(user), target)

    def url(self, target: LineTemplate) -> str:
        return settings.PORTAL_URL + reverse("diagnosis:template", args=[target.pk])


class WebhookTarget(TargetKind):
    """A webhook; only calls to it are about it."""

    models = (Webhook,)

    def is_visible(self, target: Webhook, user: User) -> bool:
        return True


TARGET_KINDS: tuple[TargetKind, ...] = (
    RequestTarget(),
    HoldTarget(),
    FailureGroupTarget(),
    IncidentTarget(),
    WeeklyReportTarget(),
    KnownErrorTarget(),
    ExperimentPackTarget(),
    RecoveryRuleTarget(),
    JobTarget(),
    LineTarget(),
    WebhookTarget(),
)


def events_that_notify() -> list[str]:
    """Return the kinds of events about all targets."""
    events: list[str] = []
    for kind in TARGET_KINDS:
        events += kind.events
    return events


def kind_of_target(target: object) -> TargetKind | None:
    """Return the kind of a target; None if notifications do not know it, or it is gone."""
    for kind in TARGET_KINDS:
        if isinstance(target, kind.models):
            return kind
    return None


def may_see(user: User, target: object) -> bool:
    """Return whether a user may still see what an event is about."""
    kind = kind_of_target(target)
    return kind is not None and kind.is_visible(target, user)
