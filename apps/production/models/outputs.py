"""Output of stages: reports, counts, locations, datasets of parts, accepted stages."""

from django.db import models
from django.db.models import Q

from apps.production.models.requests import Request, Stage


class OutputReport(models.Model):
    """Files and events that a stage read and wrote, as reported for one or more jobs.

    Empty fields were not reported.
    """

    stage = models.ForeignKey(
        Stage, on_delete=models.CASCADE, related_name="output_reports", db_index=False
    )
    key = models.CharField(
        max_length=200,
        help_text="Chosen by the reporter. The same key replaces the earlier report.",
    )
    files_in = models.BigIntegerField(null=True, blank=True)
    events_in = models.BigIntegerField(null=True, blank=True)
    files_out = models.BigIntegerField(null=True, blank=True)
    events_out = models.BigIntegerField(null=True, blank=True)
    by = models.CharField(max_length=150)
    at = models.DateTimeField()
    counted = models.BooleanField(default=False, help_text="Included in the counts of the stage.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["stage", "key"], name="output_report_once")]
        indexes = [
            models.Index(
                fields=["stage"], condition=Q(counted=False), name="output_report_uncounted"
            )
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.stage_id}"


class StageCounts(models.Model):
    """Sums over the reports of a stage; each equals a new count. Empty fields were not reported."""

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="counts")
    files_in = models.BigIntegerField(null=True, blank=True)
    events_in = models.BigIntegerField(null=True, blank=True)
    files_out = models.BigIntegerField(null=True, blank=True)
    events_out = models.BigIntegerField(null=True, blank=True)
    reports = models.PositiveIntegerField(default=0)
    counted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "stage counts"

    def __str__(self) -> str:
        return f"counts of {self.stage_id}"


class StageLocation(models.Model):
    """The confirmation by a user that the outputs of a stage are in the catalogue."""

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="location")
    note = models.CharField(
        max_length=500, blank=True, help_text="Location, such as a dataset or URL."
    )
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return f"location of {self.stage_id}"


class DatasetPart(models.Model):
    """A dataset of some files of `whole`, which the portal defines for a request that it drafts.

    For a part of a split request it consists of shares `first` to `last` of `total` equal shares,
    and its files are stored once they are listed. For a recovery they are stored at once, and the
    portal gives them to the jobs whether a catalogue has the dataset or not: it is held.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="dataset_parts")
    split_from = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=500)
    whole = models.CharField(max_length=500)
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    total = models.BigIntegerField()
    files = models.JSONField(null=True, blank=True)
    is_held = models.BooleanField(default=False, db_default=False)
    due_at = models.DateTimeField()
    defined_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "name"], name="dataset_part_once")
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(defined_at=None), name="dataset_part_waiting"
            ),
            models.Index(fields=["name"], name="dataset_part_name"),
            models.Index(fields=["whole"], name="dataset_part_whole"),
        ]

    def __str__(self) -> str:
        return self.name


class StageAcceptance(models.Model):
    """The acceptance of a stage without the jobs that did not complete.

    Withdrawal deletes the row. The events stay.
    """

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="acceptance")
    jobs_asked = models.PositiveIntegerField()
    jobs_completed = models.PositiveIntegerField()
    reason = models.TextField()
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return f"acceptance of {self.stage_id}"

    @property
    def jobs_missing(self) -> int:
        return max(0, self.jobs_asked - self.jobs_completed)

    @property
    def summary(self) -> str:
        return (
            f"{self.by} accepted {self.jobs_completed:,} of {self.jobs_asked:,} jobs: "
            f"“{self.reason}”"
        )
