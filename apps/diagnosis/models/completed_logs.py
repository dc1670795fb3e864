"""The queue of completed jobs whose logs are yet to be read."""

from django.db import models

from apps.core.models import Work
from apps.jobs.models import Job


class CompletedLog(Work):
    """A completed job whose log is to be read for the templates of its lines."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="completed_log_due")]

    def __str__(self) -> str:
        return f"log of {self.job}"
