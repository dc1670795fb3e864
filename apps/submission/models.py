"""The cluster of a request, the arrays submitted for it, and batches of retries.

Written by domain functions only.
"""

import re
import shlex
import uuid

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q, Value
from django.urls import reverse

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.core.models import Work
from apps.diagnosis.models import FailureGroup
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.models import Incident
from apps.submission.enums import (
    IN_BATCH,
    IN_SCHEDULER,
    BatchState,
    HostChoice,
    Purpose,
    RetryState,
    ScoutState,
    SubmissionState,
)

_FACTOR = [MinValueValidator(0.1), MaxValueValidator(10)]
#: Keys of `Submission.asked` and `RetryJob.changes`: the excluded hosts that the jobs avoid, and
#: whether exclusions were ignored because no other host was left.
EXCLUDED_HOSTS = "excluded_hosts"
EXCLUSIONS_DROPPED = "exclusions_dropped"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")


def check_environment(text: str) -> None:
    """Raise `ValidationError` for a line that sets no variable, or one of the portal's own."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not _VARIABLE.fullmatch(line):
            raise ValidationError(f"Line {number}: write NAME=value.")
        if line.startswith("OPSPORTAL_"):
            raise ValidationError(
                f"Line {number}: variables named OPSPORTAL_… are set by the portal."
            )


def check_arguments(text: str) -> None:
    """Raise `ValidationError` for words that a shell could not split."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise ValidationError(f"These are no words of a command: {error}.") from None


class Assignment(models.Model):
    """The cluster to which the portal submits the jobs of a request."""

    request = models.OneToOneField(Request, on_delete=models.CASCADE, related_name="assignment")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="assignments")
    most_in_flight = models.PositiveIntegerField(
        null=True, blank=True, help_text="Maximum number of queued and running jobs."
    )
    assigned_at = models.DateTimeField()
    assigned_by = models.CharField(max_length=150)
    looked_at = models.DateTimeField(
        null=True, blank=True, help_text="Time when all new files were taken."
    )
    listing_error = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="Why the files of a dataset could not be listed. Empty: they could.",
    )
    listing_failed_since = models.DateTimeField(null=True, blank=True)
    listing_tried_at = models.DateTimeField(
        null=True, blank=True, help_text="When the catalogue was last asked in vain."
    )

    def __str__(self) -> str:
        return f"{self.request} on {self.cluster}"


class FilesCheck(models.Model):
    """The result of looking up the input files of a queued request.

    It is valid for `version` of the request: files of a changed request are looked up again.
    """

    request = models.OneToOneField(Request, on_delete=models.CASCADE, related_name="files_check")
    version = models.PositiveIntegerField()
    error = models.TextField(
        blank=True, help_text="Why the files cannot be listed or divided. Empty: they can."
    )
    checked_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"files of {self.request_id}"


class Submission(models.Model):
    """One job array of a stage, with the exact script that was submitted.

    Task n of the array is job `first` + n, or the nth of `indices` if given.
    """

    request = models.ForeignKey(Request, on_delete=models.PROTECT, related_name="submissions")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="submissions")
    number = models.PositiveIntegerField(help_text="Number of the submission within its request.")
    position = models.PositiveSmallIntegerField(help_text="Position of the stage, from 0.")
    stage_name = models.CharField(max_length=64)
    purpose = models.CharField(max_length=16, choices=Purpose, default=Purpose.PRODUCTION.value)
    debug_of = models.ForeignKey(
        Job,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="debug_runs",
        help_text="The job that is re-run.",
    )
    profile = models.CharField(max_length=64, blank=True, help_text="Name of the debug profile.")
    retry_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="retries"
    )
    first = models.PositiveIntegerField(help_text="Number of the first job.")
    tasks = models.PositiveIntegerField(help_text="Number of jobs.")
    indices = models.TextField(blank=True, help_text="Numbers of the jobs, if not consecutive.")
    state = models.CharField(
        max_length=16, choices=SubmissionState, default=SubmissionState.PLANNED.value
    )
    token = models.UUIDField(unique=True, default=uuid.uuid4)
    script = models.TextField()
    script_sha256 = models.CharField(max_length=64)
    asked = models.JSONField(default=dict, help_text="Limits and options for the scheduler.")
    changes = models.JSONField(
        default=dict,
        db_default=Value({}, models.JSONField()),
        blank=True,
        help_text="Resources that differ from those of the stage.",
    )
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(help_text="Earliest time of the next attempt.")
    sending_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last attempt.")
    sent_at = models.DateTimeField(null=True, blank=True)
    spool_id = models.CharField(
        max_length=64, blank=True, help_text="ID of the array in the scheduler."
    )
    last_error = models.TextField(blank=True)
    ended = models.PositiveIntegerField(default=0, help_text="Finished jobs.")
    completed = models.PositiveIntegerField(default=0)
    failed_indices = models.TextField(blank=True)
    settled_at = models.DateTimeField(
        null=True, blank=True, help_text="Time when all jobs had finished."
    )
    held_at = models.DateTimeField(
        null=True, blank=True, help_text="When its queued jobs were held in the scheduler."
    )
    release_requested_at = models.DateTimeField(
        null=True, blank=True, help_text="When the release of its held jobs was requested."
    )
    cancel_requested_at = models.DateTimeField(
        null=True, blank=True, help_text="When cancellation was requested."
    )
    cancelled_at = models.DateTimeField(
        null=True, blank=True, help_text="When the scheduler was asked to cancel its jobs."
    )
    answered_at = models.DateTimeField(
        null=True, blank=True, help_text="When someone acted on its failed test."
    )
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["request", "number"]
        constraints = [
            models.UniqueConstraint(fields=["request", "number"], name="submission_number_once"),
            models.UniqueConstraint(
                fields=["request", "position", "first"],
                condition=Q(retry_of=None, purpose="production"),
                name="submission_of_jobs_once",
            ),
            models.UniqueConstraint(
                fields=["request", "position"],
                condition=Q(purpose="test", settled_at=None),
                name="submission_test_once",
            ),
            models.UniqueConstraint(fields=["retry_of", "first"], name="submission_retry_once"),
            models.CheckConstraint(
                condition=Q(state__in=SubmissionState.values), name="submission_state"
            ),
            models.CheckConstraint(
                condition=Q(purpose__in=Purpose.values), name="submission_purpose"
            ),
            models.CheckConstraint(
                condition=Q(state="sent", sent_at__isnull=False) & ~Q(spool_id="")
                | ~Q(state="sent") & Q(sent_at=None, spool_id=""),
                name="submission_sent",
            ),
            models.CheckConstraint(condition=Q(tasks__gt=0), name="submission_tasks"),
        ]
        indexes = [
            models.Index(
                fields=["cluster", "state"],
                condition=Q(settled_at=None),
                name="submission_unsettled",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request.key}.{self.number}"

    @property
    def is_test(self) -> bool:
        """Whether it is one short job before production."""
        return self.purpose == Purpose.TEST

    @property
    def excluded_hosts(self) -> list[str]:
        """The excluded hosts that its jobs avoid, as of its submission; none before that."""
        if self.state not in IN_SCHEDULER:
            return []
        return list(self.asked.get(EXCLUDED_HOSTS, ()))

    @property
    def exclusions_dropped(self) -> bool:
        """Whether hosts were excluded that its jobs may use, because no other host was left."""
        return self.state in IN_SCHEDULER and bool(self.asked.get(EXCLUSIONS_DROPPED, False))

    @property
    def first_job_id(self) -> str:
        """Return the ID of the first job as the scheduler shows it.

        The jobs of the portal are arrays.
        """
        if self.cluster.scheduler != "slurm":
            return self.spool_id
        return f"{self.spool_id}_0"

    @property
    def name(self) -> str:
        """Return the job name, by which the array is found in the scheduler."""
        return f"{self.request.key}.{self.position + 1}.{self.token.hex}"


class DebugProfile(models.Model):
    """What a debug re-run changes about a job: users choose it, admins write it."""

    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="debug_profiles",
        help_text="Empty: for all experiments.",
    )
    name = models.CharField(max_length=64)
    description = models.CharField(max_length=250, blank=True)
    environment = models.TextField(
        blank=True,
        validators=[check_environment],
        help_text=(
            "One variable per line, such as MESSAGELEVEL=debug; added to the environment of"
            " the job."
        ),
    )
    arguments = models.CharField(
        max_length=500,
        blank=True,
        validators=[check_arguments],
        help_text="Added to the command, such as --verbose 3. Jobs of requests only.",
    )
    trace = models.BooleanField(
        default=True, help_text="The shell prints every command of the script (set -x)."
    )
    memory_factor = models.FloatField(
        default=1, validators=_FACTOR, help_text="Multiplies the requested memory."
    )
    time_factor = models.FloatField(
        default=1, validators=_FACTOR, help_text="Multiplies the time limit."
    )
    most_events = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty: all events of the job."
    )
    one_file = models.BooleanField(
        default=False, help_text="Reads only the first of its input files."
    )
    host = models.CharField(max_length=8, choices=HostChoice, default=HostChoice.ANY.value)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["experiment", "name"], name="debug_profile_once", nulls_distinct=False
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def variables(self) -> dict[str, str]:
        """The variables that are added, by name."""
        pairs = (line.partition("=") for line in self.environment.splitlines() if line.strip())
        return {name: value for name, _, value in pairs}

    @property
    def words(self) -> list[str]:
        """The words that are added to the command."""
        return shlex.split(self.arguments)


class StageScouts(models.Model):
    """The first jobs of a stage, which run before the others, and what the ends of jobs show.

    While the state is `SCOUTING`, no more than `allowed` jobs of the stage are planned. A stage
    that was found broken is on hold; once a person lifts the hold, it is not stopped again.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="scouts")
    position = models.PositiveSmallIntegerField(help_text="Position of the stage, from 0.")
    state = models.CharField(max_length=16, choices=ScoutState, default=ScoutState.SCOUTING.value)
    allowed = models.PositiveIntegerField(help_text="Jobs that may run before the others.")
    usual_rate = models.FloatField(help_text="Share of earlier jobs of such a stage that failed.")
    ended = models.PositiveIntegerField(
        default=0, help_text="Jobs that had ended when it was last judged."
    )
    completed = models.PositiveIntegerField(default=0, help_text="Jobs judged as completed.")
    failed = models.PositiveIntegerField(
        default=0, help_text="Jobs judged as failed by a cause of their own."
    )
    is_waiting = models.BooleanField(
        default=False, help_text="Whether the verdict of a failed job is still awaited."
    )
    group = models.ForeignKey(
        FailureGroup,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="The failure group of most of the failed jobs.",
    )
    hold = models.ForeignKey(
        "production.Hold", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    started_at = models.DateTimeField()
    judged_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last change of its state."
    )
    measured_jobs = models.PositiveIntegerField(
        default=0, help_text="Completed scouts whose wall time was measured."
    )
    asked_memory_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="Memory of a job that the stage asked for when measured."
    )
    measured_memory_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="95th percentile of the peak memory of the scouts."
    )
    memory_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="Memory of the jobs after the scouts. Empty: as asked."
    )
    asked_wall_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="Time limit that the stage asked for when measured."
    )
    measured_wall_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="95th percentile of the wall time of the scouts."
    )
    wall_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="Time limit of the jobs after the scouts. Empty: as asked."
    )
    measured_at = models.DateTimeField(
        null=True, blank=True, help_text="When all scouts had ended and were measured."
    )

    class Meta:
        verbose_name_plural = "stage scouts"
        constraints = [
            models.UniqueConstraint(fields=["request", "position"], name="stage_scouts_once"),
            models.CheckConstraint(
                condition=Q(state__in=ScoutState.values), name="stage_scouts_state"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request.key}, stage {self.position + 1}: {self.get_state_display()}"

    @property
    def judged(self) -> int:
        return self.completed + self.failed


class RetryBatch(Work):
    """Failed jobs of a failure group or incident, or one job, retried together in steps."""

    group = models.ForeignKey(
        FailureGroup, on_delete=models.SET_NULL, null=True, blank=True, related_name="retry_batches"
    )
    incident = models.ForeignKey(
        Incident, on_delete=models.SET_NULL, null=True, blank=True, related_name="retry_batches"
    )
    job = models.ForeignKey(
        Job, on_delete=models.SET_NULL, null=True, blank=True, related_name="retry_batches"
    )
    title = models.CharField(max_length=250)
    state = models.CharField(max_length=16, choices=BatchState, default=BatchState.RELEASING.value)
    step = models.PositiveIntegerField(help_text="Number of jobs released at a time.")
    pause_minutes = models.PositiveIntegerField(help_text="Time between two steps.")
    stops = models.BooleanField(
        default=True, help_text="Stops if too many of its retries fail again."
    )
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    released_at = models.DateTimeField(null=True, blank=True, help_text="Time of the last step.")
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="Time when it was finished or cancelled."
    )

    class Meta:
        verbose_name_plural = "retry batches"
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=BatchState.values), name="retry_batch_state"
            ),
            models.CheckConstraint(condition=Q(step__gt=0), name="retry_batch_step"),
        ]

    def __str__(self) -> str:
        return f"retry batch {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("submission:retry-batch", args=[self.pk])

    @property
    def source(self) -> FailureGroup | Incident | Job | None:
        """What its jobs have in common; None if that was deleted."""
        return self.group or self.incident or self.job


class RetryJob(models.Model):
    """A failed job in a batch of retries, and the array that retries it once it is released.

    A job that the portal did not submit has none: it is submitted once more as its owner, under the
    name `name`.
    """

    batch = models.ForeignKey(RetryBatch, on_delete=models.CASCADE, related_name="jobs")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    state = models.CharField(max_length=16, choices=RetryState, default=RetryState.WAITING.value)
    why = models.CharField(max_length=500, blank=True, help_text="Why it was left out.")
    submission = models.ForeignKey(
        Submission, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    released_at = models.DateTimeField(null=True, blank=True)
    as_owner = models.BooleanField(default=False)
    token = models.UUIDField(default=uuid.uuid4, editable=False)
    attempt = models.PositiveSmallIntegerField(
        default=2, help_text="Attempt number of the retry; the first job is attempt 1."
    )
    sending_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last try to submit it."
    )
    tries = models.PositiveSmallIntegerField(default=0, help_text="Tries to submit it.")
    spool_id = models.CharField(
        max_length=64, blank=True, help_text="ID of the retry in the scheduler."
    )
    changes = models.JSONField(
        default=dict,
        db_default=Value({}, models.JSONField()),
        blank=True,
        help_text="Resources that differ from those of the failed job.",
    )

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=RetryState.values), name="retry_job_state"
            ),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state__in=list(IN_BATCH)), name="retry_job_in_one_batch"
            ),
        ]
        indexes = [
            models.Index(fields=["batch", "state"], name="retry_job_of_batch"),
            models.Index(fields=["spool_id"], condition=~Q(spool_id=""), name="retry_job_spool_id"),
        ]

    def __str__(self) -> str:
        return f"{self.job} in {self.batch}"

    @property
    def excluded_hosts(self) -> list[str]:
        """The excluded hosts that it avoids, as of its submission as its owner."""
        return list(self.changes.get(EXCLUDED_HOSTS, ()))

    @property
    def exclusions_dropped(self) -> bool:
        """Whether hosts were excluded that it may use, because no other host was left."""
        return bool(self.changes.get(EXCLUSIONS_DROPPED, False))

    @property
    def name(self) -> str:
        """The name of the retry in its scheduler, where it is found again."""
        return f"retry.{self.job.spool_id}.{self.token.hex}"


class KnownDatabase(models.Model):
    """A database of this portal; the newest one is in use.

    A restore adds a row, whether it is of a dump or to a moment. No row is deleted.
    """

    identity = models.CharField(
        max_length=64, help_text="Of the PostgreSQL server, and of the database in it."
    )
    timeline = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="PostgreSQL's timeline, which changes with a failover or a restore to a moment.",
    )
    noticed_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="When it was last in use, to the minute.")
    state_at = models.DateTimeField(
        null=True, blank=True, help_text="When the copy was made that was restored; else empty."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(identity=""), name="known_database_identity"),
        ]

    def __str__(self) -> str:
        return self.identity


class UnknownArray(models.Model):
    """Jobs of a request that the scheduler has and the portal does not know since a restore."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    spool_id = models.CharField(max_length=64)
    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="unknown_arrays")
    position = models.PositiveSmallIntegerField(help_text="Position of the stage, from 0.")
    submitted_at = models.DateTimeField()
    noticed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "spool_id", "submitted_at"], name="unknown_array_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.spool_id} on {self.cluster.name}"
