"""The diagnosis of each job: log analysis, evidence, verdict, group, and impact of incidents."""

from typing import Self

import zstandard
from django.db import models
from django.urls import reverse

from apps.accounts.models import Experiment, ExperimentQuerySet
from apps.clusters.models import Cluster, Site
from apps.core.models import Work
from apps.diagnosis.enums import (
    BaselineScope,
    Category,
    Confidence,
    GroupKind,
    GroupStatus,
    HarvestState,
    JobAdvice,
    Role,
    Stream,
    VerdictKind,
)
from apps.jobs.enums import STATE_CHOICES
from apps.jobs.models import Job
from apps.statusboard.models import Incident


class LogHarvest(Work):
    """The analysis of the logs of one attempt of a job: its state and last error."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="harvest")
    state = models.CharField(max_length=16, choices=HarvestState, default=HarvestState.QUEUED)
    attempts = models.PositiveIntegerField(
        default=0, help_text="Attempts since the analysis was last requested."
    )
    interrupted = models.BooleanField(
        default=False, help_text="Its worker was killed, so it is analysed alone."
    )
    harvested_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=HarvestState.values), name="harvest_state"
            ),
        ]
        indexes = [
            models.Index(
                fields=["interrupted", "due_at"],
                condition=models.Q(state__in=[HarvestState.QUEUED, HarvestState.RUNNING]),
                name="harvest_waiting",
            ),
            models.Index(
                fields=["-harvested_at"],
                condition=models.Q(state=HarvestState.PATH_NOT_ALLOWED),
                name="harvest_refused",
            ),
        ]

    def __str__(self) -> str:
        return f"log of {self.job}"


class LogExcerpt(models.Model):
    """The end of one log as it was analysed: whole lines, byte for byte."""

    harvest = models.ForeignKey(LogHarvest, on_delete=models.CASCADE, related_name="excerpts")
    stream = models.CharField(max_length=8, choices=Stream)
    path = models.TextField()
    size_bytes = models.BigIntegerField(help_text="Size of the whole log.")
    compressed = models.BinaryField(help_text="Its bytes, compressed by zstd.")
    first_offset = models.BigIntegerField(help_text="Byte offset of the excerpt in the log.")
    first_line_number = models.BigIntegerField(
        null=True, blank=True, help_text="Empty if the log is too large to count its lines."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["harvest", "stream"], name="excerpt_once")]

    def __str__(self) -> str:
        return f"{self.stream} of {self.harvest}"

    @property
    def data(self) -> bytes:
        """The bytes of the excerpt."""
        return zstandard.ZstdDecompressor().decompress(bytes(self.compressed))


class Evidence(models.Model):
    """A known error found in a log.

    Pattern and service are stored as text, since evidence must not change with the catalogue.
    """

    harvest = models.ForeignKey(LogHarvest, on_delete=models.CASCADE, related_name="evidence")
    stream = models.CharField(max_length=8, choices=Stream)
    pattern = models.CharField(max_length=64)
    role = models.CharField(max_length=16, choices=Role)
    category = models.CharField(max_length=16, choices=Category)
    service = models.CharField(max_length=64, blank=True)
    line = models.BigIntegerField(null=True, blank=True)
    offset = models.BigIntegerField()
    text = models.TextField()

    class Meta:
        verbose_name_plural = "evidence"
        constraints = [
            models.UniqueConstraint(
                fields=["harvest", "stream", "offset", "pattern"], name="evidence_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pattern} at byte {self.offset}"


class FailureGroup(models.Model):
    """Failures with one fingerprint, from all experiments and sites, and their triage.

    Counts are sums of `DailyCauseTotals`, and depend on the experiments that a user may see.
    """

    fingerprint = models.CharField(max_length=32, unique=True)
    kind = models.CharField(max_length=8, choices=GroupKind, default=GroupKind.ERROR)
    verdict = models.CharField(max_length=16, choices=VerdictKind)
    cause = models.CharField(
        max_length=64, blank=True, help_text="ID of the known error that determined the verdict."
    )
    service = models.CharField(max_length=64, blank=True)
    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, null=True, blank=True, help_text="Cluster of the host."
    )
    host = models.CharField(
        max_length=255, blank=True, help_text="The host on which nearly every job fails."
    )
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Experiment of the release.",
    )
    release = models.CharField(
        max_length=100, blank=True, help_text="The release with which most jobs fail."
    )
    title = models.CharField(max_length=200)
    line = models.TextField(blank=True, help_text="A log line with numbers, paths and IDs masked.")
    status = models.CharField(max_length=16, choices=GroupStatus, default=GroupStatus.NEW)
    status_at = models.DateTimeField()
    owner = models.CharField(max_length=150, blank=True)
    muted_until = models.DateTimeField(null=True, blank=True)
    jumped_at = models.DateTimeField(
        null=True, blank=True, help_text="Last time its hourly count jumped."
    )
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    profile = models.JSONField(
        default=list, help_text="What its jobs have in common, as last computed."
    )
    profiled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(status__in=GroupStatus.values), name="group_status"
            ),
            models.CheckConstraint(
                condition=models.Q(kind=GroupKind.HOST) ^ models.Q(host="", cluster=None),
                name="group_host",
            ),
            models.CheckConstraint(
                condition=models.Q(kind=GroupKind.RELEASE) ^ models.Q(release="", experiment=None),
                name="group_release",
            ),
        ]

    def __str__(self) -> str:
        return f"F-{self.pk} {self.title}"

    def get_absolute_url(self) -> str:
        return reverse("diagnosis:group", args=[self.pk])

    @property
    def status_text(self) -> str:
        """The status in lower case."""
        return GroupStatus(self.status).label.lower()


class GroupNote(models.Model):
    """A note on a failure group."""

    group = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="notes")
    by = models.CharField(max_length=150)
    at = models.DateTimeField()
    text = models.TextField()

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.by} on {self.group}"


class VerdictQuerySet(ExperimentQuerySet):
    """Verdicts; those on jobs without an experiment are visible only to the OPG."""

    def between(self, start: object, end: object) -> Self:
        """Keep verdicts on jobs that ended in [start, end)."""
        return self.filter(ended_at__gte=start, ended_at__lt=end)


class Verdict(models.Model):
    """Why a job failed, what to do, and the reasons.

    `verdict` and `advice` are the effective values. After an override, `machine_verdict` keeps the
    automatic verdict. If the job has a later attempt or a retry, `advice` says that there is
    nothing to do. `experiment` and `ended_at` are copied from the job to keep lists fast.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="verdict")
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="verdicts",
        db_index=False,
    )
    ended_at = models.DateTimeField()
    verdict = models.CharField(max_length=16, choices=VerdictKind)
    advice = models.CharField(max_length=16, choices=JobAdvice)
    later_attempt = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="The later attempt that completed, or else the last one.",
    )
    later_state = models.CharField(
        max_length=16,
        blank=True,
        choices=STATE_CHOICES,
        help_text="State of the later attempt, or else of the retry.",
    )
    retried_as = models.CharField(
        max_length=64,
        blank=True,
        help_text="ID of the retry that the portal submitted, once it has finished.",
    )
    retried_on = models.ForeignKey(
        Cluster,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
        help_text="The cluster of that retry, if it is another than that of the job.",
    )
    retry_state = models.CharField(max_length=16, blank=True, choices=STATE_CHOICES)
    machine_verdict = models.CharField(max_length=16, choices=VerdictKind)
    category = models.CharField(max_length=16, choices=Category)
    confidence = models.CharField(max_length=8, choices=Confidence)
    cause = models.CharField(
        max_length=64, blank=True, help_text="ID of the known error that determined the verdict."
    )
    service = models.CharField(max_length=64, blank=True, help_text="The service that failed.")
    message = models.TextField(
        blank=True, help_text="Masked log line; empty if the known error is enough."
    )
    frame = models.CharField(
        max_length=200, blank=True, help_text="Innermost frame of the experiment's own code."
    )
    symptom = models.CharField(
        max_length=32,
        blank=True,
        help_text="Digest of cause, message and frame: equal for equal failures.",
    )
    group = models.ForeignKey(
        FailureGroup,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="verdicts",
        db_index=False,
    )
    summary = models.TextField()
    reasons = models.JSONField(default=list)
    catalogue_version = models.CharField(max_length=16)
    decided_at = models.DateTimeField()
    overridden_by = models.CharField(max_length=150, blank=True)
    overridden_at = models.DateTimeField(null=True, blank=True)
    override_reason = models.TextField(blank=True)

    objects = VerdictQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(verdict__in=VerdictKind.values), name="verdict_kind"
            ),
            models.CheckConstraint(
                condition=models.Q(overridden_at=None, overridden_by="")
                | models.Q(overridden_at__isnull=False) & ~models.Q(overridden_by=""),
                name="verdict_overridden_by_and_at",
            ),
        ]
        indexes = [
            models.Index(fields=["-ended_at", "-id"], name="verdict_newest"),
            models.Index(fields=["verdict", "cause", "-ended_at"], name="verdict_by_cause"),
            models.Index(fields=["experiment", "-ended_at"], name="verdict_of_experiment"),
            models.Index(fields=["group", "-ended_at", "-id"], name="verdict_of_group"),
            models.Index(fields=["symptom", "-ended_at"], name="verdict_of_symptom"),
            models.Index(fields=["-decided_at"], name="verdict_last_decided"),
        ]

    def __str__(self) -> str:
        return f"{self.verdict}: {self.advice}, for {self.job}"

    @property
    def is_overridden(self) -> bool:
        return self.overridden_at is not None


class Impact(models.Model):
    """The impact of an incident on jobs, as last counted; `groups` has the figures."""

    incident = models.OneToOneField(Incident, on_delete=models.CASCADE, related_name="impact")
    counted_at = models.DateTimeField()
    bins_from = models.DateTimeField(help_text="Start of the first bin.")
    bin_seconds = models.PositiveIntegerField()
    bins = models.JSONField(
        default=dict, help_text="Failed jobs by end time, by ID of the experiment."
    )

    def __str__(self) -> str:
        return f"impact of incident {self.incident_id}"


class ImpactGroup(models.Model):
    """Jobs of one stage at one site that needed the service of an incident and ran during it."""

    impact = models.ForeignKey(Impact, on_delete=models.CASCADE, related_name="groups")
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    request_key = models.CharField(max_length=64, blank=True)
    stage = models.CharField(max_length=64, blank=True)
    site = models.ForeignKey(Site, on_delete=models.CASCADE, null=True, blank=True, db_index=False)
    contained = models.PositiveIntegerField(default=0)
    containing = models.PositiveIntegerField(default=0)
    partial = models.PositiveIntegerField(default=0)
    touching = models.PositiveIntegerField(
        default=0,
        help_text="Jobs that ended as the incident started, or started as it ended; not exposed.",
    )
    unknown = models.PositiveIntegerField(
        default=0, help_text="Ran only after the incident was no longer reported."
    )
    failed = models.PositiveIntegerField(default=0, help_text="Exposed jobs that failed.")
    failed_core_seconds = models.BigIntegerField(default=0)
    confirmed = models.PositiveIntegerField(
        default=0, help_text="Jobs that failed because of the service, according to their verdicts."
    )
    confirmed_core_seconds = models.BigIntegerField(default=0)
    succeeded = models.PositiveIntegerField(
        default=0, help_text="Confirmed, and completed at a later attempt."
    )
    retried = models.PositiveIntegerField(
        default=0, help_text="Confirmed, with a later attempt that did not complete."
    )
    eligible_core_seconds = models.BigIntegerField(
        default=0, help_text="Core-seconds of confirmed jobs without a later attempt."
    )
    baseline = models.CharField(
        max_length=16, choices=BaselineScope, blank=True, help_text="Empty: too few jobs."
    )
    baseline_jobs = models.PositiveIntegerField(default=0)
    baseline_failed = models.PositiveIntegerField(default=0)
    clumping = models.FloatField(
        default=1, help_text="Variance of failures by submission over that of single jobs."
    )
    cores = models.FloatField(
        default=0, help_text="Mean number of cores that the stage used during the baseline."
    )

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["impact", "experiment", "request_key", "stage", "site"],
                nulls_distinct=False,
                name="impact_group_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.impact}: {self.request_key} {self.stage}"

    @property
    def exposed(self) -> int:
        return self.contained + self.containing + self.partial

    @property
    def eligible(self) -> int:
        """Number of confirmed jobs without a later attempt, which can be retried."""
        return self.confirmed - self.succeeded - self.retried


class DirtyImpact(models.Model):
    """Marks an incident whose impact must be recounted; several rows per incident are normal."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="+")

    def __str__(self) -> str:
        return f"incident {self.incident_id}"
