"""Sites, clusters, and their hosts."""

from django.core.exceptions import ValidationError
from django.db import models

from apps.clusters.schedulers.options import check_log_options, read_options
from apps.statusboard.models import Service


class Site(models.Model):
    """A computing centre."""

    name = models.CharField(max_length=64, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Host(models.Model):
    """A host of a cluster, as its scheduler last listed it."""

    cluster = models.ForeignKey(
        "Cluster", on_delete=models.CASCADE, related_name="hosts", db_index=False
    )
    name = models.CharField(max_length=255)
    cpu_model = models.CharField("CPU model", max_length=255, blank=True)
    address = models.CharField(max_length=64, blank=True)
    cores = models.PositiveIntegerField(null=True, blank=True)
    memory_bytes = models.BigIntegerField(null=True, blank=True)
    state = models.CharField(
        max_length=16, blank=True, db_default="", default="", help_text="Empty: unknown."
    )
    state_words = models.CharField(
        max_length=128,
        blank=True,
        db_default="",
        default="",
        help_text="The state as the scheduler words it.",
    )
    reason = models.CharField(max_length=500, blank=True, db_default="", default="")
    booted_at = models.DateTimeField(null=True, blank=True)
    listed_at = models.DateTimeField(
        help_text="When the scheduler last listed it with these values."
    )

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="host_once")]

    def __str__(self) -> str:
        return self.name


class Cluster(models.Model):
    """One batch system.

    Capture or collection creates the row when it first uses the name.
    """

    name = models.CharField(max_length=64, unique=True)
    scheduler = models.CharField(
        max_length=32, help_text="Name of the scheduler adapter: slurm, simulated, …"
    )
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text="Options of the adapter, name to text; see docs/slurm.md.",
    )
    site = models.ForeignKey(Site, on_delete=models.PROTECT, null=True, blank=True)
    service = models.ForeignKey(
        Service,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        help_text="The service that represents this cluster on the status board.",
    )
    max_memory_bytes = models.BigIntegerField(
        null=True,
        blank=True,
        help_text=(
            "Maximum memory of a job, such as 4 GB. Empty: unknown; requests are not checked."
        ),
    )
    max_wall_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Maximum wall time of a job, such as 48 h. Empty: unknown.",
    )
    submits = models.BooleanField(
        default=False, help_text="The portal may submit jobs of approved requests to this cluster."
    )
    submission = models.JSONField(
        default=dict,
        blank=True,
        help_text=(
            "How jobs are submitted: partition, qos, account, accounts, directory, …; see "
            "docs/submission.md."
        ),
    )
    collects = models.BooleanField(
        default=True, help_text="Collect finished jobs from its accounting."
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Reject invalid options."""
        problems = {}
        try:
            read_options(self.submission)
        except ValueError as error:
            problems["submission"] = str(error)
        try:
            check_log_options(self.options)
        except ValueError as error:
            problems["options"] = str(error)
        if problems:
            raise ValidationError(problems)
