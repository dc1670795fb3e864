"""Versioned packs, in which an experiment describes its own logs."""

from django.db import models
from django.urls import reverse

from apps.accounts.models import Experiment, ExperimentQuerySet
from apps.diagnosis.enums import ChangeState


class ExperimentPack(models.Model):
    """One version of the pack of an experiment: proposed, applied, or rejected.

    The newest applied version is in force.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.PROTECT, related_name="packs")
    version = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=ChangeState, default=ChangeState.PROPOSED)
    text = models.TextField(help_text="YAML, as it was uploaded.")
    markers = models.JSONField(default=dict, help_text="Its phase markers and level formats.")
    by = models.CharField(max_length=150)
    at = models.DateTimeField()
    reason = models.TextField()
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision = models.TextField(blank=True, help_text="Why it was approved or rejected.")

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=ChangeState.values), name="experiment_pack_state"
            ),
            models.UniqueConstraint(
                fields=["experiment", "version"], name="experiment_pack_version_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.experiment} pack, version {self.version}"

    def get_absolute_url(self) -> str:
        return reverse("diagnosis:pack", args=[self.pk])
