"""The service tree, its history, and what decides it: incidents, planned windows, monitoring sources."""

from datetime import datetime
from typing import Self

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, DateTimeRangeField, RangeBoundary, RangeOperators
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Func, Q

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.statusboard.enums import INCIDENT_STATES, Cause, Monitoring, PayloadState, Resolution, State


class Period(Func):
    """Two columns as one half-open range."""

    function = "TSTZRANGE"
    output_field = DateTimeRangeField()


class SpanQuerySet(models.QuerySet[models.Model]):
    """Rows with a time of start and, unless they go on, of end."""

    def current(self, at: datetime) -> Self:
        return self.filter(Q(ended_at=None) | Q(ended_at__gt=at), started_at__lte=at)

    def overlapping(self, started_at: datetime, ended_at: datetime | None) -> Self:
        """Keep what has a moment in common with [started_at, ended_at)."""
        rows = self.filter(Q(ended_at=None) | Q(ended_at__gt=started_at))
        return rows if ended_at is None else rows.filter(started_at__lt=ended_at)


class MonitoringSource(models.Model):
    """A monitoring system that posts alerts. What it says holds for a while; once silent, all it covers is unknown."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    feed = models.CharField(max_length=64, help_text="The format that it posts: alertmanager, …")
    token_hashes = ArrayField(models.CharField(max_length=64), default=list, editable=False)
    monitored_since = models.DateTimeField()
    heartbeat_timeout_seconds = models.PositiveIntegerField(
        default=900, help_text="How long a sign of life holds. After that, its services are unknown."
    )
    lease_seconds = models.PositiveIntegerField(
        default=3600, help_text="How long an open alert holds unless it is repeated. After that, it is unknown."
    )
    sends_heartbeats = models.BooleanField(
        default=False, editable=False, help_text="Once a heartbeat was heard, only heartbeats are signs of life."
    )
    covered_until = models.DateTimeField(editable=False)
    last_seen_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Service(models.Model):
    """A system that jobs depend on."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=64, blank=True, help_text="What it is, in two words: data catalogue, storage, …")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    monitoring = models.CharField(max_length=16, choices=Monitoring, default=Monitoring.NONE)
    source = models.ForeignKey(
        MonitoringSource, on_delete=models.PROTECT, null=True, blank=True, related_name="services"
    )
    monitored_since = models.DateTimeField(null=True, blank=True)
    advice = models.TextField(
        blank=True, help_text="Shown while it is down: “Jobs that declare files will fail: do not submit.”"
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(monitoring=Monitoring.NONE)
                | Q(monitoring=Monitoring.MANUAL, monitored_since__isnull=False)
                | Q(monitoring=Monitoring.FEED, monitored_since__isnull=False, source__isnull=False),
                name="service_monitoring",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        above = self.parent
        while above is not None:
            if above.pk == self.pk:
                raise ValidationError({"parent": "A service cannot be a part of itself, nor of one of its parts."})
            above = above.parent


class Incident(models.Model):
    """A service in trouble, reported by a source or by a person."""

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="incidents")
    source = models.ForeignKey(MonitoringSource, on_delete=models.PROTECT, null=True, blank=True)
    dedup_key = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=[(state.value, state.label) for state in INCIDENT_STATES])
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    url = models.URLField(max_length=2000, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    stale_at = models.DateTimeField(null=True, blank=True, help_text="From then on nobody knows whether it lasts.")
    flap_count = models.PositiveIntegerField(default=0, help_text="How often it came back soon after its end.")
    opened_by = models.CharField(max_length=150)
    closed_by = models.CharField(max_length=150, blank=True)
    resolution = models.CharField(max_length=16, choices=Resolution, blank=True)

    objects = SpanQuerySet.as_manager()

    class Meta:
        ordering = ["-started_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["source", "dedup_key", "started_at"], name="incident_once"),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=F("started_at")), name="incident_ends_after_start"
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None, resolution="") | Q(ended_at__isnull=False, resolution__in=Resolution.values),
                name="incident_resolution",
            ),
            models.CheckConstraint(condition=Q(state__in=INCIDENT_STATES), name="incident_state"),
        ]
        indexes = [
            models.Index(fields=["service", "started_at"]),
            models.Index(fields=["lease_expires_at"], condition=Q(ended_at=None), name="incident_open"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        return self.ended_at is None

    @property
    def unknown_from(self) -> datetime | None:
        """When its last lease runs out, or ran out without a word that it lasted longer."""
        return self.lease_expires_at if self.is_open else self.stale_at


class DowntimeWindow(models.Model):
    """A planned time of maintenance of some services."""

    services = models.ManyToManyField(Service, related_name="windows")
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    cancelled_at = models.DateTimeField(null=True, blank=True)
    scheduled_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["starts_at", "pk"]
        constraints = [
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="window_ends_after_start"),
        ]
        indexes = [models.Index(fields=["ends_at"])]

    def __str__(self) -> str:
        return self.title

    @property
    def over_at(self) -> datetime:
        """When it ends in fact: at its cancellation, if that came first."""
        return min(self.ends_at, self.cancelled_at) if self.cancelled_at else self.ends_at


class AnnouncementQuerySet(models.QuerySet["Announcement"]):
    def visible_to(self, user: User) -> Self:
        """Keep what this person may see: for all, for an own experiment; everything, for the OPG."""
        scope = scope_of(user)
        if scope.sees_all:
            return self
        own = Announcement.experiments.through.objects.filter(announcement=models.OuterRef("pk"))
        return self.filter(~models.Exists(own) | models.Exists(own.filter(experiment__in=scope.experiments)))

    def current(self, at: datetime) -> Self:
        return self.filter(Q(ends_at=None) | Q(ends_at__gt=at), starts_at__lte=at, withdrawn_at=None)

    def coming(self, at: datetime) -> Self:
        """Keep what is shown now or will be."""
        return self.filter(Q(ends_at=None) | Q(ends_at__gt=at), withdrawn_at=None)


class Announcement(models.Model):
    """A word of the OPG to all, or to the members of some experiments."""

    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    do_not_submit = models.BooleanField(default=False, help_text="Advise against submitting jobs while it is shown.")
    experiments = models.ManyToManyField(
        Experiment, blank=True, related_name="announcements", help_text="None: for everybody."
    )
    services = models.ManyToManyField(Service, blank=True, related_name="announcements")
    posted_by = models.CharField(max_length=150)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    objects = AnnouncementQuerySet.as_manager()

    class Meta:
        ordering = ["-starts_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("starts_at")), name="announcement_ends_after_start"
            ),
        ]

    def __str__(self) -> str:
        return self.title


class StateInterval(models.Model):
    """One stretch of a service's state, known or foreseen; written by `services.history.rebuild` alone.

    The rows of a service cover all time without gap or overlap. Those after now say what will hold if nothing more is
    heard: that is why a page needs no clockwork to be right.
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
                condition=Q(ended_at=None) | Q(ended_at__gt=F("started_at")), name="interval_ends_after_start"
            ),
            ExclusionConstraint(
                name="interval_no_overlap",
                expressions=[
                    ("service", RangeOperators.EQUAL),
                    (Period("started_at", "ended_at", RangeBoundary()), RangeOperators.OVERLAPS),
                ],
            ),
        ]
        indexes = [models.Index(fields=["service", "started_at"]), models.Index(fields=["ended_at"])]

    def __str__(self) -> str:
        return f"{self.service_id} {self.state} from {self.started_at:%Y-%m-%d %H:%M}"


class MonitoringGap(models.Model):
    """A time in which a source gave no sign of life; one that goes on has no end."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="gaps")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = SpanQuerySet.as_manager()

    class Meta:
        ordering = ["-started_at"]
        constraints = [models.UniqueConstraint(fields=["source", "started_at"], name="monitoring_gap_once")]

    def __str__(self) -> str:
        return f"silence of source {self.source_id} from {self.started_at:%Y-%m-%d %H:%M}"


class LabelRule(models.Model):
    """Which service an alert is about. Rules come before the default: label `service` is a service's slug."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="rules")
    matchers = models.JSONField(default=dict, help_text='Labels that must all be equal: {"job": "samweb"}')
    service = models.ForeignKey(
        Service, on_delete=models.CASCADE, null=True, blank=True, help_text="None: such alerts are about no service."
    )
    state = models.CharField(
        max_length=16,
        choices=[(state.value, state.label) for state in INCIDENT_STATES],
        blank=True,
        help_text="Empty: down if the severity is critical, else degraded.",
    )

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.matchers.items()) or "every alert"

    def clean(self) -> None:
        pairs = self.matchers.items() if isinstance(self.matchers, dict) else [(None, None)]
        if not all(isinstance(value, str) for _, value in pairs):
            raise ValidationError({"matchers": 'Labels and their values, as text: {"job": "samweb"}'})


class UnmappedAlert(models.Model):
    """An alert that no rule leads to a service, as last heard."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="unmapped")
    dedup_key = models.CharField(max_length=200)
    labels = models.JSONField(default=dict)
    title = models.CharField(max_length=200, blank=True)
    count = models.PositiveIntegerField(default=0)
    last_seen_at = models.DateTimeField()

    class Meta:
        ordering = ["-last_seen_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["source", "dedup_key"], name="unmapped_once")]

    def __str__(self) -> str:
        return self.title or self.dedup_key


class RawPayload(models.Model):
    """What a source posted, byte for byte, stored before it is read."""

    source = models.ForeignKey(MonitoringSource, on_delete=models.CASCADE, related_name="payloads")
    received_at = models.DateTimeField()
    sha256 = models.CharField(max_length=64)
    body = models.BinaryField()
    state = models.CharField(max_length=16, choices=PayloadState, default=PayloadState.RECEIVED)
    notes = models.TextField(blank=True, help_text="What could not be read, and why.")
    unmapped = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-received_at", "-pk"]
        indexes = [
            models.Index(fields=["received_at"], condition=Q(state="received"), name="payload_waiting"),
            models.Index(fields=["source", "received_at"]),
        ]

    def __str__(self) -> str:
        return f"payload {self.pk}"
