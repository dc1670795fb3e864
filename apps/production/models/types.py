"""Workflow types and their versions. Domain functions alone write them."""

from django.db import models


class WorkflowType(models.Model):
    """A kind of production, such as Monte Carlo. What it asks for is in its versions."""

    key = models.SlugField(max_length=40, unique=True, help_text="Stays as it is: small letters, digits and _.")
    experiment = models.ForeignKey(
        "accounts.Experiment", on_delete=models.PROTECT, null=True, blank=True, help_text="Empty: for every experiment."
    )
    enabled = models.BooleanField(default=True, help_text="New requests may be of this type.")

    class Meta:
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key


class WorkflowVersion(models.Model):
    """What a type asks for from some moment on; never changed, as requests were made with it."""

    type = models.ForeignKey(WorkflowType, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    title = models.CharField(max_length=100)
    declaration = models.TextField(help_text="In YAML; docs/workflows.md says how.")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["type", "-number"]
        constraints = [models.UniqueConstraint(fields=["type", "number"], name="workflow_version_once")]

    def __str__(self) -> str:
        return f"{self.title} ({self.number})"
