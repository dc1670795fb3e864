"""Reports that are stored unchanged: of a closed request, and of an experiment by week."""

from django.db import models
from django.urls import reverse

from apps.accounts.models import Experiment, ExperimentQuerySet
from apps.production.models import Request


class ProductionReport(models.Model):
    """The production report when the request was closed.

    It never changes: its address is the hash of its content.
    """

    request = models.OneToOneField(Request, on_delete=models.PROTECT, related_name="report")
    sha256 = models.CharField(max_length=64, unique=True)
    content = models.TextField(help_text="The hashed JSON.")
    frozen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"report of {self.request}"


class WeeklyReport(models.Model):
    """The result of `domain.weekly_report` on the Monday after a week. It never changes."""

    experiment = models.ForeignKey(
        Experiment, on_delete=models.PROTECT, related_name="weekly_reports"
    )
    monday = models.DateField(help_text="First day of the week, in UTC.")
    content = models.JSONField()
    frozen_at = models.DateTimeField()

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["experiment", "monday"], name="weekly_report_once")
        ]
        indexes = [models.Index(fields=["-monday", "experiment"])]

    def __str__(self) -> str:
        return f"{self.experiment}, week {self.monday:%-V of %G}"

    def get_absolute_url(self) -> str:
        return reverse("progress:weekly-report", args=[self.experiment.key, self.week])

    @property
    def week(self) -> str:
        """The week in ISO 8601 format: `2026-W47`."""
        return f"{self.monday:%G-W%V}"
