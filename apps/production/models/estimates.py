"""Resource use of past stages, for estimates."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.production.models.requests import Request


class StageHistory(models.Model):
    """Resource use of the jobs of one stage, with the stage as it was at that time.

    Lists hold the quantiles of `estimates.figures.QUANTILES` over completed jobs.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="history")
    experiment = models.ForeignKey(
        "accounts.Experiment", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    name = models.CharField(max_length=64, help_text="Lower case.")
    release = models.CharField(max_length=100, blank=True)
    configuration = models.CharField(max_length=300, blank=True)
    output_dataset = models.CharField(max_length=300, blank=True)
    events_per_job = models.FloatField(null=True, blank=True)
    attempts = models.PositiveIntegerField(help_text="All finished jobs, in any state.")
    completed = models.PositiveIntegerField()
    core_seconds = models.FloatField(help_text="Over all attempts.")
    completed_wall_seconds = models.FloatField()
    completed_cpu_seconds = models.FloatField(
        null=True, blank=True, help_text="Empty if counted by an older release."
    )
    completed_core_seconds = models.FloatField(
        null=True, blank=True, help_text="Empty if counted by an older release."
    )
    wall_seconds = ArrayField(models.FloatField())
    memory_bytes = ArrayField(models.FloatField())
    wall_seconds_99 = models.FloatField(
        null=True, blank=True, help_text="99 % of the completed jobs took at most this long."
    )
    memory_bytes_99 = models.FloatField(
        null=True, blank=True, help_text="99 % of the completed jobs used at most this memory."
    )
    per_day = ArrayField(
        models.FloatField(), help_text="Jobs completed per day, over days with any."
    )
    last_ended_at = models.DateTimeField()
    last_completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "stage histories"
        constraints = [
            models.UniqueConstraint(fields=["request", "name"], name="stage_history_once")
        ]
        indexes = [
            models.Index(
                fields=["experiment", "name", "-last_ended_at"], name="stage_history_alike"
            )
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.name}"
