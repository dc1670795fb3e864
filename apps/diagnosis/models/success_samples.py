"""Templates of successful jobs' logs, used to find new lines in the log of a failed job."""

from django.db import models

from apps.accounts.models import Experiment
from apps.jobs.models import Job


class SuccessSample(models.Model):
    """The templates of the logs of one completed job.

    Only the newest samples of each stage and release are kept.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="success_sample")
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    stage = models.CharField(max_length=64)
    release = models.CharField(max_length=100, blank=True)
    sampled_at = models.DateTimeField()
    templates = models.BinaryField(help_text="Sorted 64-bit hashes, compressed by zstd.")

    class Meta:
        indexes = [
            models.Index(
                fields=["experiment", "stage", "release", "-sampled_at"],
                name="success_sample_newest",
            ),
        ]

    def __str__(self) -> str:
        return f"success of {self.stage}: {self.job}"
