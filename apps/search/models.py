"""The templates and words of the logs of jobs, and how many jobs have each template by hour."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models

from apps.accounts.models import Experiment, ExperimentQuerySet, User
from apps.clusters.models import Site
from apps.core.models import Work
from apps.jobs.models import Job

LONGEST_TEXT = 300


def signed(number: int) -> int:
    """Return 64 bits as PostgreSQL stores them."""
    return number - (1 << 64) if number >> 63 else number


class LineTemplate(models.Model):
    """A line of logs without its numbers, paths and IDs, as one experiment's jobs write it.

    Each experiment has its own rows, so that nobody learns what jobs of others write.
    """

    # Four bytes: each job has an array of these.
    id = models.AutoField(primary_key=True)
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    hash = models.BigIntegerField(help_text="64 bits of the hash of the template.")
    text = models.CharField(
        max_length=LONGEST_TEXT, help_text="The line, with * for what varies, and cut if long."
    )
    names_error = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField(help_text="End of the first job that wrote it.")
    first_site = models.ForeignKey(
        Site, on_delete=models.SET_NULL, null=True, blank=True, db_index=False
    )
    spread_at = models.DateTimeField(
        null=True, blank=True, help_text="When a job of a second site wrote it, within an hour."
    )
    announced_at = models.DateTimeField(null=True, blank=True)

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hash", "experiment"], nulls_distinct=False, name="line_template_once"
            ),
        ]
        indexes = [models.Index(fields=["first_seen_at"], name="line_template_newest")]

    def __str__(self) -> str:
        return self.text

    @property
    def unsigned_hash(self) -> int:
        return self.hash % (1 << 64)

    @property
    def number(self) -> str:
        """The hash as 16 hexadecimal digits, as in addresses."""
        return f"{self.unsigned_hash:016x}"


class LineWatch(models.Model):
    """A user is notified when a job writes a line again, in any experiment that the user sees."""

    user = models.ForeignKey(
        User, on_delete=models.CASCADE, related_name="line_watches", db_index=False
    )
    hash = models.BigIntegerField(help_text="64 bits of the hash of the template.")
    created_at = models.DateTimeField()
    seen_until = models.DateTimeField(
        help_text="End of the newest job of which the user was notified; first, the creation."
    )
    notified_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "line watches"
        constraints = [
            models.UniqueConstraint(fields=["user", "hash"], name="line_watch_once"),
        ]
        indexes = [models.Index(fields=["hash"], name="line_watch_of_line")]

    def __str__(self) -> str:
        return f"{self.user_id} watches {self.number}"

    @property
    def unsigned_hash(self) -> int:
        return self.hash % (1 << 64)

    @property
    def number(self) -> str:
        """The hash as 16 hexadecimal digits, as in addresses."""
        return f"{self.unsigned_hash:016x}"


class JobTemplates(models.Model):
    """The templates of the lines in the logs of one job.

    End and outcome are copied from the job, and follow it when its hour is recounted.
    """

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="templates"
    )
    ended_at = models.DateTimeField()
    failed = models.BooleanField(
        null=True, help_text="Empty if the job neither failed nor completed."
    )
    templates = ArrayField(models.IntegerField(), help_text="Keys of templates, in order.")
    read_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "templates of jobs"
        indexes = [
            GinIndex(fields=["templates"], name="job_templates"),
            # Ascending, and read backwards: pages that are appended to become full, others half.
            models.Index(fields=["ended_at", "job"], name="job_templates_newest"),
            models.Index(
                fields=["ended_at", "job"],
                condition=models.Q(failed=True),
                name="job_templates_failed",
            ),
        ]

    def __str__(self) -> str:
        return f"templates of {self.job}"


class TemplateTotals(models.Model):
    """How many jobs of a stage, ended in one hour, have a template; equal to a recount."""

    hour = models.DateTimeField()
    template = models.ForeignKey(LineTemplate, on_delete=models.CASCADE, db_index=False)
    stage = models.CharField(max_length=64, blank=True)
    failed = models.PositiveIntegerField()
    good = models.PositiveIntegerField()

    class Meta:
        verbose_name_plural = "totals of templates"
        constraints = [
            models.UniqueConstraint(
                fields=["template", "hour", "stage"], name="template_totals_once"
            ),
        ]
        indexes = [models.Index(fields=["hour"], name="template_totals_by_hour")]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h template {self.template_id}: {self.failed + self.good}"


class ReadLogs(models.Model):
    """Of how many jobs of a stage, ended in one hour, the logs were read."""

    hour = models.DateTimeField()
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    stage = models.CharField(max_length=64, blank=True)
    failed = models.PositiveIntegerField()
    good = models.PositiveIntegerField()

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "read logs"
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "experiment", "stage"], nulls_distinct=False, name="read_logs_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.stage}: {self.failed + self.good} jobs"


class LogWords(models.Model):
    """The words in the kept end of the logs of one job.

    Hour, day and week of the job's end are words too, so that the newest jobs with a word are found
    however many have it. `ended_at` is copied from the job.
    """

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="log_words"
    )
    ended_at = models.DateTimeField()
    words = SearchVectorField()

    class Meta:
        verbose_name_plural = "words of logs"
        indexes = [
            GinIndex(fields=["words"], name="log_words"),
            # Ascending, and read backwards: pages that are appended to become full, others half.
            models.Index(fields=["ended_at", "job"], name="log_words_newest"),
        ]

    def __str__(self) -> str:
        return f"words of the logs of {self.job}"


class LogToIndex(Work):
    """A job whose kept logs are new, and not in `LogWords` yet."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="+")

    class Meta:
        verbose_name_plural = "logs to index"
        indexes = [models.Index(fields=["due_at"], name="log_to_index_due")]

    def __str__(self) -> str:
        return f"logs of {self.job}"


class LogIndex(models.Model):
    """An index of the logs: where it is, and how far it is filled with logs that were kept before.

    Logs that are kept are in `LogToIndex` until they are added. Those kept before are added from
    the newest to the oldest: those from `indexed_from` on are in it, all of them if `complete`.
    A target has one index that searches use, and beside it another one while that is rebuilt.
    """

    target = models.CharField(
        max_length=300, default="postgresql", help_text="The engine, and where it is."
    )
    generation = models.PositiveIntegerField(default=1)
    serving = models.BooleanField(default=True, help_text="Whether searches use it.")
    layout = models.PositiveIntegerField(
        default=1, help_text="Version of what is stored of a log; an old one is rebuilt."
    )
    months = ArrayField(
        models.CharField(max_length=7), default=list, blank=True, help_text="Such as 2026.11."
    )
    indexed_from = models.BigIntegerField(null=True, blank=True)
    complete = models.BooleanField(default=False)
    indexed = models.PositiveBigIntegerField(
        default=0, help_text="Logs added, of those kept before."
    )
    indexed_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="Failed attempts in a row.")
    retry_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "indexes of logs"
        constraints = [
            models.UniqueConstraint(fields=["target", "generation"], name="log_index_once"),
            models.UniqueConstraint(
                fields=["target"], condition=models.Q(serving=True), name="log_index_serving"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.target} {self.generation}"
