"""Runs of the checks with results, waivers, thresholds, and posts.

Only domain functions write them.
"""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from apps.production.models import Request, Stage
from apps.quality.enums import Effect, External, Outcome, RunState, Unknown

MAX_NAME = 200


def _person(**more: Any) -> Any:
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", **more
    )


class Thresholds(models.Model):
    """Limits of a check from a time on.

    Rows are only added. The newest row for a check, type and experiment applies.
    """

    check_name = models.CharField("check", max_length=64)
    workflow = models.ForeignKey(
        "production.WorkflowType",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: every type.",
    )
    experiment = models.ForeignKey(
        "accounts.Experiment",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: every experiment.",
    )
    effect = models.CharField(max_length=8, choices=Effect, default=Effect.BLOCK.value)
    unknown = models.CharField(max_length=8, choices=Unknown, default=Unknown.BLOCK.value)
    limits = models.JSONField(
        default=dict,
        blank=True,
        help_text='Such as {"most_missing": 0.001}. Limits not named keep their defaults.',
    )
    reason = models.TextField(help_text="Shown in the history.")
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        verbose_name_plural = "thresholds"
        ordering = ["-pk"]
        indexes = [
            models.Index(
                fields=["check_name", "workflow", "experiment", "-id"], name="thresholds_newest"
            )
        ]
        constraints = [
            models.CheckConstraint(condition=Q(effect__in=Effect.values), name="thresholds_effect"),
            models.CheckConstraint(
                condition=Q(unknown__in=Unknown.values), name="thresholds_unknown"
            ),
        ]

    def __str__(self) -> str:
        return (
            f"{self.check_name} for {self.workflow or 'every type'} of "
            f"{self.experiment or 'every experiment'}"
        )


class QualityRun(models.Model):
    """A run of all checks on a request, with the thresholds used."""

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="quality_runs")
    number = models.PositiveIntegerField(help_text="Number of the run within its request.")
    arrival = models.BigIntegerField(
        help_text="ID of the event that moved the request to data quality."
    )
    state = models.CharField(max_length=16, choices=RunState, default=RunState.WAITING.value)
    requested_at = models.DateTimeField()
    requested_by = models.CharField(max_length=150)
    reason = models.TextField(blank=True)
    evaluated_at = models.DateTimeField(null=True, blank=True)
    thresholds = models.JSONField(default=list, blank=True)
    inputs = models.JSONField(
        default=dict, blank=True, help_text="What the run is based on, to detect changes."
    )
    totals_at = models.DateTimeField(
        null=True, blank=True, help_text="As-of time of the job totals."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "number"], name="quality_run_number_once"),
            models.UniqueConstraint(
                fields=["request"], condition=Q(state="waiting"), name="quality_run_one_waits"
            ),
            models.CheckConstraint(
                condition=Q(state="waiting", evaluated_at=None)
                | Q(state="evaluated", evaluated_at__isnull=False),
                name="quality_run_evaluated",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: run {self.number}"


class Finding(models.Model):
    """A finding of a check for a stage or the request. Equal findings have an equal `digest`."""

    position = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Position of the stage. Empty: whole request."
    )
    stage_name = models.CharField(max_length=64, blank=True)
    check_name = models.CharField("check", max_length=64)
    title = models.CharField(max_length=200)
    subject = models.CharField(
        max_length=MAX_NAME, blank=True, help_text="The item, if a check looks at several."
    )
    why = models.TextField()
    digest = models.CharField(max_length=64)

    class Meta:
        abstract = True


class QualityResult(Finding):
    """The result of a check. Its active waiver is set by `quality.domain.data_quality`."""

    run = models.ForeignKey(
        QualityRun, on_delete=models.CASCADE, related_name="results", db_index=False
    )
    place = models.PositiveIntegerField(help_text="Position on the page.")
    outcome = models.CharField(max_length=8, choices=Outcome)
    blocks = models.BooleanField(help_text="The request cannot be closed unless this is waived.")
    value = models.FloatField(null=True, blank=True)
    threshold = models.FloatField(null=True, blank=True)
    unit = models.CharField(max_length=16, blank=True)
    numbers = models.JSONField(default=list, blank=True)
    waiver: "Waiver | None" = None

    class Meta:
        ordering = ["run", "place"]
        constraints = [
            models.UniqueConstraint(fields=["run", "place"], name="quality_result_place_once"),
            models.UniqueConstraint(
                fields=["run", "position", "check_name", "subject"],
                nulls_distinct=False,
                name="quality_result_once",
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=Outcome.values), name="quality_result_outcome"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title}: {self.outcome}"

    @property
    def stage_title(self) -> str:
        if self.position is None:
            return "Whole request"
        return f"{self.position + 1} {self.stage_name}"

    @property
    def is_open(self) -> bool:
        return self.blocks and self.waiver is None


class Waiver(Finding):
    """A user's waiver of a result. It does not apply to a result with other contents.

    `made_by` and `sent_by` are the requesters at that time, so that a constraint can keep them from
    waiving.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="waivers")
    run_number = models.PositiveIntegerField()
    in_part = models.BooleanField(default=False, help_text="Close the request as partially done.")
    reason = models.TextField()
    at = models.DateTimeField()
    by = _person()
    made_by = _person()
    sent_by = _person(null=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=150, blank=True)
    withdrawn_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["request", "digest"], condition=Q(withdrawn_at=None), name="waiver_once"
            ),
            models.CheckConstraint(
                condition=~(Q(by=F("made_by")) | Q(by=F("sent_by"), sent_by__isnull=False)),
                name="waiver_not_of_requester",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="waiver_has_reason"),
        ]

    def __str__(self) -> str:
        return f"waiver of {self.title}"


class QualityInput(models.Model):
    """A counter of the posts for a request, to detect that its checks must run again."""

    request = models.OneToOneField(
        Request, on_delete=models.CASCADE, related_name="quality_input", primary_key=True
    )
    revision = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.request_id}: {self.revision}"


class HistogramPair(models.Model):
    """A histogram of a stage's output and its reference, in the same bins.

    Posting the same name again replaces it.
    """

    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="histograms")
    name = models.CharField(max_length=MAX_NAME)
    edges = models.JSONField()
    reference = models.JSONField()
    observed = models.JSONField()
    link = models.URLField(max_length=500, blank=True)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["stage", "name"], name="histogram_once")]

    def __str__(self) -> str:
        return self.name


class ExternalResult(models.Model):
    """The result of an external tool for a stage or the request.

    Posting the same tool and name again replaces it.
    """

    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="external_results")
    stage = models.ForeignKey(
        Stage, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    name = models.CharField(max_length=MAX_NAME, help_text="Tool and check, such as dqm/occupancy.")
    outcome = models.CharField(max_length=8, choices=External)
    value = models.FloatField(null=True, blank=True)
    threshold = models.FloatField(null=True, blank=True)
    why = models.TextField()
    link = models.URLField(max_length=500, blank=True)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["request", "stage", "name"],
                nulls_distinct=False,
                name="external_result_once",
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=External.values), name="external_result_outcome"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}"


class LogLook(models.Model):
    """The known errors in the log of a completed job. Each log is read once."""

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="quality_look")
    request = models.ForeignKey(Request, on_delete=models.CASCADE, related_name="log_looks")
    stage = models.CharField(max_length=64, blank=True, help_text="Lower case.")
    read = models.BooleanField()
    patterns = models.JSONField(default=list, help_text="IDs of known errors.")
    line = models.TextField(blank=True, help_text="First matching line.")
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["request", "stage"], name="log_look_of_stage")]

    def __str__(self) -> str:
        return f"log of {self.job_id}"
