"""Exclusions of hosts from new jobs, times when too many hosts fail, probes of hosts, and spans of
their states.
"""

from datetime import datetime
from typing import Self

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import HostState
from apps.core.models import Work
from apps.diagnosis.models import FailureGroup
from apps.hosts.enums import EndKind, ProbeState
from apps.statusboard.models import Announcement, Incident, Service

#: The longest that one probe may take.
MOST_PROBE_SECONDS = 120


class HostExclusionQuerySet(models.QuerySet["HostExclusion"]):
    """Exclusions of hosts, to be filtered by a time."""

    def in_effect(self, at: datetime) -> Self:
        """Keep exclusions that keep new jobs from their host at `at`."""
        return self.filter(ended_at=None, expires_at__gt=at)


class HostExclusion(models.Model):
    """A host that gets no new jobs from the portal, from its start to its end.

    `host` is the short name. An exclusion by the portal has evidence: of the `ended_jobs` that
    ended in a run of failures, `failed_jobs` failed, between `evidence_from` and `evidence_until`.
    It has no effect after `expires_at`, and is open until the portal or a person ends it.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="exclusions")
    host = models.CharField(max_length=255, help_text="Name of the host, without its domain.")
    reason = models.TextField()
    automatic = models.BooleanField(
        default=False, help_text="The portal excluded it, because nearly every job failed there."
    )
    failed_jobs = models.PositiveIntegerField(null=True, blank=True)
    ended_jobs = models.PositiveIntegerField(
        null=True, blank=True, help_text="All jobs of its run of failures, failed or not."
    )
    evidence_from = models.DateTimeField(null=True, blank=True)
    evidence_until = models.DateTimeField(null=True, blank=True)
    group = models.ForeignKey(
        FailureGroup,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="exclusions",
        help_text="The failure group of the host.",
    )
    by = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_as = models.CharField(max_length=16, choices=EndKind, blank=True)
    ended_by = models.CharField(max_length=150, blank=True)
    end_reason = models.TextField(blank=True)

    objects = HostExclusionQuerySet.as_manager()

    class Meta:
        ordering = ["-started_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "host"],
                condition=Q(ended_at=None),
                name="host_exclusion_open_once",
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None, ended_as="")
                | Q(ended_at__isnull=False, ended_as__in=EndKind.values),
                name="host_exclusion_end",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("started_at")), name="host_exclusion_expires"
            ),
        ]
        indexes = [
            models.Index(fields=["host", "-started_at"], name="host_exclusion_of_host"),
            models.Index(fields=["-started_at", "-id"], name="host_exclusion_newest"),
            models.Index(fields=["cluster", "-ended_at"], name="host_exclusion_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.host} of {self.cluster}"

    def get_absolute_url(self) -> str:
        return reverse("hosts:exclusion", args=[self.pk])

    def is_in_effect(self, at: datetime) -> bool:
        """Return whether the host gets no new jobs at `at`."""
        return self.ended_at is None and self.expires_at > at


class CentralCause(models.Model):
    """A period in which too many hosts of a cluster failed for the portal to exclude any.

    `incident` or `announcement` is the notice that was published.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="central_causes")
    failing_hosts = models.PositiveIntegerField(help_text="When it was noted.")
    known_hosts = models.PositiveIntegerField(help_text="Hosts of the cluster at that time.")
    incident = models.ForeignKey(
        Incident, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    announcement = models.ForeignKey(
        Announcement, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-started_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"], condition=Q(ended_at=None), name="central_cause_open_once"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "-ended_at"], name="central_cause_ended"),
        ]

    def __str__(self) -> str:
        return str(self.cluster)


class Probe(models.Model):
    """A short check of one thing that jobs need, run on hosts by a probe job.

    The script is POSIX shell; exit code 0 means good. The last line that it prints is shown.
    """

    name = models.SlugField(max_length=64, unique=True)
    description = models.CharField(max_length=200, blank=True)
    service = models.ForeignKey(
        Service,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="probes",
        help_text="The service that it needs. Empty: it checks the host alone.",
    )
    clusters = models.ManyToManyField(
        Cluster,
        blank=True,
        related_name="probes",
        help_text="Where it runs. Empty: on all clusters to which the portal submits.",
    )
    script = models.TextField(
        help_text=(
            "A script for sh. Exit code 0 means good; the last line that it prints is shown beside "
            "the result."
        )
    )
    timeout_seconds = models.PositiveSmallIntegerField(
        "timeout",
        default=20,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_PROBE_SECONDS)],
        help_text=f"Seconds after which it counts as bad, at most {MOST_PROBE_SECONDS}.",
    )
    active = models.BooleanField(default=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ProbeJob(Work):
    """A job that runs the probes `asked`, by name, on one host.

    It is good if all of them were, but for those whose service was reported as not up.
    `exclusion` is the exclusion of the host at the time of planning.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="probe_jobs")
    host = models.CharField(max_length=255, help_text="Name of the host, without its domain.")
    name = models.CharField(max_length=64, unique=True, help_text="Name of the job.")
    asked = models.JSONField(default=list, help_text="Names of the probes.")
    exclusion = models.ForeignKey(
        HostExclusion,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="probe_jobs",
    )
    state = models.CharField(max_length=16, choices=ProbeState, default=ProbeState.PLANNED)
    spool_id = models.CharField(max_length=64, blank=True)
    planned_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    good = models.BooleanField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "host"],
                condition=Q(ended_at=None),
                name="probe_job_open_once",
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None, good=None, state__in=ProbeState.unfinished())
                | Q(
                    ended_at__isnull=False,
                    good__isnull=False,
                    state__in=ProbeState.finished(),
                ),
                name="probe_job_end",
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "host", "-planned_at"], name="probe_job_of_host"),
            models.Index(fields=["exclusion", "-planned_at"], name="probe_job_of_exclusion"),
            models.Index(fields=["ended_at"], name="probe_job_ended"),
            models.Index(fields=["due_at"], condition=Q(state="planned"), name="probe_job_due"),
        ]

    def __str__(self) -> str:
        return self.name


class ProbeResult(models.Model):
    """How one probe of a probe job ended. `seconds` is its wall time, None if it did not end.

    A bad result is `excused` if the service of the probe was reported as not up: it says nothing
    about the host.
    """

    job = models.ForeignKey(ProbeJob, on_delete=models.CASCADE, related_name="results")
    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="results")
    good = models.BooleanField()
    excused = models.BooleanField(default=False)
    seconds = models.PositiveIntegerField(null=True, blank=True)
    message = models.CharField(max_length=300, blank=True)
    measured_at = models.DateTimeField()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["job", "probe"], name="probe_result_once"),
        ]

    def __str__(self) -> str:
        return f"{self.probe} of {self.job}"


class MeasuredState(models.Model):
    """The newest result of a probe on a host, and since when its results are the same."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="measured_states")
    host = models.CharField(max_length=255)
    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="measured_states")
    good = models.BooleanField()
    message = models.CharField(max_length=300, blank=True)
    measured_at = models.DateTimeField()
    since = models.DateTimeField()

    class Meta:
        ordering = ["cluster__name", "host", "probe__name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "host", "probe"], name="measured_state_once"
            ),
        ]
        indexes = [
            models.Index(
                fields=["cluster", "host"], condition=Q(good=False), name="measured_state_bad"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.probe} on {self.host} of {self.cluster}"


class HostSpan(models.Model):
    """A time in which the scheduler gave a host the same state, with the same reason.

    It ends when a look finds another state, another reason or a reboot. `since` is the first look
    and `seen_at` the last that found it; from then to `until` nothing is known of the host.
    """

    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, related_name="host_spans", db_index=False
    )
    host = models.CharField(max_length=255, help_text="Name of the host, without its domain.")
    state = models.CharField(
        max_length=16, choices=[(state.value, state.value) for state in HostState]
    )
    words = models.CharField(
        max_length=128, blank=True, help_text="The state as the scheduler words it, at its start."
    )
    reason = models.CharField(max_length=500, blank=True)
    booted_at = models.DateTimeField(null=True, blank=True)
    rebooted = models.BooleanField(
        default=False, help_text="It began with a boot that the look before did not know."
    )
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-since", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "host"], condition=Q(until=None), name="host_span_open_once"
            ),
            models.CheckConstraint(
                condition=Q(seen_at__gte=F("since")) & (Q(until=None) | Q(until__gt=F("seen_at"))),
                name="host_span_order",
            ),
        ]
        indexes = [
            models.Index(fields=["host", "-since"], name="host_span_of_host"),
            models.Index(fields=["-since", "-id"], name="host_span_newest"),
            models.Index(fields=["until"], name="host_span_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.host} of {self.cluster}: {self.state}"
