"""Unfinished arrays of a cluster, a row each."""

from django.db import models

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentState
from apps.jobs.models.jobs import JobQuerySet
from apps.production.models import Request


class LiveArray(models.Model):
    """The unfinished jobs of one array with the same state and reason, as of the last reading.

    A job without an array counts as an array of one job.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    spool_id = models.CharField(max_length=64, help_text="ID of the array in the scheduler.")
    submitted_at = models.DateTimeField()
    state = models.CharField(
        max_length=8, choices=[(state.value, state.value.capitalize()) for state in CurrentState]
    )
    reason = models.CharField(max_length=100, blank=True, help_text="As reported by the scheduler.")
    jobs = models.PositiveIntegerField()
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    request = models.ForeignKey(
        Request, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    stage = models.CharField(max_length=64, blank=True)
    account = models.CharField(max_length=255, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "spool_id", "submitted_at", "state", "reason", "account"],
                name="live_array_once",
            ),
        ]
        indexes = [models.Index(fields=["state", "submitted_at"], name="live_array_oldest")]

    def __str__(self) -> str:
        return f"{self.spool_id} on {self.cluster.name}: {self.jobs} {self.state}"
