"""Exclusions of hosts from new jobs, and times when too many hosts fail to exclude any."""

from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from apps.clusters.models import Cluster
from apps.diagnosis.models import FailureGroup
from apps.hosts.enums import EndKind
from apps.statusboard.models import Announcement, Incident


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
    """A time in which so many hosts of a cluster failed that the portal excluded none.

    `incident` or `announcement` is what people were told.
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
