"""Phases that jobs report or their logs mark, and their totals."""

from django.db import models

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.jobs.enums import PhaseSource
from apps.jobs.models.jobs import Job, JobQuerySet


class JobPhase(models.Model):
    """A part of a job, such as "fetch input", as the job reported it while it ran."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    job_id = models.CharField(max_length=64, help_text="As in the environment of the job.")
    array_id = models.CharField(
        max_length=64, help_text="The part of the ID that all jobs of the array share."
    )
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, db_index=False)
    request_key = models.CharField(max_length=64, blank=True)
    stage = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=64)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="Empty until the job reports the end."
    )
    exit_code = models.IntegerField(default=0)
    cpu_seconds = models.FloatField(null=True, blank=True)
    host = models.CharField(max_length=255, blank=True)
    cpu_model = models.CharField(max_length=255, blank=True, help_text="As reported by the job.")
    token_label = models.CharField(max_length=64, help_text="Label of the token that the job used.")
    received_at = models.DateTimeField()
    stuck_at = models.DateTimeField(
        null=True, blank=True, help_text="When the phase was found to last too long."
    )

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "job_id", "started_at", "name", "token_label"],
                name="job_phase_once",
            ),
            models.CheckConstraint(
                condition=models.Q(ended_at=None) | models.Q(ended_at__gte=models.F("started_at")),
                name="job_phase_ends_after_start",
            ),
        ]
        indexes = [
            models.Index(fields=["token_label", "array_id"], name="job_phase_of_token"),
            models.Index(
                fields=["started_at"], condition=models.Q(ended_at=None), name="job_phase_open"
            ),
            models.Index(
                fields=["ended_at"],
                condition=models.Q(ended_at__isnull=False),
                name="job_phase_ended",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.job_id}"


class LogPhase(models.Model):
    """A part of one attempt of a job, as marked in the log of that attempt."""

    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, related_name="log_phases", db_index=False
    )
    number = models.PositiveSmallIntegerField(
        help_text="Position among the phases of the log, from 1."
    )
    name = models.CharField(max_length=64)
    wall_seconds = models.PositiveIntegerField()
    failed = models.BooleanField(help_text="The job failed in this phase.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="log_phase_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.job}"


class PhaseTotals(models.Model):
    """Hourly totals of phases.

    Reported phases count in the hour in which they ended, log phases in the hour in which their job
    ended. Every figure equals a recount.
    """

    hour = models.DateTimeField()
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, db_index=False)
    request_key = models.CharField(max_length=64, blank=True)
    stage = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=64)
    source = models.CharField(max_length=8, choices=PhaseSource, db_default=PhaseSource.REPORTED)
    phases = models.PositiveIntegerField()
    failed = models.PositiveIntegerField(
        help_text="Phases with an exit code other than 0, or in which the job failed."
    )
    wall_seconds = models.FloatField()
    longest_seconds = models.FloatField()
    cpu_seconds = models.FloatField(help_text="CPU time of the phases that reported it.")
    cpu_wall_seconds = models.FloatField(
        help_text="Wall time of the phases that reported their CPU time."
    )

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "phase totals"
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "experiment", "request_key", "stage", "name", "source"],
                name="phase_totals_once",
            ),
        ]

    def __str__(self) -> str:
        return (
            f"{self.hour:%Y-%m-%d %H}h {self.request_key} {self.stage} {self.name}: {self.phases}"
        )
