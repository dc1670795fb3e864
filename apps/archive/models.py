"""Scripts and environments, each content stored once, and their jobs."""

from functools import reduce
from operator import or_
from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Value
from django.db.models.functions import Now

from apps.accounts.models import Experiment, ExperimentQuerySet, M, User
from apps.accounts.permissions import logins_of, scope_of
from apps.archive.enums import BlobKind
from apps.clusters.models import Cluster
from apps.core.models import Work
from apps.jobs.enums import FAILED_STATES, MaskedPart
from apps.jobs.models import MaskingRule

CLUSTER_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"


def name_sender(sender: str | None) -> str:
    """Return the name of a capture's sender for users."""
    if sender is None:
        return "unknown"
    return sender or "capture beside the portal"


class Dictionary(models.Model):
    """What many contents of one kind have in common.

    It is needed to read the contents compressed with it, so it is never deleted.
    """

    kind = models.CharField(max_length=16, choices=BlobKind)
    data = models.BinaryField()
    trained_at = models.DateTimeField()
    newest_content = models.BigIntegerField(
        default=0, help_text="Primary key of the newest content at that time."
    )

    class Meta:
        verbose_name_plural = "dictionaries"

    def __str__(self) -> str:
        return f"{self.kind} dictionary {self.pk}"


class Blob(models.Model):
    """One content, compressed, under its own hash."""

    sha256 = models.BinaryField(unique=True, max_length=32)
    kind = models.CharField(max_length=16, choices=BlobKind)
    size_bytes = models.BigIntegerField()
    data = models.BinaryField()
    dictionary = models.ForeignKey(Dictionary, on_delete=models.PROTECT, null=True, db_index=False)

    def __str__(self) -> str:
        return bytes(self.sha256).hex()


class ArchivedJobQuerySet(ExperimentQuerySet[M]):
    """Archived jobs; people see their own too, whatever experiment they are for."""

    def visible_to(self, user: User) -> Self:
        """Keep the jobs that a user may see: own jobs, and all jobs of own experiments.

        The OPG sees all jobs.
        """
        scope = scope_of(user)
        if scope.sees_all:
            return self
        own = []
        for login, cluster in logins_of(user):
            own.append(
                models.Q(user=login, cluster__name=cluster) if cluster else models.Q(user=login)
            )
        if scope.experiment_keys or not own:
            of_experiment = [models.Q(experiment__in=scope.experiment_keys)]
        else:
            of_experiment = []
        return self.filter(reduce(or_, own + of_experiment))


class ArchivedJob(models.Model):
    """A job as it lay in the spool.

    Schedulers use ids again, so the submission's time belongs to its key.

    Request and stage are its owner's word, from its environment. The experiment is that of the
    request, until accounting tells whose job it was. User, account, name and arguments come from
    the spool where it has them, else from accounting; the state (of an array, the worst of its
    tasks) from accounting alone. `description` and `caveat` are as in `SpooledJob`, `sender` is
    that of `CapturedJob`. `conflict` says how another capture of the same submission differs; a
    user may have chosen this capture as the right one (`chosen_at`). `unstored_captures` has sender
    and hashes of captures with the same key whose contents are not stored. `conflict_version` is
    equal in all captures of a submission, and grows with each that differs and each choice.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, db_index=False)
    job_id = models.CharField(max_length=64)
    submitted_at = models.DateTimeField()
    script = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="jobs_by_script")
    environment = models.ForeignKey(
        Blob, on_delete=models.PROTECT, related_name="jobs_by_environment"
    )
    description = models.ForeignKey(
        Blob,
        on_delete=models.PROTECT,
        null=True,
        related_name="jobs_by_description",
        db_index=False,
    )
    script_bytes = models.IntegerField()
    environment_bytes = models.IntegerField()
    captured_at = models.DateTimeField()
    request_key = models.CharField(max_length=64, blank=True)
    stage = models.CharField(max_length=64, blank=True)
    experiment = models.ForeignKey(
        Experiment, on_delete=models.PROTECT, null=True, blank=True, db_index=False
    )
    masked_names = models.JSONField(default=list, blank=True)
    user = models.CharField(max_length=64, blank=True)
    account = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=200, blank=True)
    arguments = models.TextField(blank=True)
    state = models.CharField(max_length=16, blank=True)
    tasks = models.PositiveIntegerField(default=0, help_text="Number of its finished tasks.")
    worst_tasks = models.PositiveIntegerField(
        default=0, help_text="Number of the tasks that failed or, if none did, were interrupted."
    )
    caveat = models.CharField(max_length=200, blank=True)
    #: Null in rows that are older than this column.
    sender = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001
    conflict = models.CharField(max_length=400, blank=True, default="", db_default="")
    # Without a check constraint: adding one reads the whole table.
    conflict_version = models.IntegerField(default=0, db_default=0)
    unstored_captures = models.JSONField(
        default=list, db_default=Value([], models.JSONField()), blank=True
    )
    chosen_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    chosen_at = models.DateTimeField(null=True, blank=True)
    chosen_reason = models.CharField(max_length=200, blank=True, default="", db_default="")

    objects = ArchivedJobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job_id", "cluster", "submitted_at"], name="archived_job_once"
            ),
        ]
        indexes = [
            # Ascending, and read backwards: pages that are appended to become full, others half.
            models.Index(fields=["submitted_at", "id"], name="archived_job_newest"),
            models.Index(
                fields=["experiment", "submitted_at", "id"],
                condition=models.Q(experiment__isnull=False),
                name="archived_job_experiment",
            ),
            models.Index(
                fields=["request_key", "stage", "-submitted_at"],
                condition=~models.Q(request_key=""),
                name="archived_job_request",
            ),
            # With the script, so that a user's jobs with some words are found without a look at
            # each job.
            models.Index(
                fields=["user", "submitted_at", "id"],
                include=["script"],
                condition=~models.Q(user=""),
                name="archived_job_by_user",
            ),
            models.Index(
                fields=["description"],
                condition=models.Q(description__isnull=False),
                name="archived_job_description",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} on {self.cluster.name}"

    @property
    def ending(self) -> str:
        """Return how an array ended: `1 of 20 failed`; empty if its tasks ended in one state."""
        if not 0 < self.worst_tasks < self.tasks:
            return ""
        return (
            f"{self.worst_tasks} of {self.tasks} "
            f"{'failed' if self.state in FAILED_STATES else 'interrupted'}"
        )

    @property
    def sender_name(self) -> str:
        return name_sender(self.sender)

    @property
    def open_conflict(self) -> str:
        """Return how captures of the job differ, unless a user has chosen one of them.

        Empty if they do not differ.
        """
        return "" if self.chosen_at else self.conflict

    @property
    def script_sha256(self) -> str:
        return bytes(self.script.sha256).hex()

    @property
    def environment_sha256(self) -> str:
        return bytes(self.environment.sha256).hex()


@SearchVectorField.register_lookup
class Matches(models.Lookup):
    """`words__matches="'a' & 'b'"`: lexemes as they are.

    Django's own lookups would split them again.
    """

    lookup_name = "matches"

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        left, left_parameters = self.process_lhs(compiler, connection)
        return f"{left} @@ %s::tsquery", (*left_parameters, self.rhs)


@models.ForeignKey.register_lookup
class FoundFirst(models.Lookup):
    """`script__found_first=["'a' & 'b'", "'c'"]`: one of the few scripts that match all of these.

    `OFFSET 0` makes the database look them up first. The planner expects many of them, and would
    look at job after job.
    """

    lookup_name = "found_first"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        left, left_parameters = self.process_lhs(compiler, connection)
        matching = " AND ".join("words @@ %s::tsquery" for _ in self.rhs)
        scripts = f"SELECT script_id FROM archive_scriptwords WHERE {matching} OFFSET 0"
        return f"{left} IN ({scripts})", (*left_parameters, *self.rhs)


class ScriptWords(models.Model):
    """The words of a script, for each day on which jobs with it were submitted.

    The day is one of the words. The newest jobs with a word are found by looking at few days,
    however many jobs have it.
    """

    pk = models.CompositePrimaryKey("script", "day")
    script = models.ForeignKey(Blob, on_delete=models.CASCADE, related_name="words", db_index=False)
    day = models.DateField()
    words = SearchVectorField()

    class Meta:
        verbose_name_plural = "words of scripts"
        indexes = [GinIndex(fields=["words"], name="script_words")]

    def __str__(self) -> str:
        return f"words of {self.script_id} on {self.day}"


class WordIndex(models.Model):
    """The progress of indexing jobs in `ScriptWords`; one row.

    All jobs up to `indexed_to` are indexed. The jobs up to `goal` are next, once the transactions
    `goal_waits_for` have ended: until then, they may still add one of these jobs.
    """

    indexed_to = models.BigIntegerField(default=0)
    goal = models.BigIntegerField(default=0)
    goal_waits_for = models.JSONField(default=list)
    indexed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"words of jobs up to {self.indexed_to}"


class MaskingTrial(Work):
    """What a rule would mask in the environments in the archive: counts and names, no values."""

    rule = models.ForeignKey(
        MaskingRule, on_delete=models.SET_NULL, null=True, related_name="trials"
    )
    applies_to = models.CharField(max_length=8, choices=MaskedPart)
    pattern = models.CharField(max_length=500)
    started_by = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    last_blob = models.BigIntegerField(default=0)
    until_blob = models.BigIntegerField(default=0)
    environments = models.BigIntegerField(default=0)
    found_environments = models.BigIntegerField(default=0)
    found_jobs = models.BigIntegerField(default=0)
    names = models.JSONField(default=dict)

    class Meta:
        verbose_name = "dry run of a masking rule"
        verbose_name_plural = "dry runs of masking rules"

    def __str__(self) -> str:
        return f"{self.applies_to} {self.pattern}"

    @property
    def progress(self) -> float:
        """The part of the archive that was searched, from 0 to 1."""
        if self.finished_at:
            return 1.0
        return self.last_blob / max(self.until_blob, 1)


class CaptureHost(models.Model):
    """A scheduler's host, whose capture sends jobs of these clusters with a token.

    One that is `beside_portal` was added by a user with access to the portal's database.
    """

    name = models.SlugField(max_length=64, unique=True)
    clusters = ArrayField(
        models.CharField(max_length=64, validators=[RegexValidator(CLUSTER_NAME)]),
        help_text="Cluster names, separated by commas.",
    )
    trusted = models.BooleanField(
        default=False,
        db_default=False,
        help_text=(
            "Scripts captured here may be rerun as their owners (owner_command), and logs "
            "of running jobs are read."
        ),
    )
    beside_portal = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Added by `manage.py capture` with the portal's database.",
    )
    token_hashes = ArrayField(
        models.CharField(max_length=64), default=list, blank=True, editable=False
    )
    heard_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class IntakeJournal(models.Model):
    """How far a capture has handed its journal over: what comes again is not kept twice."""

    journal = models.UUIDField(primary_key=True)
    sequence = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.journal} up to {self.sequence}"


class IntakeBatch(models.Model):
    """A packed batch of captured jobs that capture has handed over, until every sink has it.

    `journal` is where it comes from; a batch that the portal made itself has none. Rows are
    inserted in plain SQL, hence the defaults in the database.
    """

    cluster = models.CharField(max_length=64)
    host = models.CharField(max_length=128)
    journal = models.UUIDField(null=True, db_index=True)
    jobs = models.IntegerField()
    size_bytes = models.BigIntegerField(help_text="Size when unpacked.")
    captured_at = models.DateTimeField(help_text="When the oldest job was captured.")
    received_at = models.DateTimeField(db_default=Now())
    data = models.BinaryField()
    routed = models.BooleanField(db_default=False)

    class Meta:
        verbose_name_plural = "intake batches"
        indexes = [
            models.Index(fields=["id"], condition=models.Q(routed=False), name="intake_batch_new")
        ]

    def __str__(self) -> str:
        return f"{self.jobs} jobs of {self.cluster} from {self.host}"


class SinkState(models.Model):
    """A sink that batches were routed to, under its own name, and how it does.

    It is left alone until `retry_at`.
    """

    name = models.CharField(max_length=1000, unique=True)
    url = models.CharField(max_length=2000)
    failures = models.IntegerField(default=0, help_text="Number of consecutive failures.")
    retry_at = models.DateTimeField(null=True)
    written_at = models.DateTimeField(null=True)
    written = models.BigIntegerField(default=0, help_text="Number of jobs written.")
    last_error = models.CharField(max_length=500, blank=True)
    wants_described = models.BooleanField(
        default=False,
        help_text="Send a job again when its user, account and name become known.",
    )

    class Meta:
        verbose_name = "sink"

    def __str__(self) -> str:
        return self.name


class SinkDelivery(Work):
    """A batch that a sink has not received yet.

    `attempts` counts those that did not finish because their worker died. Before the first one, the
    delivery is due since the batch was captured.
    """

    batch = models.ForeignKey(IntakeBatch, on_delete=models.CASCADE, related_name="deliveries")
    sink = models.ForeignKey(
        SinkState, on_delete=models.CASCADE, related_name="deliveries", db_index=False
    )

    class Meta:
        verbose_name_plural = "sink deliveries"
        constraints = [models.UniqueConstraint(fields=["sink", "batch"], name="sink_delivery_once")]

    def __str__(self) -> str:
        return f"{self.batch} to {self.sink}"


class RefusedJob(models.Model):
    """A job that a sink does not take, with the reason, packed.

    A batch that cannot be read is one too.
    """

    sink = models.ForeignKey(
        SinkState, on_delete=models.CASCADE, related_name="refused", db_index=False
    )
    cluster = models.CharField(max_length=64)
    job_id = models.CharField(max_length=200)
    submitted_at = models.DateTimeField()
    size_bytes = models.BigIntegerField()
    reason = models.CharField(max_length=500)
    data = models.BinaryField()
    tried_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["sink", "cluster", "job_id", "submitted_at"], name="refused_job_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.job_id} refused by {self.sink}"


class Pin(models.Model):
    """A job that is under discussion, and stays for as long as it has this."""

    job = models.OneToOneField(ArchivedJob, on_delete=models.PROTECT, related_name="pin")
    by = models.CharField(max_length=150)
    reason = models.CharField(max_length=200)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job} pinned by {self.by}"


class RetentionRule(models.Model):
    """The limits of age and size for the stored jobs of a cluster.

    The rule of a cluster replaces the rule for all clusters.
    """

    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: all clusters without their own rule.",
    )
    max_age_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Jobs submitted earlier are deleted. Empty: no age limit.",
    )
    max_bytes = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Above this compressed size, the oldest jobs are deleted. Empty: no size limit.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"], nulls_distinct=False, name="retention_rule_once"
            ),
            models.CheckConstraint(
                condition=models.Q(max_age_days__isnull=False) | models.Q(max_bytes__isnull=False),
                name="retention_rule_limits",
                violation_error_message="Give an age, a size, or both.",
            ),
        ]

    def __str__(self) -> str:
        return f"retention of {self.cluster.name if self.cluster else 'every cluster'}"
