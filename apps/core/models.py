"""The append-only event log, its deliveries, and the heartbeats of long-running processes."""

from django.db import models
from django.db.models.functions import Now


class Work(models.Model):
    """A piece of work for a worker, with its attempts; see `apps.core.domain.work`."""

    due_at = models.DateTimeField(
        db_default=Now(),
        help_text="When it is tried next or, while a worker has it, when it counts as lost.",
    )
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    last_error = models.TextField(blank=True, default="", db_default="")

    class Meta:
        abstract = True


class Event(models.Model):
    """Something that happened: audit trail, timeline and outbox in one.

    Target and actor are text instead of foreign keys, so that the event outlives them. Only
    `core.domain.events.publish` inserts rows; a database trigger rejects changes.
    """

    kind = models.CharField(max_length=64)
    target_type = models.CharField(max_length=64)
    target_id = models.CharField(max_length=64)
    target_label = models.CharField(max_length=200)
    actor = models.CharField(max_length=150)
    at = models.DateTimeField()
    old = models.CharField(max_length=64, blank=True)
    new = models.CharField(max_length=64, blank=True)
    reason = models.TextField(blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        indexes = [
            models.Index(fields=["target_type", "target_id", "id"]),
            models.Index(fields=["kind", "id"]),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.target_label}"


class Delivery(Work):
    """The delivery of one event to one subscriber, exactly once within the database."""

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="deliveries")
    subscriber = models.CharField(max_length=100)
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(fields=["event", "subscriber"], name="delivery_once")
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=models.Q(delivered_at=None), name="delivery_waiting"
            ),
        ]

    def __str__(self) -> str:
        return f"event {self.event_id} to {self.subscriber}"


class Heartbeat(models.Model):
    """The last heartbeat of a long-running process, such as `beat` or `capture hepcloud`."""

    name = models.CharField(max_length=100, unique=True)
    at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.name


class TableSize(models.Model):
    """The size of a table of the database on one day, with its indexes."""

    day = models.DateField()
    table = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["day", "table"], name="table_size_once"),
        ]

    def __str__(self) -> str:
        return f"{self.table} on {self.day}"
