"""Services, their state history, and what determines it.

Incidents, maintenance windows and monitoring sources determine the state of a service.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Self
from uuid import uuid4

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import (
    ArrayField,
    DateTimeRangeField,
    RangeBoundary,
    RangeOperators,
)
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Func, Q

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.core.models import Work
from apps.statusboard.enums import (
    INCIDENT_STATES,
    Cause,
    Monitoring,
    NoteKind,
    PayloadState,
    Resolution,
    State,
    WindowEffect,
)


class Period(Func):
    """A half-open range from two columns."""

    function = "TSTZRANGE"
    output_field = DateTimeRangeField()


class SpanQuerySet(models.QuerySet[models.Model]):
    """Rows with a start and, unless ongoing, an end."""

    def current(self, at: datetime) -> Self:
        return self.filter(Q(ended_at=None) | Q(ended_at__gt=at), started_at__lte=at)

    def overlapping(self, started_at: datetime, ended_at: datetime | None) -> Self:
        """Return rows that overlap [started_at, ended_at)."""
        rows = self.filter(Q(ended_at=None) | Q(ended_at__gt=started_at))
        if ended_at is None:
            return rows
        return rows.filter(started_at__lt=ended_at)


def _has_texts_only(value: Any) -> bool:
    """Return whether a value of JSON is an object whose values are texts."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


class MonitoringSource(models.Model):
    """A monitoring system that posts alerts.

    If its heartbeats stop, all services it covers become unknown.
    """

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    feed = models.CharField(
        max_length=64, help_text="Format of its payloads, for example alertmanager."
    )
    token_hashes = ArrayField(models.CharField(max_length=64), default=list, editable=False)
    monitored_since = models.DateTimeField()
    heartbeat_timeout_seconds = models.PositiveIntegerField(
        "heartbeat timeout",
        default=900,
        help_text="Time without a heartbeat after which its services become unknown, "
        "such as 15 min.",
    )
    lease_seconds = models.PositiveIntegerField(
        default=3600,
        help_text="Time after which an open alert becomes stale unless it is repeated, "
        "such as 1 h.",
    )
    mapping = models.JSONField(
        default=dict,
        blank=True,
        help_text="Paths of the values in its payloads. For the feed json only.",
    )
    sends_heartbeats = models.BooleanField(
        default=False,
        editable=False,
        help_text=(
            "Set by the first heartbeat alert. From then on, other alerts do not count as "
            "heartbeats."
        ),
    )
    covered_until = models.DateTimeField(editable=False)
    pull_url = models.URLField(
        max_length=500,
        blank=True,
        help_text="URL of its current state, which is fetched every minute. The host must be in "
        "FEED_HOSTS.",
    )
    pulled_at = models.DateTimeField(null=True, blank=True, editable=False)
    pull_error = models.CharField(max_length=300, blank=True, editable=False)
    last_seen_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if not _has_texts_only(self.mapping):
            raise ValidationError(
                {"mapping": 'Enter names with paths, for example {"key": "id", "state": "status"}.'}
            )


class Service(models.Model):
    """A system that jobs depend on."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    kind = models.CharField(
        max_length=64, blank=True, help_text="For example: data catalogue, storage."
    )
    parent = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="children"
    )
    monitoring = models.CharField(max_length=16, choices=Monitoring, default=Monitoring.NONE)
    source = models.ForeignKey(
        MonitoringSource, on_delete=models.PROTECT, null=True, blank=True, related_name="services"
    )
    monitored_since = models.DateTimeField(null=True, blank=True)
    advice = models.TextField(
        blank=True,
        help_text=(
            "Shown while the service is down, for example “Jobs that declare files will fail: do "
            "not submit.”"
        ),
    )
    owner = models.CharField(max_length=100, blank=True, help_text="The group that runs it.")
    contact = models.CharField(
        max_length=200, blank=True, help_text="E-mail address, channel or phone number."
    )
    runbook = models.URLField(max_length=2000, blank=True, help_text="What to do when it is down.")
    depends_on = models.ManyToManyField(
        "self",
        symmetrical=False,
        blank=True,
        related_name="needed_by",
        help_text="Services that it cannot work without.",
    )

    #: Set by ABSOLUTE_URL_OVERRIDES in the settings: the page of a service belongs to the app
    #: `portal`.
    get_absolute_url: Callable[[], str]

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(monitoring=Monitoring.NONE)
                | Q(monitoring=Monitoring.MANUAL, monitored_since__isnull=False)
                | Q(
                    monitoring=Monitoring.FEED, monitored_since__isnull=False, source__isnull=False
                ),
                name="service_monitoring",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        above = self.parent
        while above is not None:
            if above.pk == self.pk:
                raise ValidationError(
                    {
                        "parent": (
                            "A service cannot be a component of itself or of one of its components."
                        )
                    }
                )
            above = above.parent


class Incident(models.Model):
    """A service that is down or degraded, as reported by a source or a user.

    `state` is the state of the latest change.
    """

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="incidents")
    source = models.ForeignKey(MonitoringSource, on_delete=models.PROTECT, null=True, blank=True)
    dedup_key = models.CharField(max_length=200)
    episode_started_at = models.DateTimeField(
        editable=False, help_text="Start as its source reports it, which identifies the episode."
    )
    started_at = models.DateTimeField(help_text="Start, corrected where the source was wrong.")
    ended_at = models.DateTimeField(null=True, blank=True)
    state = models.CharField(
        max_length=16, choices=[(state.value, state.label) for state in INCIDENT_STATES]
    )
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    url = models.URLField(max_length=2000, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    stale_at = models.DateTimeField(
        null=True, blank=True, help_text="When its lease expired without an update."
    )
    flap_count = models.PositiveIntegerField(
        default=0, help_text="How often it reopened soon after it ended."
    )
    opened_by = models.CharField(max_length=150)
    closed_by = models.CharField(max_length=150, blank=True)
    resolution = models.CharField(max_length=16, choices=Resolution, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    post_mortem = models.TextField(
        "post-mortem", blank=True, help_text="What happened, why, and what prevents it."
    )
    merged_into = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="merged",
        help_text="The incident of the same service that this one was merged into.",
    )

    #: Set by ABSOLUTE_URL_OVERRIDES in the settings: the incident page belongs to the app `portal`.
    get_absolute_url: Callable[[], str]

    objects = SpanQuerySet.as_manager()

    class Meta:
        ordering = ["-started_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["source", "dedup_key", "episode_started_at"], name="incident_once"
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=F("started_at")),
                name="incident_ends_after_start",
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None, resolution="")
                | Q(ended_at__isnull=False, resolution__in=Resolution.values),
                name="incident_resolution",
            ),
            models.CheckConstraint(condition=Q(state__in=INCIDENT_STATES), name="incident_state"),
            models.CheckConstraint(
                condition=Q(merged_into=None) | ~Q(merged_into=F("pk")),
                name="incident_not_merged_into_itself",
            ),
        ]
        indexes = [
            models.Index(fields=["service", "started_at"]),
            models.Index(
                fields=["lease_expires_at"], condition=Q(ended_at=None), name="incident_open"
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        return self.ended_at is None

    @property
    def unknown_from(self) -> datetime | None:
        """The time when the state becomes unknown, or became so, because the lease expires."""
        return self.lease_expires_at if self.is_open else self.stale_at


class IncidentChange(models.Model):
    """The state of an incident from a moment until its next change.

    The first change also holds before that moment.
    """

    incident = models.ForeignKey(
        Incident, on_delete=models.CASCADE, related_name="changes", db_index=False
    )
    at = models.DateTimeField()
    state = models.CharField(
        max_length=16, choices=[(state.value, state.label) for state in INCIDENT_STATES]
    )

    class Meta:
        ordering = ["at"]
        constraints = [
            models.UniqueConstraint(fields=["incident", "at"], name="incident_change_once"),
            models.CheckConstraint(
                condition=Q(state__in=INCIDENT_STATES), name="incident_change_state"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.state} from {self.at:%Y-%m-%d %H:%M}"


class IncidentNote(models.Model):
    """An update for users, or an excerpt of the service's log."""

    incident = models.ForeignKey(
        Incident, on_delete=models.CASCADE, related_name="notes", db_index=False
    )
    kind = models.CharField(max_length=8, choices=NoteKind)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    text = models.TextField()
    origin = models.CharField(max_length=200, blank=True, help_text="Host or file of a log.")

    class Meta:
        ordering = ["at", "pk"]
        indexes = [models.Index(fields=["incident", "at"])]

    def __str__(self) -> str:
        return self.text[:80]


class DowntimeWindow(models.Model):
    """A maintenance window of one or more services."""

    services = models.ManyToManyField(Service, related_name="windows")
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    cancelled_at = models.DateTimeField(null=True, blank=True)
    scheduled_by = models.CharField(max_length=150)
    effect = models.CharField(max_length=16, choices=WindowEffect, default=WindowEffect.DOWN)
    source = models.ForeignKey(
        MonitoringSource,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="windows",
        editable=False,
    )
    source_key = models.CharField(max_length=200, blank=True, editable=False)
    series = models.UUIDField(
        null=True,
        blank=True,
        editable=False,
        db_index=True,
        help_text="Shared by the windows of repeated work.",
    )

    class Meta:
        ordering = ["starts_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["source", "source_key"],
                condition=Q(source__isnull=False),
                name="window_of_source_once",
            ),
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="window_ends_after_start"
            ),
        ]
        indexes = [models.Index(fields=["ends_at"])]

    def __str__(self) -> str:
        return self.title

    @property
    def over_at(self) -> datetime:
        """The actual end: its cancellation, if that is earlier than its scheduled end."""
        if not self.cancelled_at:
            return self.ends_at
        return min(self.ends_at, self.cancelled_at)


class AnnouncementQuerySet(models.QuerySet["Announcement"]):
    def visible_to(self, user: User) -> Self:
        """Return announcements for everyone or for the user's experiments; the OPG sees all."""
        scope = scope_of(user)
        if scope.sees_all:
            return self
        own = Announcement.experiments.through.objects.filter(announcement=models.OuterRef("pk"))
        return self.filter(
            ~models.Exists(own) | models.Exists(own.filter(experiment__in=scope.experiment_keys))
        )

    def current(self, at: datetime) -> Self:
        return self.filter(
            Q(ends_at=None) | Q(ends_at__gt=at), starts_at__lte=at, withdrawn_at=None
        )

    def coming(self, at: datetime) -> Self:
        """Return announcements that are shown now or later."""
        return self.filter(Q(ends_at=None) | Q(ends_at__gt=at), withdrawn_at=None)


class Announcement(models.Model):
    """A message of the OPG to everyone, or to the members of some experiments."""

    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    do_not_submit = models.BooleanField(
        default=False, help_text="Advise against submitting jobs while the announcement is shown."
    )
    experiments = models.ManyToManyField(
        Experiment,
        blank=True,
        related_name="announcements",
        help_text="Empty: visible to everyone.",
    )
    services = models.ManyToManyField(Service, blank=True, related_name="announcements")
    posted_by = models.CharField(max_length=150)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    pinned = models.BooleanField(
        default=False, help_text="Shown first, also to those who have read it."
    )
    read_by = models.ManyToManyField(User, blank=True, editable=False, related_name="+")

    objects = AnnouncementQuerySet.as_manager()

    class Meta:
        ordering = ["-pinned", "-starts_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("starts_at")),
                name="announcement_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return self.title


class StateInterval(models.Model):
    """An interval of a service's state, past or predicted.

    Only `domain.states.history.rebuild` writes these rows.

    The rows of a service cover all time without gap or overlap. Future rows hold the state for the
    case that no more data arrives, so pages are right without a periodic task.
    """

    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="intervals")
    state = models.CharField(max_length=16, choices=State)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=16, choices=Cause)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True)
    window = models.ForeignKey(DowntimeWindow, on_delete=models.CASCADE, null=True, blank=True)

    objects = SpanQuerySet.as_manager()

    class Meta:
        ordering = ["started_at"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=State.values), name="interval_state"),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gt=F("started_at")),
                name="interval_ends_after_start",
            ),
            ExclusionConstraint(
                name="interval_no_overlap",
                expressions=[
                    ("service", RangeOperators.EQUAL),
                    (Period("started_at", "ended_at", RangeBoundary()), RangeOperators.OVERLAPS),
                ],
            ),
        ]
        indexes = [
            models.Index(fields=["service", "started_at"]),
            models.Index(fields=["ended_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.service_id} {self.state} from {self.started_at:%Y-%m-%d %H:%M}"


class MonitoringGap(models.Model):
    """A period without heartbeats of a source; an ongoing gap has no end."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="gaps")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = SpanQuerySet.as_manager()

    class Meta:
        ordering = ["-started_at"]
        constraints = [
            models.UniqueConstraint(fields=["source", "started_at"], name="monitoring_gap_once")
        ]

    def __str__(self) -> str:
        return f"gap of source {self.source_id} from {self.started_at:%Y-%m-%d %H:%M}"


class LabelRule(models.Model):
    """Maps alerts to a service by labels.

    If no rule matches, the label `service` is used as the service's slug.
    """

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="rules")
    matchers = models.JSONField(
        default=dict, help_text='Labels that must all match, for example {"job": "samweb"}'
    )
    service = models.ForeignKey(
        Service,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: ignore these alerts.",
    )
    state = models.CharField(
        max_length=16,
        choices=[(state.value, state.label) for state in INCIDENT_STATES],
        blank=True,
        help_text="Empty: down if the severity is critical, otherwise degraded.",
    )

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return (
            ", ".join(f"{name}={value}" for name, value in self.matchers.items()) or "every alert"
        )

    def clean(self) -> None:
        if not _has_texts_only(self.matchers):
            raise ValidationError(
                {"matchers": 'Enter labels and text values, for example {"job": "samweb"}.'}
            )


class UnmappedAlert(models.Model):
    """An alert that is not mapped to a service, as last received."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="unmapped")
    dedup_key = models.CharField(max_length=200)
    labels = models.JSONField(default=dict)
    title = models.CharField(max_length=200, blank=True)
    count = models.PositiveIntegerField(default=0)
    last_seen_at = models.DateTimeField()

    class Meta:
        ordering = ["-last_seen_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["source", "dedup_key"], name="unmapped_once")
        ]

    def __str__(self) -> str:
        return self.title or self.dedup_key


class EarlyEnd(models.Model):
    """The end of an alert that arrived before its start: feeds may deliver out of order."""

    source = models.ForeignKey(
        MonitoringSource, on_delete=models.CASCADE, related_name="early_ends"
    )
    dedup_key = models.CharField(max_length=200)
    ended_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "dedup_key"], name="early_end_once")
        ]

    def __str__(self) -> str:
        return f"end of {self.dedup_key} at {self.ended_at:%Y-%m-%d %H:%M}"


class RawPayload(Work):
    """A payload as posted by a source, stored before it is parsed."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="payloads")
    received_at = models.DateTimeField()
    receipt = models.UUIDField(
        default=uuid4,
        unique=True,
        editable=False,
        help_text="Assigned when the payload was accepted, so that it is stored once.",
    )
    sha256 = models.CharField(max_length=64)
    body = models.BinaryField()
    state = models.CharField(max_length=16, choices=PayloadState, default=PayloadState.RECEIVED)
    notes = models.TextField(blank=True, help_text="What could not be parsed, and why.")
    unmapped = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-received_at", "-pk"]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(state="received"), name="payload_waiting"),
            models.Index(fields=["source", "received_at"]),
            models.Index(
                fields=["source", "-received_at"], condition=~Q(notes=""), name="payload_with_notes"
            ),
        ]

    def __str__(self) -> str:
        return f"payload {self.pk}"
