"""Holds of all production, an experiment, or one stage."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.production.enums import PORTAL
from apps.production.models.requests import Stage


class Hold(models.Model):
    """A hold: no new jobs for all production, an experiment, or one stage.

    A whole request is put on hold by its state.
    """

    experiment = models.ForeignKey(
        "accounts.Experiment", on_delete=models.PROTECT, null=True, blank=True
    )
    stage = models.ForeignKey(
        Stage, on_delete=models.CASCADE, null=True, blank=True, related_name="holds"
    )
    reason = models.TextField()
    at = models.DateTimeField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Empty: the portal itself, by a recovery rule or because the stage is broken.",
    )
    reminded_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last reminder."
    )
    lifted_at = models.DateTimeField(null=True, blank=True)
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(experiment=None) | Q(stage=None), name="hold_level"),
            models.CheckConstraint(
                condition=Q(lifted_at=None, lifted_by=None)
                | Q(lifted_at__isnull=False, lifted_by__isnull=False),
                name="hold_lifted_pair",
            ),
            models.UniqueConstraint(
                fields=["experiment", "stage"],
                condition=Q(lifted_at=None),
                nulls_distinct=False,
                name="hold_once",
            ),
        ]

    def __str__(self) -> str:
        if self.stage_id:
            return f"stage {self.stage_id}"
        return str(self.experiment or "All production")

    @property
    def author(self) -> str:
        """The user who placed it, or the portal."""
        return str(self.by or PORTAL)
