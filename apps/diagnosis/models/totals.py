"""Totals of verdicts by hour and by day, which the failure pages read instead of verdicts."""

from django.db import models

from apps.accounts.models import Experiment, ExperimentQuerySet
from apps.clusters.models import Cluster
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models.verdicts import FailureGroup

KEYS = ("cluster", "experiment", "verdict", "cause", "service", "group", "stage")


class Totals(models.Model):
    """Figures of the verdicts on jobs of one kind that ended in one period."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False, related_name="+")
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        db_index=False,
        related_name="+",
    )
    verdict = models.CharField(max_length=16, choices=VerdictKind)
    cause = models.CharField(max_length=64, blank=True)
    service = models.CharField(max_length=64, blank=True)
    group = models.ForeignKey(
        FailureGroup,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        db_index=False,
        related_name="+",
    )
    stage = models.CharField(max_length=64, blank=True)
    jobs = models.PositiveIntegerField()
    wall_seconds = models.BigIntegerField()
    core_seconds = models.BigIntegerField(default=0, help_text="Sum of wall time × cores.")
    first_ended_at = models.DateTimeField()
    last_ended_at = models.DateTimeField()
    succeeded = models.PositiveIntegerField(
        default=0, help_text="Number of jobs that completed in a later attempt or retry."
    )

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        abstract = True


class CauseTotals(Totals):
    """Totals of the verdicts on jobs that ended in one hour; every figure equals a recount."""

    hour = models.DateTimeField()

    class Meta:
        verbose_name_plural = "cause totals"
        constraints = [
            models.UniqueConstraint(
                fields=["hour", *KEYS], nulls_distinct=False, name="cause_totals_once"
            ),
        ]
        indexes = [models.Index(fields=["group", "hour"], name="cause_totals_of_group")]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.verdict} {self.cause}: {self.jobs}"


class DailyCauseTotals(Totals):
    """Sums of the hourly totals of a UTC day, for periods of days and weeks.

    They are written in the same transactions as the hourly totals.
    """

    day = models.DateTimeField()

    class Meta:
        verbose_name_plural = "daily cause totals"
        constraints = [
            models.UniqueConstraint(
                fields=["day", *KEYS], nulls_distinct=False, name="daily_cause_totals_once"
            ),
        ]
        indexes = [models.Index(fields=["group", "day"], name="daily_cause_totals_of_group")]

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d} {self.verdict} {self.cause}: {self.jobs}"
