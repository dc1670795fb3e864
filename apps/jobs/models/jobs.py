"""Jobs from accounting, their proofs, collection state, totals, queue counts and masking rules."""

from collections.abc import Callable
from datetime import date
from typing import Self

from django.contrib.postgres.indexes import BrinIndex
from django.core.exceptions import ValidationError
from django.db import models

from apps.accounts.models import Experiment, ExperimentQuerySet, M
from apps.clusters.models import Cluster, Site
from apps.clusters.schedulers.base import CurrentState
from apps.core.domain.secrets.masking import MaskPattern
from apps.jobs.enums import (
    FAILED_STATES,
    STATE_CHOICES,
    ClaimScope,
    Counted,
    LogPathSource,
    MappedName,
    MaskedPart,
    Proof,
    RecordSource,
)
from apps.production.models import Request

_FAILED = sorted(state.value for state in FAILED_STATES)

#: The host name without its domain.
SHORT_HOST = models.Func(
    models.F("host"),
    models.Value("."),
    models.Value(1),
    function="split_part",
    output_field=models.TextField(),
)


class JobQuerySet(ExperimentQuerySet[M]):
    """Jobs. Only the OPG can see jobs without an experiment."""

    def failed(self) -> Self:
        """Return failed jobs. Cancelled, preempted and requeued jobs are not failed."""
        return self.filter(state__in=_FAILED)


class Job(models.Model):
    """One attempt of one finished job. All its text comes from the job's owner and is untrusted."""

    cluster = models.ForeignKey(
        Cluster, on_delete=models.PROTECT, related_name="jobs", db_index=False
    )
    job_id = models.CharField(max_length=64, help_text="As shown to users: 4711, 86_3, 87+1.")
    raw_id = models.BigIntegerField(help_text="The scheduler's internal number.")
    spool_id = models.CharField(
        max_length=64,
        help_text="ID of its script in the spool; the same for all tasks of an array.",
    )
    attempt = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, choices=STATE_CHOICES)
    exit_code = models.IntegerField(default=0)
    signal = models.IntegerField(default=0)
    submitted_at = models.DateTimeField()
    started_at = models.DateTimeField(
        null=True, blank=True, help_text="Empty if it ended before it started."
    )
    ended_at = models.DateTimeField()
    host = models.CharField(max_length=255, blank=True)
    # Triggers guard experiment and site: database constraints on them would take a seventh of the
    # time of storing a job (ADR 31).
    site = models.ForeignKey(
        Site,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="jobs",
        db_index=False,
        db_constraint=False,
    )
    cpus = models.PositiveIntegerField(default=0)
    cpu_seconds = models.FloatField(default=0)
    wall_seconds = models.BigIntegerField(default=0)
    max_memory_bytes = models.BigIntegerField(null=True, blank=True)
    requested_memory_bytes = models.BigIntegerField(null=True, blank=True)
    time_limit_seconds = models.BigIntegerField(null=True, blank=True)
    partition = models.CharField(max_length=255, blank=True)
    account = models.CharField(max_length=255, blank=True)
    user = models.CharField(max_length=255, blank=True)
    name = models.CharField(max_length=1000, blank=True)
    comment = models.TextField(blank=True)
    reason = models.CharField(max_length=255, blank=True)
    cancelled_by = models.CharField(max_length=255, blank=True)
    work_dir = models.TextField(blank=True)
    submit_line = models.TextField(blank=True)
    stdout_path = models.TextField(blank=True)
    stderr_path = models.TextField(blank=True)
    uid = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="Numeric ID of the user on the cluster, if accounting has it.",
    )
    cpu_model = models.CharField(
        max_length=255, blank=True, help_text="From the record, the job, or the list of hosts."
    )
    host_address = models.CharField(
        max_length=64, blank=True, help_text="IP address of the host, if reported."
    )
    suspended_seconds = models.BigIntegerField(default=0)
    files_in = models.BigIntegerField(null=True, blank=True)
    files_out = models.BigIntegerField(null=True, blank=True)
    bytes_in = models.BigIntegerField(null=True, blank=True)
    bytes_out = models.BigIntegerField(null=True, blank=True)
    gpus = models.PositiveIntegerField(
        null=True, blank=True, help_text="GPUs it was given; empty if unknown."
    )
    gpu_share = models.FloatField(
        null=True, blank=True, help_text="Mean use of its GPUs, as a share of 1."
    )
    max_gpu_memory_bytes = models.BigIntegerField(null=True, blank=True)
    energy_joules = models.BigIntegerField(
        null=True, blank=True, help_text="Measured by the scheduler."
    )

    log_path = models.TextField(blank=True, help_text="Path of its stdout; untrusted.")
    error_log_path = models.TextField(blank=True, help_text="Path of its stderr, if separate.")
    log_path_source = models.CharField(max_length=16, blank=True, choices=LogPathSource)

    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="jobs",
        db_index=False,
        db_constraint=False,
    )
    claimed_key = models.CharField(
        max_length=64, blank=True, help_text="OPSPORTAL_REQUEST in its environment."
    )
    proof = models.CharField(
        max_length=16, blank=True, choices=Proof, help_text="How the claimed request is proven."
    )
    request_key = models.CharField(
        max_length=64, blank=True, help_text="The claimed request, if proven."
    )
    stage = models.CharField(
        max_length=64, blank=True, help_text="OPSPORTAL_STAGE in its environment."
    )
    release = models.CharField(
        max_length=100,
        blank=True,
        help_text="Software release of the stage, if the request is proven.",
    )
    request = models.ForeignKey(
        Request,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="job_records",
        db_index=False,
        help_text="Request with this key, if there is one.",
    )
    collected_at = models.DateTimeField()
    record_digest = models.CharField(
        max_length=32,
        blank=True,
        help_text="Keyed hash of the accounting record: an unchanged one is not processed again.",
    )

    #: The month whose archive it was read from; None if it is in the database.
    archived_in: date | None = None
    #: Set by ABSOLUTE_URL_OVERRIDES in the settings: the job page belongs to the app `portal`.
    get_absolute_url: Callable[[], str]

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            # `job_id` comes first, because jobs are also looked up by it alone.
            models.UniqueConstraint(
                fields=["job_id", "cluster", "submitted_at", "attempt"], name="job_attempt_once"
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=[value for value, _ in STATE_CHOICES]),
                name="job_state",
            ),
            models.CheckConstraint(
                condition=~models.Q(proof=Proof.CLAIMED) | models.Q(request_key="", request=None),
                name="job_claim_is_no_proof",
            ),
        ]
        indexes = [
            models.Index(fields=["-ended_at", "-id"], name="job_newest"),
            # Jobs are stored in order of their end, so 32 kB of index find the pages of a month.
            BrinIndex(
                fields=["ended_at"], pages_per_range=32, autosummarize=True, name="job_by_end"
            ),
            models.Index(fields=["experiment", "-ended_at"], name="job_of_experiment"),
            models.Index(
                fields=["-ended_at", "-id"],
                condition=models.Q(state__in=_FAILED),
                name="job_failed",
            ),
            models.Index(SHORT_HOST, models.F("ended_at").desc(), name="job_on_host"),
            models.Index(
                fields=["request_key", "stage", "-ended_at"],
                condition=~models.Q(request_key=""),
                name="job_of_request",
            ),
            models.Index(
                fields=["request_key", "submitted_at"],
                condition=~models.Q(request_key=""),
                name="job_of_request_by_begin",
            ),
            models.Index(
                fields=["request_key"],
                condition=~models.Q(request_key="") & models.Q(attempt__gt=1),
                name="job_of_request_again",
            ),
            models.Index(
                fields=["claimed_key"], condition=models.Q(proof=Proof.CLAIMED), name="job_claim"
            ),
            models.Index(
                fields=["claimed_key"],
                condition=models.Q(proof=Proof.ACCEPTED),
                name="job_accepted_claim",
            ),
            models.Index(fields=["user", "-ended_at"], name="job_of_user"),
            models.Index(
                fields=["exit_code", "-ended_at"],
                condition=~models.Q(exit_code=0),
                name="job_by_exit_code",
            ),
            # A partial index: jobs are stored before their request is known.
            models.Index(
                fields=["request"], condition=~models.Q(request=None), name="job_with_request"
            ),
            models.Index(fields=["spool_id", "cluster"], name="job_in_spool"),
            models.Index(fields=["raw_id"], name="job_by_raw_id"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} on {self.cluster.name}" + (
            f", attempt {self.attempt}" if self.attempt > 1 else ""
        )

    @property
    def is_failed(self) -> bool:
        return self.state in FAILED_STATES

    @property
    def queued_seconds(self) -> float | None:
        """The queue time in seconds; None if the job never started."""
        if not self.started_at:
            return None
        return (self.started_at - self.submitted_at).total_seconds()

    @property
    def core_seconds(self) -> int:
        """Wall time × cores."""
        return self.wall_seconds * self.cpus


class AccountMap(models.Model):
    """Maps the jobs of an account or user to an experiment."""

    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, null=True, blank=True, help_text="Empty: all clusters."
    )
    kind = models.CharField(max_length=8, choices=MappedName, default=MappedName.ACCOUNT.value)
    account = models.CharField("account or user", max_length=255)
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "account"], nulls_distinct=False, name="account_map_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.account} of {self.experiment.key}"


class SubmittedArray(models.Model):
    """A job array that the portal submitted for a request; its spool ID proves its jobs."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    spool_id = models.CharField(max_length=64)
    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="+")
    sent_at = models.DateTimeField(help_text="Start of the submission, since IDs are recycled.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "spool_id", "sent_at"], name="submitted_array_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.spool_id} on {self.cluster.name}"


class ClaimAcceptance(models.Model):
    """An operator's decision that jobs belong to the request they claim.

    It covers one job, one array, or all jobs of a user.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="claim_acceptances")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    scope = models.CharField(max_length=8, choices=ClaimScope)
    name = models.CharField(max_length=255, help_text="Job ID, ID of the array, or user.")
    submitted_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Submission time of the job or array, since IDs are recycled.",
    )
    reason = models.TextField()
    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=150, blank=True)
    withdrawn_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["request", "cluster", "scope", "name", "submitted_at"],
                condition=models.Q(withdrawn_at=None),
                nulls_distinct=False,
                name="claim_accepted_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name} on {self.cluster.name}"


class Collection(models.Model):
    """Collection state of a cluster."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="collection")
    collected_until = models.DateTimeField(
        help_text="All jobs that ended before this time have been collected."
    )
    rechecked_at = models.DateTimeField(
        null=True, blank=True, help_text="Last check for late corrections."
    )
    last_run_at = models.DateTimeField(null=True, blank=True)
    last_success_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"{self.cluster} until {self.collected_until:%Y-%m-%d %H:%M:%S}"

    @property
    def lag_seconds(self) -> float | None:
        """The lag of collection in the last run, in seconds."""
        if not self.last_run_at:
            return None
        return (self.last_run_at - self.collected_until).total_seconds()


class HourlyTotals(models.Model):
    """Totals of the jobs that finished in one hour; every figure equals a recount."""

    hour = models.DateTimeField()
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    request_key = models.CharField(max_length=64, blank=True)
    stage = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=16, choices=STATE_CHOICES)
    jobs = models.PositiveIntegerField()
    wall_seconds = models.BigIntegerField()
    core_seconds = models.BigIntegerField(help_text="Sum of wall time × cores.")
    cpu_seconds = models.FloatField()
    last_ended_at = models.DateTimeField()
    retried = models.PositiveIntegerField(
        default=0, help_text="Number of jobs that are second or later attempts."
    )

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "hourly totals"
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "cluster", "experiment", "request_key", "stage", "state"],
                nulls_distinct=False,
                name="hourly_totals_once",
            ),
        ]
        indexes = [
            models.Index(
                fields=["request_key", "stage"],
                condition=~models.Q(request_key=""),
                name="hourly_totals_of_request",
            ),
        ]

    def __str__(self) -> str:
        return (
            f"{self.hour:%Y-%m-%d %H}h {self.cluster.name} {self.request_key} {self.stage} "
            f"{self.state}: {self.jobs}"
        )


class HourlyEnds(models.Model):
    """`HourlyTotals` summed over requests and stages, written along with them."""

    hour = models.DateTimeField()
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    state = models.CharField(max_length=16, choices=STATE_CHOICES)
    jobs = models.PositiveIntegerField()
    core_seconds = models.BigIntegerField(help_text="Sum of wall time × cores.")

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "hourly ends"
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "cluster", "experiment", "state"],
                nulls_distinct=False,
                name="hourly_ends_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.cluster.name} {self.state}: {self.jobs}"


class DirtyHour(models.Model):
    """A mark that an hour must be recounted.

    Rows are only inserted, so that writers never wait; duplicates are normal.
    """

    counts = models.CharField(max_length=8, choices=Counted, default=Counted.JOBS.value)
    hour = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["counts", "hour"], name="dirty_hour")]

    def __str__(self) -> str:
        return f"{self.counts} of {self.hour:%Y-%m-%d %H}h"


class FlaggedRecord(models.Model):
    """A bad job record, kept unchanged with the reason."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    source = models.CharField(max_length=16, choices=RecordSource)
    digest = models.CharField(
        max_length=32, help_text="Digest of the whole record; a repeated record is kept once."
    )
    raw = models.TextField(help_text="At most 64,000 characters, secrets masked.")
    reason = models.CharField(max_length=500)
    stored = models.BooleanField(
        help_text="The job was stored with the trustworthy part of the record."
    )
    received_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "digest"], name="flagged_record_once")
        ]
        indexes = [models.Index(fields=["-received_at", "-id"], name="flagged_record_newest")]

    def __str__(self) -> str:
        return f"{self.cluster}: {self.reason}"


class StatisticsValue(models.Model):
    """A value of a statistics dimension; blocks store its ID instead of the text."""

    dimension = models.CharField(max_length=16)
    text = models.CharField(max_length=255)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dimension", "text"], name="statistics_value_once")
        ]

    def __str__(self) -> str:
        return f"{self.dimension} {self.text}"


class StatisticsBlock(models.Model):
    """One column of the statistics of an hour or day: one value per row, as compressed integers.

    All columns of a level and bucket have the same rows in the same order; see
    `domain/statistics/blocks.py`.
    """

    level = models.CharField(max_length=16)
    column = models.CharField(max_length=32)
    bucket = models.DateTimeField(help_text="Start of the hour or day, in UTC.")
    rows = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["level", "column", "bucket"], name="statistics_block_once"
            ),
        ]
        indexes = [models.Index(fields=["bucket"], name="statistics_block_bucket")]

    def __str__(self) -> str:
        return f"{self.level} {self.column} {self.bucket:%Y-%m-%d %H}h: {self.rows}"


class QueueReading(models.Model):
    """The last reading of a cluster's queue."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="queue_reading")
    at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last answer. Empty: none yet."
    )
    last_error = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"queue of {self.cluster}"


class QueueCount(models.Model):
    """Unfinished jobs of a stage on a cluster, as of its last reading."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="queue_counts")
    stage = models.CharField(max_length=64, blank=True)
    queued = models.PositiveIntegerField(default=0)
    running = models.PositiveIntegerField(default=0)
    held = models.PositiveIntegerField(default=0)
    newest_submitted_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "request", "stage"], name="queue_count_once")
        ]

    def __str__(self) -> str:
        return (
            f"{self.request_id} {self.stage} on {self.cluster}: {self.queued}, {self.running}, "
            f"{self.held}"
        )


class LiveJobs(models.Model):
    """A group of equal unfinished jobs of a cluster, as of its last reading."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    state = models.CharField(
        max_length=8, choices=[(state.value, state.value.capitalize()) for state in CurrentState]
    )
    reason = models.CharField(max_length=100, blank=True, help_text="As reported by the scheduler.")
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    request = models.ForeignKey(
        Request, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    stage = models.CharField(max_length=64, blank=True)
    account = models.CharField(max_length=255, blank=True)
    jobs = models.PositiveIntegerField()
    oldest_submitted_at = models.DateTimeField()

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "live jobs"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "state", "reason", "experiment", "request", "stage", "account"],
                nulls_distinct=False,
                name="live_jobs_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.jobs} {self.state} on {self.cluster.name}: {self.reason}"


class MaskingRule(models.Model):
    """A pattern that capture and collection mask, in addition to CAPTURE_MASK_NAMES."""

    applies_to = models.CharField(
        max_length=8, choices=MaskedPart, help_text="Part that the pattern is matched against."
    )
    pattern = models.CharField(
        max_length=500,
        help_text=(
            "RE2 syntax, matched anywhere unless anchored with ^ and $: ^MY_PIN$, or (?i)bearer "
            "[a-z0-9]+."
        ),
    )
    note = models.CharField(max_length=200, blank=True, help_text="Which secret this masks.")
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["applies_to", "pattern"]
        constraints = [
            models.UniqueConstraint(fields=["applies_to", "pattern"], name="masking_rule_once")
        ]

    def __str__(self) -> str:
        return f"{self.applies_to} {self.pattern}"

    def clean(self) -> None:
        """Raise `ValidationError` for the field `pattern` if it is not valid."""
        if not self.pattern:  # refused as missing
            return
        try:
            self.as_rule()
        except ValueError as error:
            raise ValidationError({"pattern": f"This {error}."}) from error

    def as_rule(self) -> MaskPattern:
        """Return the rule for the masker. Raises `ValueError`."""
        return MaskPattern("name" if self.applies_to == MaskedPart.NAME else "value", self.pattern)
