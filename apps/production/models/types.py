"""Workflow types and their versions. Only domain functions write them."""

from django.db import models


class WorkflowType(models.Model):
    """A kind of production, such as Monte Carlo. Its versions declare stages and arguments."""

    key = models.SlugField(
        max_length=40, unique=True, help_text="Cannot be changed. Lower-case letters, digits and _."
    )
    experiment = models.ForeignKey(
        "accounts.Experiment",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Empty: all experiments.",
    )
    enabled = models.BooleanField(default=True, help_text="New requests can have this type.")

    class Meta:
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key


class WorkflowVersion(models.Model):
    """A version of a declaration. It never changes, because requests refer to it."""

    type = models.ForeignKey(WorkflowType, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    title = models.CharField(max_length=100)
    declaration = models.TextField(help_text="YAML; see docs/workflows.md.")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["type", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["type", "number"], name="workflow_version_once")
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.number})"
