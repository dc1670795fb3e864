"""Months of job records that were archived and possibly dropped."""

from django.db import models


class ArchivedMonth(models.Model):
    """A month whose job records are archived as Parquet.

    Its totals and statistics are kept when the records are dropped.
    """

    month = models.DateField(
        unique=True,
        help_text="First day of the month. A job belongs to the month in which it ended, in UTC.",
    )
    jobs = models.BigIntegerField()
    first_id = models.BigIntegerField(help_text="Smallest primary key of its jobs.")
    last_id = models.BigIntegerField(help_text="Largest primary key of its jobs.")
    archived_at = models.DateTimeField()
    dropped_at = models.DateTimeField(
        null=True, blank=True, help_text="Empty: the records are in the database."
    )
    restored_at = models.DateTimeField(
        null=True, blank=True, help_text="A restored month is not dropped again automatically."
    )

    class Meta:
        ordering = ["-month"]
        constraints = [
            models.CheckConstraint(condition=models.Q(month__day=1), name="archived_month_begins"),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"
