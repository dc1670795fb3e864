"""Requests, their stages and revisions, and the counters for their keys.

Only domain functions write them.
"""

from collections.abc import Callable, Collection
from datetime import date
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Upper
from django.utils.dateparse import parse_date

from apps.accounts.models import ExperimentQuerySet, M
from apps.production.enums import CLOSED, SIGNED, AttentionKind, RequestedPriority, RequestState
from apps.production.models.types import WorkflowVersion

_S = RequestState
_ENDED_EARLY = frozenset({_S.CANCELLED, _S.SUPERSEDED})
MIN_PRIORITY = 1
MAX_PRIORITY = 9


def _time_and_user_constraint(
    name: str, *, set_in: Collection[str], free_in: Collection[str]
) -> models.CheckConstraint:
    """Constrain `<name>_at` and `<name>_by` by state.

    Both are set in the states of `set_in`, both or neither in those of `free_in`, and both are
    empty elsewhere.
    """
    both = Q(**{f"{name}_at__isnull": False, f"{name}_by__isnull": False})
    none = Q(**{f"{name}_at__isnull": True, f"{name}_by__isnull": True})
    other_states = set(_S.values).difference(set_in)
    return models.CheckConstraint(
        condition=(both & Q(state__in=sorted({*set_in, *free_in})))
        | (none & Q(state__in=sorted(other_states))),
        name=f"request_{name}_pair",
    )


def _trigram_index(field: str, name: str) -> GinIndex:
    """Index the trigrams of a text in upper case, as `icontains` and `iexact` compare it."""
    return GinIndex(OpClass(Upper(field), name="gin_trgm_ops"), name=name)


class RequestQuerySet(ExperimentQuerySet[M]):
    """A queryset whose `visible_to(user)` keeps the user's experiments. The OPG sees all."""


class Request(models.Model):
    """A production request of an experiment."""

    key = models.CharField(max_length=24, unique=True, editable=False)
    experiment = models.ForeignKey(
        "accounts.Experiment", on_delete=models.PROTECT, related_name="requests"
    )
    workflow = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="requests")
    arguments = models.JSONField(default=dict, blank=True)
    title = models.CharField(max_length=200, blank=True)
    campaign = models.CharField(
        max_length=64, blank=True, help_text="Name of a group of requests of the experiment."
    )
    purpose = models.TextField(blank=True)
    scan = models.TextField(
        blank=True, help_text="Parameters and values, one per line: energy = 1, 2, 5."
    )
    deadline = models.DateField(null=True, blank=True)
    requested_priority = models.CharField(
        max_length=16, choices=RequestedPriority, default=RequestedPriority.NORMAL.value
    )
    priority_reason = models.TextField(blank=True)
    state = models.CharField(max_length=24, choices=RequestState, default=RequestState.DRAFT.value)
    held_from = models.CharField(
        max_length=24, blank=True, help_text="The state to which a request on hold returns."
    )
    superseded_by = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="supersedes",
        help_text="The request that replaces it.",
    )
    cloned_from = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="clones",
        help_text="The request that it was copied from.",
    )
    priority_class = models.CharField(
        max_length=16,
        choices=RequestedPriority,
        blank=True,
        help_text="Set by the OPG; empty if not set.",
    )
    priority = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Set by the OPG within the class; higher numbers run sooner.",
    )
    version = models.PositiveIntegerField(
        default=1, help_text="Incremented by every change; guards against lost updates."
    )
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    editor_ids = ArrayField(
        models.BigIntegerField(),
        default=list,
        blank=True,
        help_text="Users who wrote any revision of its content.",
    )
    submitted_at = models.DateTimeField(null=True, blank=True)
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    approved_at = models.DateTimeField(null=True, blank=True)
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    work_began_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When its jobs were first submitted, seen or reported, including tests.",
    )
    estimated_core_seconds = models.FloatField(
        null=True, blank=True, help_text="Core time that was expected when it was started."
    )
    expected_start = models.DateField(
        null=True, blank=True, help_text="Empty: unknown, or it has started."
    )
    expected_start_early = models.DateField(null=True, blank=True)
    expected_start_late = models.DateField(null=True, blank=True)
    ignores_advice_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Until then, its jobs are submitted despite advice not to.",
    )
    expected_end = models.DateField(
        null=True, blank=True, help_text="When its last job is expected to finish."
    )
    expected_end_early = models.DateField(null=True, blank=True)
    expected_end_late = models.DateField(null=True, blank=True)
    forecast_basis = models.TextField(
        blank=True, help_text="What the forecast is based on, or why it is unknown."
    )
    forecast_at = models.DateTimeField(
        null=True, blank=True, help_text="When the forecast was computed."
    )
    forecast_stages = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="Expected ends of the stages of a running request, by name.",
    )
    part_done = models.FloatField(
        null=True,
        blank=True,
        help_text="Fraction of the requested jobs that have completed, from 0 to 1; stored with "
        "the forecast.",
    )
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    #: Set by ABSOLUTE_URL_OVERRIDES in the settings, because the request page belongs to the
    #: portal.
    get_absolute_url: Callable[[], str]

    objects = RequestQuerySet["Request"].as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=_S.values), name="request_state"),
            models.CheckConstraint(
                condition=Q(requested_priority__in=RequestedPriority.values),
                name="request_requested_priority",
            ),
            models.CheckConstraint(
                condition=Q(priority=None) | Q(priority__range=(MIN_PRIORITY, MAX_PRIORITY)),
                name="request_priority",
            ),
            models.CheckConstraint(
                condition=Q(priority_class__in=["", *RequestedPriority.values]),
                name="request_priority_class",
            ),
            _time_and_user_constraint(
                "submitted", set_in={*_S} - {_S.DRAFT, *_ENDED_EARLY}, free_in=_ENDED_EARLY
            ),
            _time_and_user_constraint("approved", set_in=SIGNED, free_in=_ENDED_EARLY),
            models.CheckConstraint(
                condition=Q(state__in=sorted(CLOSED), closed_at__isnull=False)
                | (~Q(state__in=sorted(CLOSED)) & Q(closed_at=None, closed_by=None)),
                name="request_closed",
            ),
            models.CheckConstraint(
                condition=Q(state=_S.ON_HOLD) & ~Q(held_from="")
                | ~Q(state=_S.ON_HOLD) & Q(held_from=""),
                name="request_held_from",
            ),
            models.CheckConstraint(
                condition=Q(superseded_by=None) ^ Q(state=_S.SUPERSEDED),
                name="request_superseded_by",
            ),
            models.CheckConstraint(
                condition=Q(approved_by=None)
                | ~(Q(approved_by=F("created_by")) | Q(approved_by=F("submitted_by"))),
                name="request_approver_is_not_requester",
            ),
            models.CheckConstraint(
                condition=~Q(editor_ids__contains=[F("approved_by")]),
                name="request_approver_is_not_editor",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"]),
            models.Index(fields=["experiment", "-created_at", "-id"]),
            models.Index(fields=["state", "-created_at", "-id"]),
            _trigram_index("key", "request_words_of_key"),
            _trigram_index("title", "request_words_of_title"),
            models.Index(
                fields=["experiment", "campaign"],
                condition=~Q(campaign=""),
                name="request_campaign",
            ),
            models.Index(fields=["experiment"], condition=~Q(scan=""), name="request_scans"),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def stop_date(self) -> date | None:
        """The last day on which new files are processed; None unless this is keep-up."""
        stop_on = self.arguments.get("stop_on")
        return parse_date(stop_on) if isinstance(stop_on, str) else None

    @property
    def requester_ids(self) -> frozenset[int]:
        """The users who cannot approve it: its author, all editors, and the last submitter."""
        return frozenset(
            {self.created_by_id, *self.editor_ids, self.submitted_by_id or self.created_by_id}
        )

    @property
    def level(self) -> str:
        """Priority class and number as text, such as `high 7`. Empty if neither is set."""
        return " ".join(str(part) for part in (self.priority_class, self.priority) if part)


class Attention(models.Model):
    """A reason why a request needs attention, since when. Kept by `progress.domain.needs`.

    Release 1.0.0 fails at a kind that it does not know. So a needed change is stored as an idle
    request, which is never marked for both, with a column that only later releases read.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="attention")
    stored_kind = models.CharField(db_column="kind", max_length=16, editable=False)
    needs_change = models.BooleanField(default=False, db_default=False, editable=False)
    kind = models.GeneratedField(
        expression=Case(
            When(needs_change=True, then=Value(AttentionKind.NEEDS_CHANGE)), default="stored_kind"
        ),
        output_field=models.CharField(max_length=16, choices=AttentionKind),
        choices=AttentionKind,
        db_column="shown_kind",
        db_persist=True,
    )
    since = models.DateTimeField()
    words = models.CharField(max_length=300)

    class Meta:
        verbose_name_plural = "attention"
        ordering = ["-kind"]
        constraints = [
            models.UniqueConstraint(fields=["request", "stored_kind"], name="attention_once"),
            models.CheckConstraint(
                condition=Q(stored_kind__in=["stuck", "test_failed", "idle", "late"]),
                name="attention_kind",
            ),
        ]
        indexes = [models.Index(fields=["stored_kind"], name="attention_of_kind")]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.text}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.needs_change = self.kind == AttentionKind.NEEDS_CHANGE
        self.stored_kind = AttentionKind.IDLE if self.needs_change else self.kind
        super().save(*args, **kwargs)

    @property
    def text(self) -> str:
        """Why the request needs attention, after a label such as `Stuck: `.

        Column and API call it `words`, as release 1.0.0 does.
        """
        return self.words

    @text.setter
    def text(self, text: str) -> None:
        self.words = text


class Stage(models.Model):
    """One stage of the chain of a request, in which many jobs do the same work."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="stages")
    position = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=40, default="stage")
    arguments = models.JSONField(default=dict, blank=True)
    name = models.CharField(max_length=64, blank=True)
    release = models.CharField(max_length=100, blank=True)
    configuration = models.CharField(max_length=300, blank=True)
    input_dataset = models.CharField(
        max_length=300, blank=True, help_text="Empty: the output of the previous stage."
    )
    events = models.BigIntegerField(null=True, blank=True)
    jobs = models.PositiveIntegerField(null=True, blank=True)
    memory_bytes = models.BigIntegerField(null=True, blank=True, help_text="Per job.")
    wall_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="Per job.")
    retry_memory_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="The most that a recovery rule may give a job."
    )
    retry_wall_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="The most that a recovery rule may give a job."
    )
    output_dataset = models.CharField(max_length=300, blank=True)
    services = models.ManyToManyField("statusboard.Service", blank=True, related_name="stages")

    class Meta:
        ordering = ["request", "position"]
        constraints = [
            models.UniqueConstraint(fields=["request", "position"], name="stage_position_once"),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gt": 0}),
                    name=f"stage_{name}_positive",
                )
                for name in (
                    "events",
                    "jobs",
                    "memory_bytes",
                    "wall_seconds",
                    "retry_memory_bytes",
                    "retry_wall_seconds",
                )
            ),
        ]
        indexes = [
            models.Index(
                fields=["output_dataset"], condition=~Q(output_dataset=""), name="stage_writes"
            ),
            models.Index(
                fields=["input_dataset"], condition=~Q(input_dataset=""), name="stage_reads"
            ),
            _trigram_index("output_dataset", "stage_words_of_output"),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.position + 1} {self.name}"


class FormKey(models.Model):
    """The draft that a form created, so that submitting the form again creates no second draft."""

    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=64)
    request = models.ForeignKey(Request, on_delete=models.CASCADE, null=True, related_name="+")
    version = models.PositiveIntegerField(
        default=0, help_text="Version of the request when the form last saved it."
    )
    by_button = models.BooleanField(
        default=False, help_text="Saved by a button, so the user saw the result."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["author", "key"], name="form_key_once")]

    def __str__(self) -> str:
        return f"{self.author_id}: {self.key}"


class RequestRevision(models.Model):
    """The content of a request when it was saved or submitted, as written by `plain`."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="revisions")
    version = models.PositiveIntegerField(help_text="Version of the request with this content.")
    content = models.JSONField()
    begun_at = models.DateTimeField(help_text="Time of the first of the merged saves.")
    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    is_submitted = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["request", "-id"])]

    def __str__(self) -> str:
        return f"{self.request_id} at version {self.version}"


class RequestCounter(models.Model):
    """The last number used in a key of an experiment. Locked while a request is created."""

    experiment = models.OneToOneField(
        "accounts.Experiment", on_delete=models.CASCADE, primary_key=True
    )
    last = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.experiment_id}: {self.last}"
