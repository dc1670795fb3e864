"""What the queue's order rests on: a score for each request, shares of experiments, and who changed it last."""

from django.db import models
from django.db.models import Q

#: The share of an experiment for which none was set, as a weight beside those of the others.
DEFAULT_WEIGHT = 100
MAX_WEIGHT = 10_000


class QueueEntry(models.Model):
    """The score of a request that has its signatures and is not produced yet. Written under the lock of `QueueState`.

    `sort_key` is the score without the time that passes for all alike: it orders, whenever each was counted.
    """

    request = models.OneToOneField(
        "production.Request", on_delete=models.CASCADE, primary_key=True, related_name="queue_entry"
    )
    is_queued = models.BooleanField(help_text="It has a rank: it is in the queue, or held while it was.")
    points = models.FloatField(help_text="Sum of the terms, without waiting and without what was moved by hand.")
    terms = models.JSONField(default=list)
    hand_points = models.FloatField(default=0, help_text="Given by a move by hand.")
    hand_by = models.CharField(max_length=150, blank=True)
    hand_at = models.DateTimeField(null=True, blank=True)
    hand_reason = models.TextField(blank=True)
    # No constraint: its check would lock the other request, which somebody may hold who waits for the queue.
    ahead_of = models.ForeignKey(
        "production.Request", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    behind = models.ForeignKey(
        "production.Request", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    sort_key = models.FloatField()
    tie = models.FloatField(help_text="Orders those with the same key, the smaller first.")
    core_seconds = models.FloatField(null=True, blank=True, help_text="Its size; empty: not known.")
    days = models.FloatField(null=True, blank=True, help_text="How long it takes; empty: not known.")
    size_basis = models.CharField(max_length=200, blank=True)
    sized_at = models.DateTimeField()
    sized_version = models.PositiveIntegerField(help_text="Of the request, when its size was estimated.")

    class Meta:
        verbose_name_plural = "queue entries"
        indexes = [models.Index(fields=["is_queued", "-sort_key", "tie"], name="queue_entry_order")]
        constraints = [
            models.CheckConstraint(condition=Q(ahead_of=None) | Q(behind=None), name="queue_entry_one_promise")
        ]

    def __str__(self) -> str:
        return f"{self.request_id} with {self.points + self.hand_points:+.1f}"


class QueueState(models.Model):
    """The one row that is locked while the order changes: who changed it last by hand, and as of when it is scored."""

    version = models.PositiveIntegerField(default=0, help_text="Grows with every change that a person makes.")
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)
    change = models.CharField(max_length=300, blank=True)
    scored_at = models.DateTimeField(null=True, blank=True)
    starts = models.PositiveIntegerField(default=0, help_text="Requests that left the queue to be produced.")
    starts_days = models.FloatField(default=0, help_text="In so many days, the last ones.")

    def __str__(self) -> str:
        return f"queue at {self.version}"


class ExperimentShare(models.Model):
    """The part of production that an experiment should have, as a weight beside those of the others."""

    experiment = models.OneToOneField(
        "accounts.Experiment", on_delete=models.CASCADE, primary_key=True, related_name="share"
    )
    weight = models.PositiveIntegerField(default=DEFAULT_WEIGHT)
    by = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(weight__lte=MAX_WEIGHT), name="share_weight")]

    def __str__(self) -> str:
        return f"{self.experiment_id}: {self.weight}"


class ShareUse(models.Model):
    """The core time that an experiment's jobs used lately, summed from the hourly totals."""

    experiment = models.OneToOneField("accounts.Experiment", on_delete=models.CASCADE, primary_key=True)
    core_seconds = models.BigIntegerField()
    days = models.PositiveSmallIntegerField(help_text="How many days were summed.")
    as_of = models.DateTimeField()

    class Meta:
        verbose_name_plural = "share uses"

    def __str__(self) -> str:
        return f"{self.experiment_id}: {self.core_seconds} core seconds"
