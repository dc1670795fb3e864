"""Catalogues of datasets and their answers, and the ledger of files that stages read and write."""

from django.contrib.postgres.indexes import HashIndex
from django.db import models
from django.db.models import F, Q

from apps.core.models import Work
from apps.datasets.enums import FOLLOWED, ChosenFiles, FileState, MakingState, StagingState
from apps.production.models import Request, Stage

MAX_FILE_NAME = 200


class Catalogue(models.Model):
    """A catalogue that the portal asks for datasets.

    `answered_at` is the time of its last answer, `error` why it did not answer since then.
    """

    name = models.SlugField(max_length=64, unique=True)
    kind = models.CharField(max_length=32, help_text="json, sam, metacat, rucio or a plugin.")
    base_url = models.CharField(
        "address",
        max_length=500,
        help_text="URL of its interface, such as https://sam.example.org:8483/sam/nova/api, or the "
        "path of a JSON file.",
    )
    credential_file = models.CharField(
        max_length=500,
        blank=True,
        help_text="Path of a file with a token, or of a JSON object, on the hosts of the workers. "
        "Empty: without signing in.",
    )
    options = models.JSONField(default=dict, blank=True, help_text="Options of this kind.")
    active = models.BooleanField(default=True)
    answered_at = models.DateTimeField(null=True, blank=True, editable=False)
    error = models.TextField(blank=True, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class KnownDataset(Work):
    """What a catalogue answered about a dataset of this name.

    `exists` is None without an answer. The answer is that of `answered_at`; the row waits in the
    queue while the catalogue is to be asked (again). Numbers that it does not know are None.

    `files_located` is the number of files whose replicas the catalogue was asked for; the three
    numbers after it are parts of it. They are set together, or `unlocated_reason` says why not.
    """

    catalogue = models.ForeignKey(Catalogue, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(max_length=500)
    is_waiting = models.BooleanField(default=True)
    exists = models.BooleanField(null=True, blank=True)
    files = models.BigIntegerField(null=True, blank=True)
    events = models.BigIntegerField(null=True, blank=True)
    size_bytes = models.BigIntegerField(null=True, blank=True)
    is_frozen = models.BooleanField(
        null=True, blank=True, help_text="Its list of files can no longer change."
    )
    files_located = models.BigIntegerField(
        null=True, blank=True, help_text="Files whose replicas the catalogue was asked for."
    )
    files_on_disk = models.BigIntegerField(null=True, blank=True)
    files_on_tape_only = models.BigIntegerField(null=True, blank=True)
    files_without_location = models.BigIntegerField(null=True, blank=True)
    unlocated_reason = models.TextField(
        blank=True, default="", help_text="Why it is unknown where its files are."
    )
    requested_at = models.DateTimeField(help_text="When the portal last needed it, to the day.")
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["catalogue", "name"], name="known_dataset_once"),
            models.CheckConstraint(
                condition=Q(exists=None, answered_at=None)
                | Q(exists__isnull=False, answered_at__isnull=False),
                name="known_dataset_answer",
            ),
            models.CheckConstraint(
                condition=Q(
                    files_located=None,
                    files_on_disk=None,
                    files_on_tape_only=None,
                    files_without_location=None,
                )
                | Q(
                    files_located__gte=F("files_on_disk")
                    + F("files_on_tape_only")
                    + F("files_without_location"),
                    files_on_disk__gte=0,
                    files_on_tape_only__gte=0,
                    files_without_location__gte=0,
                    files_located__isnull=False,
                    files_on_disk__isnull=False,
                    files_on_tape_only__isnull=False,
                    files_without_location__isnull=False,
                    unlocated_reason="",
                ),
                name="known_dataset_places",
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(is_waiting=True), name="known_dataset_waiting"
            ),
            models.Index(fields=["requested_at"], name="known_dataset_requested"),
        ]

    def __str__(self) -> str:
        return self.name


class StagingRequest(Work):
    """A dataset that is brought to disk for a request, with its progress.

    The row waits in the queue while it is to be sent, or its progress is to be asked for.
    `external_id` is the catalogue's id, empty until it answered. The numbers of files are those of
    `progress_at`; `catalogue_state` and `catalogue_error` are the catalogue's words.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="staging_requests")
    catalogue = models.ForeignKey(
        Catalogue, on_delete=models.CASCADE, related_name="staging_requests"
    )
    dataset = models.CharField(max_length=500)
    storage = models.CharField(max_length=500)
    lifetime_seconds = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=StagingState, default=StagingState.QUEUED.value)
    external_id = models.CharField(max_length=200, blank=True)
    files_on_disk = models.BigIntegerField(null=True, blank=True)
    files_waiting = models.BigIntegerField(null=True, blank=True)
    files_stuck = models.BigIntegerField(null=True, blank=True)
    catalogue_state = models.CharField(max_length=100, blank=True)
    catalogue_error = models.TextField(blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    finish_by = models.DateTimeField(help_text="The portal does not wait longer.")

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["request", "catalogue", "dataset"], name="staging_request_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=StagingState.values), name="staging_request_state"
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at"],
                condition=Q(state__in=["queued", "staging"]),
                name="staging_request_followed",
            ),
        ]

    def __str__(self) -> str:
        return self.dataset

    @property
    def is_followed(self) -> bool:
        return self.state in FOLLOWED

    @property
    def files(self) -> int | None:
        """How many files the catalogue brings to disk; None without an answer."""
        if self.files_on_disk is None or self.files_waiting is None or self.files_stuck is None:
            return None
        return self.files_on_disk + self.files_waiting + self.files_stuck


class MadeDataset(Work):
    """A dataset that a user had made in a catalogue, of files of a stage as they stood then.

    The row waits in the queue until the catalogue has made it, or refuses it.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="made_datasets")
    catalogue = models.ForeignKey(Catalogue, on_delete=models.CASCADE, related_name="made_datasets")
    position = models.PositiveIntegerField(help_text="Of the stage, from 0.")
    chosen = models.CharField(max_length=16, choices=ChosenFiles)
    name = models.CharField(max_length=500)
    source = models.CharField(
        max_length=500, blank=True, help_text="The dataset that its files are from."
    )
    files = models.JSONField(help_text="Names of its files.")
    file_count = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=MakingState, default=MakingState.QUEUED.value)
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    made_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["catalogue", "name"], name="made_dataset_once"),
            models.CheckConstraint(
                condition=Q(state="made", made_at__isnull=False)
                | Q(state__in=["queued", "refused"], made_at=None),
                name="made_dataset_state",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(state="queued"), name="made_dataset_queued")
        ]

    def __str__(self) -> str:
        return self.name


class InputFile(models.Model):
    """An input file of a stage, and where it stands.

    `job_key` is the primary key of the job whose result counts, or of the last job that failed.
    Rows of old jobs are moved to files, so that it may name none. `source_number` is set in stages
    that merge output files of an earlier stage.
    """

    stage = models.ForeignKey(
        Stage, on_delete=models.CASCADE, related_name="input_files", db_index=False
    )
    name = models.TextField()
    run = models.BigIntegerField(null=True, blank=True)
    events = models.BigIntegerField(null=True, blank=True)
    size_bytes = models.BigIntegerField(null=True, blank=True)
    number = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of the job that reads it, in every stage."
    )
    state = models.CharField(max_length=16, choices=FileState, default=FileState.WAITING.value)
    job_key = models.BigIntegerField(null=True, blank=True)
    is_doubled = models.BooleanField(default=False, help_text="Several jobs completed with it.")
    reason = models.TextField(blank=True, help_text="Why it was given up.")
    decided_by = models.CharField(max_length=150, blank=True)
    source_number = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of the job of the earlier stage that wrote it."
    )
    is_withdrawn = models.BooleanField(
        default=False,
        db_default=False,
        help_text="It no longer counts in the earlier stage, but a job was to read it before.",
    )
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [
            # The operator class makes searches by the beginning of a name fast in any locale.
            models.UniqueConstraint(
                fields=["stage", "name"],
                name="input_file_once",
                opclasses=["int8_ops", "text_pattern_ops"],
            ),
            models.CheckConstraint(
                condition=Q(state__in=FileState.values), name="input_file_state"
            ),
            models.CheckConstraint(
                condition=Q(state="waiting") | Q(state="given_up") | Q(number__isnull=False),
                name="input_file_has_job",
            ),
        ]
        indexes = [
            # Only whole names of any stage are looked for, and a hash of one is small.
            HashIndex(fields=["name"], name="input_file_name"),
            models.Index(fields=["stage", "number"], name="input_file_of_job"),
            models.Index(fields=["stage", "state", "-id"], name="input_file_state_of"),
            models.Index(
                fields=["stage", "id"],
                condition=Q(is_doubled=True),
                name="input_file_doubled",
            ),
            models.Index(
                fields=["stage", "source_number"],
                condition=Q(source_number__isnull=False),
                name="input_file_of_source",
            ),
            models.Index(
                fields=["stage", "id"],
                condition=Q(is_withdrawn=True),
                name="input_file_withdrawn",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class RepeatedResult(models.Model):
    """Another job that completed with an input file that was done already."""

    file = models.ForeignKey(
        InputFile, on_delete=models.CASCADE, related_name="repeated_results", db_index=False
    )
    job_key = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["file", "job_key"], name="repeated_result_once")
        ]

    def __str__(self) -> str:
        return f"{self.job_key} of {self.file_id}"


class OutputFile(models.Model):
    """A file that a job of a stage wrote, as the job or its user reported it.

    Several reporters may list the same file; a check of the data quality reports that. Its parents
    are those of `parents`, or else all input files of its job. A file does not count if its job has
    not completed, or repeated what another job had completed.
    """

    stage = models.ForeignKey(
        Stage, on_delete=models.CASCADE, related_name="output_files", db_index=False
    )
    key = models.CharField(
        max_length=MAX_FILE_NAME, help_text="Identifies the reporter, such as a job ID."
    )
    name = models.CharField(max_length=MAX_FILE_NAME)
    size_bytes = models.BigIntegerField()
    events = models.BigIntegerField(null=True, blank=True)
    run = models.BigIntegerField(null=True, blank=True)
    checksum = models.CharField(max_length=200, blank=True)
    number = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of its job in the stage. Empty: unknown."
    )
    counts = models.BooleanField(default=True)
    parents = models.ManyToManyField(InputFile, related_name="output_files", blank=True)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["stage", "key", "name"], name="output_file_once"),
            models.CheckConstraint(condition=Q(size_bytes__gte=0), name="output_file_size"),
        ]
        indexes = [
            models.Index(fields=["name"], name="output_file_name"),
            models.Index(fields=["stage", "number"], name="output_file_of_job"),
            models.Index(fields=["stage", "-id"], name="output_file_newest"),
        ]

    def __str__(self) -> str:
        return self.name


class FileTotals(models.Model):
    """The number of input files of a stage by state, moved in the transaction of each change.

    A stage without a row has no ledger: the portal does not know its files. A stage whose output
    files are merged always has one, without input files if it reads none that are known.
    """

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="file_totals")
    source = models.ForeignKey(
        Stage,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="merges",
        help_text="The earlier stage whose output files are the input files of this one.",
    )
    files = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    taken = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    given_up = models.PositiveIntegerField(default=0)
    doubled = models.PositiveIntegerField(default=0)
    listed_at = models.DateTimeField(
        null=True, blank=True, help_text="When the catalogue listed its files."
    )
    checked_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was last compared with the jobs."
    )

    class Meta:
        verbose_name_plural = "file totals"
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    files=F("waiting") + F("taken") + F("done") + F("failed") + F("given_up")
                ),
                name="file_totals_balance",
            ),
        ]
        indexes = [models.Index(fields=["checked_at"], name="file_totals_checked")]

    def __str__(self) -> str:
        return f"files of {self.stage_id}"

    @property
    def unfinished(self) -> int:
        """Files that are waiting, taken or failed."""
        return self.waiting + self.taken + self.failed


class OutputTotals(models.Model):
    """Sums over the reported output files of a stage, so that no page counts a million rows.

    `revision` grows with every change, of which files count as well: data quality compares it. A
    stage without a row has no reported files, or only those of an earlier version.
    """

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="output_totals")
    files = models.PositiveIntegerField(default=0, help_text="Reported files, counting or not.")
    counting_files = models.PositiveIntegerField(default=0, help_text="Those that count.")
    counting_events = models.BigIntegerField(default=0)
    counting_bytes = models.BigIntegerField(default=0)
    revision = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "output totals"

    def __str__(self) -> str:
        return f"output files of {self.stage_id}"
