"""Ends of logs that jobs post themselves."""

import zstandard
from django.db import models

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.diagnosis.enums import Stream


class PostedLog(models.Model):
    """The end of a log that the job itself posted while it ran."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    job_id = models.CharField(max_length=64, help_text="As in the environment of the job.")
    array_id = models.CharField(
        max_length=64, help_text="The part of the ID that all jobs of the array share."
    )
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, db_index=False)
    token_label = models.CharField(max_length=64, help_text="Label of the token that the job used.")
    stream = models.CharField(max_length=8, choices=Stream)
    first_offset = models.BigIntegerField(help_text="Byte offset of the end in the log.")
    compressed = models.BinaryField(help_text="Its bytes, compressed by zstd.")
    posted_at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [
            models.Index(fields=["cluster", "job_id"], name="posted_log_of_job"),
            models.Index(fields=["token_label", "array_id"], name="posted_log_of_token"),
            models.Index(fields=["experiment", "posted_at"], name="posted_log_of_day"),
        ]

    def __str__(self) -> str:
        return f"{self.stream} of {self.job_id}"

    @property
    def data(self) -> bytes:
        """The posted bytes."""
        return zstandard.ZstdDecompressor().decompress(bytes(self.compressed))
