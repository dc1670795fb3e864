"""Requests, their stages, and the counter of their numbers. Services alone write them."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from apps.accounts.models import ExperimentQuerySet, M
from apps.production import approvals
from apps.production.content import MAX_LENGTH, STAGE_MAX_LENGTH
from apps.production.enums import CLOSED, SIGNED, LinkKind, RequestedPriority, RequestState
from apps.production.priority.models import QueueEntry  # noqa: F401  # models are found here

_S = RequestState
_SENT = (_S.SUBMITTED, _S.CHECKING, _S.AWAITING_APPROVAL)
MIN_PRIORITY, MAX_PRIORITY = 1, 9


def _pair(name: str, *, set_in: list[str], free_in: list[str]) -> models.CheckConstraint:
    """`<name>_at` and `<name>_by` are both set in some states, as they like in others, and both empty else."""
    both = Q(**{f"{name}_at__isnull": False, f"{name}_by__isnull": False})
    none = Q(**{f"{name}_at__isnull": True, f"{name}_by__isnull": True})
    rest = [state for state in _S.values if state not in set_in and state not in free_in]
    return models.CheckConstraint(
        condition=(both & Q(state__in=[*set_in, *free_in])) | (none & Q(state__in=[*rest, *free_in])),
        name=f"request_{name}_pair",
    )


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


class RequestQuerySet(ExperimentQuerySet[M]):
    """`visible_to(user)` keeps the requests of the person's experiments; all, for the OPG."""


class Request(models.Model):
    """What an experiment asks the OPG to produce."""

    key = models.CharField(max_length=24, unique=True, editable=False)
    experiment = models.ForeignKey("accounts.Experiment", on_delete=models.PROTECT, related_name="requests")
    workflow = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="requests")
    arguments = models.JSONField(default=dict, blank=True)
    title = models.CharField(max_length=MAX_LENGTH["title"], blank=True)
    purpose = models.TextField(blank=True)
    deadline = models.DateField(null=True, blank=True)
    requested_priority = models.CharField(
        max_length=16, choices=RequestedPriority, default=RequestedPriority.NORMAL.value
    )
    priority_reason = models.TextField(blank=True)
    state = models.CharField(max_length=24, choices=RequestState, default=RequestState.DRAFT.value)
    held_from = models.CharField(max_length=24, blank=True, help_text="The state to which a held request goes back.")
    superseded_by = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="supersedes", help_text="Takes its place."
    )
    cloned_from = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="clones", help_text="It began as a copy."
    )
    priority_class = models.CharField(
        max_length=16, choices=RequestedPriority, blank=True, help_text="Set by the OPG; empty: not yet."
    )
    priority = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Set by the OPG within the class; the higher, the sooner."
    )
    version = models.PositiveIntegerField(default=1, help_text="Grows with every change; who writes must know it.")
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    submitted_at = models.DateTimeField(null=True, blank=True)
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    approved_at = models.DateTimeField(null=True, blank=True)
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    objects = RequestQuerySet["Request"].as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=_S.values), name="request_state"),
            models.CheckConstraint(
                condition=Q(requested_priority__in=RequestedPriority.values), name="request_requested_priority"
            ),
            models.CheckConstraint(
                condition=Q(priority=None) | Q(priority__range=(MIN_PRIORITY, MAX_PRIORITY)), name="request_priority"
            ),
            models.CheckConstraint(
                condition=Q(priority_class__in=["", *RequestedPriority.values]), name="request_priority_class"
            ),
            _pair(
                "submitted",
                set_in=[*_SENT, *SIGNED, _S.CHANGES_ASKED, _S.REJECTED],
                free_in=[_S.CANCELLED, _S.SUPERSEDED],
            ),
            _pair("approved", set_in=[*SIGNED], free_in=[_S.CANCELLED, _S.SUPERSEDED]),
            models.CheckConstraint(
                condition=Q(state__in=sorted(CLOSED), closed_at__isnull=False)
                | (~Q(state__in=sorted(CLOSED)) & Q(closed_at=None, closed_by=None)),
                name="request_closed",
            ),
            models.CheckConstraint(
                condition=Q(state=_S.HELD) & ~Q(held_from="") | ~Q(state=_S.HELD) & Q(held_from=""),
                name="request_held_from",
            ),
            models.CheckConstraint(
                condition=Q(superseded_by=None) ^ Q(state=_S.SUPERSEDED), name="request_superseded_by"
            ),
            models.CheckConstraint(
                condition=Q(approved_by=None) | ~(Q(approved_by=F("created_by")) | Q(approved_by=F("submitted_by"))),
                name="request_approver_is_not_requester",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"]),
            models.Index(fields=["experiment", "-created_at", "-id"]),
            models.Index(fields=["state", "-created_at", "-id"]),
        ]

    def __str__(self) -> str:
        return self.key

    def get_absolute_url(self) -> str:
        return reverse("production:request-detail", args=[self.key])

    def may_be_signed_by(self, user: Any, at: datetime | None) -> bool:
        """Tell whether the person may sign for a group that must; at a moment, also for somebody who is away."""
        return approvals.may_sign(self, user, at)

    def signing_of(self, user: Any, at: datetime | None, *, slots: Any = None) -> tuple[bool, bool]:
        """Tell whether the person may sign for a group that must, and whether such a signature is missing."""
        slots = approvals.slots_of(self, user, at) if slots is None else slots
        return any(slot.mine for slot in slots), approvals.has_to_sign(slots)


class Stage(models.Model):
    """One step of a request's chain: the same job, many times."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="stages")
    position = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=40, default="stage")
    arguments = models.JSONField(default=dict, blank=True)
    name = models.CharField(max_length=STAGE_MAX_LENGTH["name"], blank=True)
    release = models.CharField(max_length=STAGE_MAX_LENGTH["release"], blank=True)
    configuration = models.CharField(max_length=STAGE_MAX_LENGTH["configuration"], blank=True)
    input_dataset = models.CharField(
        max_length=STAGE_MAX_LENGTH["input_dataset"], blank=True, help_text="Empty: the output of the stage before."
    )
    events = models.BigIntegerField(null=True, blank=True)
    jobs = models.PositiveIntegerField(null=True, blank=True)
    memory_bytes = models.BigIntegerField(null=True, blank=True, help_text="Of one job.")
    wall_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="Of one job.")
    output_dataset = models.CharField(max_length=STAGE_MAX_LENGTH["output_dataset"], blank=True)
    services = models.ManyToManyField("services.Service", blank=True, related_name="stages")

    class Meta:
        ordering = ["request", "position"]
        constraints = [
            models.UniqueConstraint(fields=["request", "position"], name="stage_position_once"),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gt": 0}), name=f"stage_{name}_positive"
                )
                for name in ("events", "jobs", "memory_bytes", "wall_seconds")
            ),
        ]
        indexes = [models.Index(fields=["output_dataset"], condition=~Q(output_dataset=""), name="stage_writes")]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.position + 1} {self.name}"


class TemplateQuerySet(ExperimentQuerySet[M]):
    """`visible_to(user)` keeps the templates of the person's experiments; all, for the OPG."""


class RequestTemplate(models.Model):
    """What new requests of an experiment may begin with. It names its workflow version, which may be gone one day."""

    name = models.CharField(max_length=80)
    experiment = models.ForeignKey("accounts.Experiment", on_delete=models.CASCADE, related_name="request_templates")
    workflow_key = models.CharField(max_length=40)
    workflow_number = models.PositiveIntegerField()
    content = models.JSONField(help_text="As `plain` writes it.")
    saved_at = models.DateTimeField()
    saved_by = models.CharField(max_length=150)

    objects = TemplateQuerySet["RequestTemplate"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["experiment", "name"], name="template_name_once")]

    def __str__(self) -> str:
        return self.name


class Comment(models.Model):
    """Something said about a request or one of its fields; without `thread` it begins one."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="comments")
    thread = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="answers")
    field = models.CharField(max_length=120, blank=True, help_text="Path, such as stages.0.jobs; empty: the request.")
    place = models.CharField(max_length=200, help_text="Words for the field, as it was when this was written.")
    text = models.TextField(blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()
    edited_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        indexes = [models.Index(fields=["request", "id"]), models.Index(fields=["by", "at"])]
        constraints = [
            models.CheckConstraint(
                condition=Q(resolved_at=None, resolved_by=None) | Q(thread=None, resolved_at__isnull=False),
                name="comment_resolved_pair",
            ),
            models.CheckConstraint(condition=Q(withdrawn_at=None) ^ Q(text=""), name="comment_withdrawn_is_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.place}"

    def get_absolute_url(self) -> str:
        return f"{self.request.get_absolute_url()}#comment-{self.pk}"


class RequestLink(models.Model):
    """How a request came out of an earlier one; both are of one experiment. Clones and successors are fields."""

    kind = models.CharField(max_length=16, choices=LinkKind)
    earlier = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="links_on")
    later = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="links_back")
    note = models.CharField(max_length=200, blank=True, help_text="Such as which part it is.")
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=LinkKind.values), name="link_kind"),
            models.CheckConstraint(condition=~Q(earlier=F("later")), name="link_to_another"),
            models.UniqueConstraint(fields=["earlier", "later"], name="link_once"),
        ]

    def __str__(self) -> str:
        return f"{self.earlier} → {self.later}"


class FormKey(models.Model):
    """The draft that a form made, so that it makes no second one when the answer was lost."""

    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=64)
    request = models.ForeignKey(Request, on_delete=models.CASCADE, null=True, related_name="+")
    version = models.PositiveIntegerField(default=0, help_text="Of the request, as the form saved it last.")
    by_button = models.BooleanField(default=False, help_text="It was saved by a button, so that its answer was seen.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["author", "key"], name="form_key_once")]

    def __str__(self) -> str:
        return f"{self.author_id}: {self.key}"


class RequestRevision(models.Model):
    """What a request held when it was saved or submitted; `content` is as `plain` writes it."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="revisions")
    version = models.PositiveIntegerField(help_text="Of the request, with this content.")
    content = models.JSONField()
    begun_at = models.DateTimeField(help_text="When the first of the saves was made that are kept as one.")
    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    is_submitted = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["request", "-id"])]

    def __str__(self) -> str:
        return f"{self.request_id} at version {self.version}"


class StageHistory(models.Model):
    """What the jobs of one stage of a request took, for estimates. Counted from the jobs; the stage is as it was then.

    Lists hold the quantiles of `estimates.QUANTILES`, over jobs that completed.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="history")
    experiment = models.ForeignKey("accounts.Experiment", on_delete=models.PROTECT, related_name="+", db_index=False)
    name = models.CharField(max_length=64, help_text="In small letters.")
    release = models.CharField(max_length=STAGE_MAX_LENGTH["release"], blank=True)
    configuration = models.CharField(max_length=STAGE_MAX_LENGTH["configuration"], blank=True)
    output_dataset = models.CharField(max_length=STAGE_MAX_LENGTH["output_dataset"], blank=True)
    events_per_job = models.FloatField(null=True, blank=True)
    attempts = models.PositiveIntegerField(help_text="All that ended, however they did.")
    completed = models.PositiveIntegerField()
    core_seconds = models.FloatField(help_text="Of all attempts.")
    completed_wall_seconds = models.FloatField()
    wall_seconds = ArrayField(models.FloatField())
    memory_bytes = ArrayField(models.FloatField())
    per_day = ArrayField(models.FloatField(), help_text="Jobs that completed in a day, while any ran.")
    last_ended_at = models.DateTimeField()
    last_completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "stage histories"
        constraints = [models.UniqueConstraint(fields=["request", "name"], name="stage_history_once")]
        indexes = [models.Index(fields=["experiment", "name", "-last_ended_at"], name="stage_history_alike")]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.name}"


class RequestCounter(models.Model):
    """The last number given to a request of an experiment; its row is locked while one is made."""

    experiment = models.OneToOneField("accounts.Experiment", on_delete=models.CASCADE, primary_key=True)
    last = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.experiment_id}: {self.last}"


class Hold(models.Model):
    """No new jobs for everything, an experiment, or one stage; a request as a whole is held by its state."""

    experiment = models.ForeignKey("accounts.Experiment", on_delete=models.PROTECT, null=True, blank=True)
    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, null=True, blank=True, related_name="holds")
    reason = models.TextField()
    at = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reminded_at = models.DateTimeField(null=True, blank=True, help_text="When whoever set it was last reminded of it.")
    lifted_at = models.DateTimeField(null=True, blank=True)
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(experiment=None) | Q(stage=None), name="hold_level"),
            models.CheckConstraint(
                condition=Q(lifted_at=None, lifted_by=None) | Q(lifted_at__isnull=False, lifted_by__isnull=False),
                name="hold_lifted_pair",
            ),
            models.UniqueConstraint(
                fields=["experiment", "stage"], condition=Q(lifted_at=None), nulls_distinct=False, name="hold_once"
            ),
        ]

    def __str__(self) -> str:
        return f"stage {self.stage_id}" if self.stage_id else str(self.experiment or "All production")


class OutputReport(models.Model):
    """What one job, or whoever counts for many, says that a stage has read and written. Empty: not said."""

    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="output_reports", db_index=False)
    key = models.CharField(
        max_length=200, help_text="Of the reporter's choice: the same key again replaces what it said."
    )
    files_in = models.BigIntegerField(null=True, blank=True)
    events_in = models.BigIntegerField(null=True, blank=True)
    files_out = models.BigIntegerField(null=True, blank=True)
    events_out = models.BigIntegerField(null=True, blank=True)
    by = models.CharField(max_length=150)
    at = models.DateTimeField()
    counted = models.BooleanField(default=False, help_text="It is in the stage's counts.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["stage", "key"], name="output_report_once")]
        indexes = [models.Index(fields=["stage"], condition=Q(counted=False), name="output_report_uncounted")]

    def __str__(self) -> str:
        return f"{self.key} of {self.stage_id}"


class StageCounts(models.Model):
    """Sums over the reports of a stage; every figure equals a recount. Empty: no report says it."""

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="counts")
    files_in = models.BigIntegerField(null=True, blank=True)
    events_in = models.BigIntegerField(null=True, blank=True)
    files_out = models.BigIntegerField(null=True, blank=True)
    events_out = models.BigIntegerField(null=True, blank=True)
    reports = models.PositiveIntegerField(default=0)
    counted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "stage counts"

    def __str__(self) -> str:
        return f"counts of {self.stage_id}"


class StageLocation(models.Model):
    """Somebody said that the outputs of a stage are in the catalogue."""

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="location")
    note = models.CharField(max_length=500, blank=True, help_text="Where: a dataset, an address.")
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return f"location of {self.stage_id}"


class DatasetPart(models.Model):
    """Some files of a dataset, which the portal defines as one of its own for a part of a request that was split.

    They are files `first` to `last` of `total` equal shares of `whole`; which these are is kept once they were listed.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="dataset_parts")
    split_from = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=500)
    whole = models.CharField(max_length=500)
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    total = models.BigIntegerField()
    files = models.JSONField(null=True, blank=True)
    due_at = models.DateTimeField()
    defined_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request", "name"], name="dataset_part_once")]
        indexes = [models.Index(fields=["due_at"], condition=Q(defined_at=None), name="dataset_part_waiting")]

    def __str__(self) -> str:
        return self.name


class StageAcceptance(models.Model):
    """Somebody took a stage as it is, without the jobs that did not complete. Withdrawn, the row goes; events stay."""

    stage = models.OneToOneField(Stage, on_delete=models.CASCADE, related_name="acceptance")
    jobs_asked = models.PositiveIntegerField()
    jobs_completed = models.PositiveIntegerField()
    reason = models.TextField()
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return f"acceptance of {self.stage_id}"

    @property
    def jobs_missing(self) -> int:
        return max(0, self.jobs_asked - self.jobs_completed)

    @property
    def told(self) -> str:
        """Say what it went on with, who decided that, and why."""
        of = f"{self.jobs_completed:,} of {self.jobs_asked:,} jobs"
        return f"{self.by} went on with {of}: “{self.reason}”"
