"""The catalogue of known errors: its rows, all changes to them, and its version."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Upper
from django.urls import reverse

from apps.accounts.models import Experiment
from apps.diagnosis.enums import Category, ChangeState, JobAdvice, Role

ID_FORMAT = RegexValidator(
    r"\A[A-Z0-9]+(?:-[A-Z0-9]+)*\Z",
    "Use capital letters and digits in groups, joined by hyphens: XRD-TIMEOUT.",
)
ADVICES = [(advice.value, advice.label) for advice in JobAdvice if advice is not JobAdvice.NONE]


class CatalogueState(models.Model):
    """The version of the catalogue: one row, set in the transaction of each change."""

    number = models.BigIntegerField(default=0, help_text="ID of the last change that was applied.")
    shipped = models.CharField(
        max_length=12,
        blank=True,
        help_text="Version of the shipped catalogue that was loaded last.",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(pk=1), name="catalogue_state_once")
        ]

    def __str__(self) -> str:
        return f"version {self.number}"


class KnownError(models.Model):
    """A known error: a pattern of lines, its meaning for a job, and what to do."""

    id = models.CharField("ID", max_length=64, primary_key=True, validators=[ID_FORMAT])
    title = models.CharField(max_length=100)
    category = models.CharField(max_length=16, choices=Category)
    service = models.CharField(max_length=64, help_text="What failed: samweb, dcache, slurm, …")
    regex = models.TextField(
        "pattern",
        max_length=2000,
        help_text="Regular expression in RE2's syntax; found anywhere in a line.",
    )
    role = models.CharField(max_length=16, choices=Role)
    advice = models.CharField(max_length=16, choices=ADVICES)
    instructions = models.TextField(
        "what to do",
        blank=True,
        max_length=2000,
        help_text="Shown with the verdict, beside the advice.",
    )
    example = models.TextField(
        "example line", max_length=4000, help_text="A line of a log that the pattern matches."
    )
    where = models.CharField(
        max_length=16,
        default="stdout",
        help_text="Where the line appears: stdout, userlog, hold, submit, daemon.",
    )
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Applies only to jobs of this experiment. Empty: to all jobs.",
    )
    owner = models.CharField(
        max_length=150, blank=True, help_text="Person or team that maintains it."
    )
    link = models.URLField(blank=True, help_text="Ticket, documentation or status page.")
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Disabled after this time.")
    passive = models.BooleanField(default=False, help_text="Marks lines, but decides no verdict.")
    enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=0)
    shipped = models.JSONField(
        null=True, blank=True, help_text="Last shipped values; empty if added here."
    )
    pack = models.CharField(
        max_length=64, blank=True, help_text="The experiment pack that it comes from."
    )

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(category__in=Category.values), name="known_error_category"
            ),
            models.CheckConstraint(
                condition=models.Q(role__in=Role.values), name="known_error_role"
            ),
            models.CheckConstraint(
                condition=models.Q(id=Upper("id")), name="known_error_id_capitals"
            ),
        ]

    def __str__(self) -> str:
        return self.id

    def get_absolute_url(self) -> str:
        return reverse("diagnosis:known-error", args=[self.pk])


class KnownErrorOmission(models.Model):
    """How often a known error was left out of a log analysis because it was too slow.

    There is at most one row per known error; it is deleted when the expression changes.
    """

    known_error = models.OneToOneField(
        KnownError, on_delete=models.CASCADE, primary_key=True, related_name="omission"
    )
    analyses = models.PositiveIntegerField(default=0, help_text="Number of log analyses.")
    since = models.DateTimeField()
    last_at = models.DateTimeField()
    last_job = models.BigIntegerField(
        default=0,
        help_text="Primary key of the newest job. Its record may have been deleted since.",
    )

    def __str__(self) -> str:
        return f"{self.known_error_id}: {self.analyses}"


class KnownErrorChange(models.Model):
    """A change of a known error: proposed, applied as a version, or rejected.

    `values` has all its fields after the change. Approving a proposal changes only its `fields`,
    since other fields may have changed meanwhile.
    """

    known_error = models.CharField("known error", max_length=64, db_index=True)
    version = models.PositiveIntegerField(
        null=True, blank=True, help_text="Version of the known error, once applied."
    )
    state = models.CharField(max_length=16, choices=ChangeState)
    values = models.JSONField()
    fields = models.JSONField(
        default=list, blank=True, help_text="Names of the fields that it changes."
    )
    by = models.CharField(max_length=150)
    at = models.DateTimeField()
    reason = models.TextField(blank=True)
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision = models.TextField(blank=True, help_text="Why it was approved or rejected.")

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=ChangeState.values), name="known_error_change_state"
            ),
            models.UniqueConstraint(
                fields=["known_error", "version"], name="known_error_version_once"
            ),
            models.CheckConstraint(
                condition=models.Q(state=ChangeState.APPLIED) ^ models.Q(version=None),
                name="known_error_applied",
            ),
        ]

    def __str__(self) -> str:
        return self.known_error

    def get_absolute_url(self) -> str:
        return reverse("diagnosis:known-error-change", args=[self.pk])
