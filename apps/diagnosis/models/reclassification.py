"""Runs that re-classify history with the current catalogue."""

from django.db import models
from django.urls import reverse

from apps.core.models import Work
from apps.diagnosis.enums import ReclassificationState


class Reclassification(Work):
    """A run over past verdicts: first a preview, which changes nothing, then one that applies it.

    `position` is the ID of the last verdict evaluated: an interrupted run continues from there.
    """

    state = models.CharField(
        max_length=16,
        choices=ReclassificationState,
        default=ReclassificationState.PREVIEWING,
        db_index=True,
    )
    since = models.DateTimeField(help_text="Verdicts on jobs that ended since then.")
    by = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    last_verdict = models.BigIntegerField(help_text="ID of the newest verdict at the start.")
    position = models.BigIntegerField(default=0)
    total = models.PositiveIntegerField(help_text="Number of verdicts to re-evaluate.")
    judged = models.PositiveIntegerField(default=0)
    changed = models.PositiveIntegerField(default=0)
    moves = models.JSONField(
        default=dict, help_text="Number of jobs by “old verdict, cause → new verdict, cause”."
    )
    catalogue_version = models.CharField(max_length=16, blank=True)
    worked_at = models.DateTimeField(help_text="When its last batch ended.")

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=ReclassificationState.values),
                name="reclassification_state",
            ),
        ]

    def __str__(self) -> str:
        return f"re-classification {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("diagnosis:reclassification", args=[self.pk])
