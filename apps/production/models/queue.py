"""Scores of requests, shares of experiments, and the state of the queue."""

from django.db import models
from django.db.models import Q

#: The weight of an experiment without a configured share.
DEFAULT_WEIGHT = 100
MAX_WEIGHT = 10_000


class QueueEntry(models.Model):
    """The score of an approved request until its production.

    Written under the lock of `QueueState`. `sort_key` is the score without the waiting time, which
    grows equally for all, so the key does not age.
    """

    request = models.OneToOneField(
        "production.Request", on_delete=models.CASCADE, primary_key=True, related_name="queue_entry"
    )
    is_queued = models.BooleanField(help_text="It has a rank: queued, or put on hold while queued.")
    points = models.FloatField(help_text="Sum of the terms, without waiting and manual moves.")
    terms = models.JSONField(default=list)
    hand_points = models.FloatField(default=0, help_text="Added by a manual move.")
    hand_by = models.CharField(max_length=150, blank=True)
    hand_at = models.DateTimeField(null=True, blank=True)
    hand_reason = models.TextField(blank=True)
    # No constraint: its check would lock the other request, which may be locked by a transaction
    # that waits for the queue.
    ahead_of = models.ForeignKey(
        "production.Request",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_constraint=False,
    )
    behind = models.ForeignKey(
        "production.Request",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_constraint=False,
    )
    sort_key = models.FloatField()
    tie = models.FloatField(help_text="Orders entries with the same key, smallest first.")
    core_seconds = models.FloatField(
        null=True, blank=True, help_text="Estimated size; empty: unknown."
    )
    days = models.FloatField(null=True, blank=True, help_text="Estimated duration; empty: unknown.")
    days_low = models.FloatField(null=True, blank=True, help_text="The duration at a fast pace.")
    days_high = models.FloatField(null=True, blank=True, help_text="The duration at a slow pace.")
    size_basis = models.CharField(max_length=200, blank=True)
    size_by_limit = models.BooleanField(
        default=False,
        db_default=False,
        help_text="At most this: stages without past jobs count with their time limits.",
    )
    needed_change = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="A limit that most jobs will exceed, by past jobs; empty: none.",
    )
    starts_on = models.CharField(
        max_length=64, blank=True, help_text="The cluster that starts it now."
    )
    sized_at = models.DateTimeField()
    sized_version = models.PositiveIntegerField(
        help_text="Version of the request when its size was estimated."
    )

    class Meta:
        verbose_name_plural = "queue entries"
        indexes = [models.Index(fields=["is_queued", "-sort_key", "tie"], name="queue_entry_order")]
        constraints = [
            models.CheckConstraint(
                condition=Q(ahead_of=None) | Q(behind=None), name="queue_entry_one_promise"
            )
        ]

    def __str__(self) -> str:
        return f"{self.request_id} with {self.points + self.hand_points:+.1f}"


class QueueState(models.Model):
    """The single row that is locked while the order changes, with the last change by a user."""

    version = models.PositiveIntegerField(
        default=0, help_text="Incremented by every change by a user."
    )
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)
    change = models.CharField(max_length=300, blank=True)
    scored_at = models.DateTimeField(null=True, blank=True)
    starts = models.PositiveIntegerField(
        default=0, help_text="Requests that left the queue for production."
    )
    starts_days = models.FloatField(default=0, help_text="The number of days counted.")
    work_by_day = models.JSONField(
        default=list,
        blank=True,
        db_default=[],
        help_text="Core-seconds of requests' jobs on each recent day on which any ended.",
    )
    free_clusters = models.JSONField(
        default=list,
        blank=True,
        db_default=[],
        help_text="Clusters with room for another request, which start one without a person.",
    )

    def __str__(self) -> str:
        return f"queue at {self.version}"


class ExperimentShare(models.Model):
    """The share of production that an experiment should have, as a relative weight."""

    experiment = models.OneToOneField(
        "accounts.Experiment", on_delete=models.CASCADE, primary_key=True, related_name="share"
    )
    weight = models.PositiveIntegerField(default=DEFAULT_WEIGHT)
    by = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(weight__lte=MAX_WEIGHT), name="share_weight")
        ]

    def __str__(self) -> str:
        return f"{self.experiment}: {self.weight}"


class ShareUse(models.Model):
    """Recent core-seconds of an experiment, summed from the hourly totals."""

    experiment = models.OneToOneField(
        "accounts.Experiment", on_delete=models.CASCADE, primary_key=True
    )
    core_seconds = models.BigIntegerField()
    days = models.PositiveSmallIntegerField(help_text="The number of days summed.")
    as_of = models.DateTimeField()

    class Meta:
        verbose_name_plural = "share uses"

    def __str__(self) -> str:
        return f"{self.experiment_id}: {self.core_seconds} core seconds"
