"""Recovery rules with their versions, what they decided about failed jobs, and daily totals."""

from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.urls import reverse

from apps.accounts.models import Experiment, ExperimentQuerySet
from apps.core.models import Work
from apps.diagnosis.enums import Category
from apps.jobs.models import Job
from apps.production.models import Hold, Stage
from apps.recovery.enums import RETRIED_ARMS, Arm, Mode, Recovery, RecoveryOutcome
from apps.submission.enums import IN_BATCH, ONLY_BY_OWNER
from apps.submission.models import RetryBatch, RetryJob

#: Decisions on production jobs that failed at their first attempt. Jobs that are left to a person
#: without a rule are no failures of production, such as test and debug jobs.
FIRST_FAILURES = (
    Q(attempt=1) & ~Q(arm=Arm.PENDING.value) & ~Q(arm=Arm.PERSON.value, rule__isnull=True)
)
#: Decisions whose retries are not planned yet.
TO_RETRY = Q(arm__in=RETRIED_ARMS, outcome=RecoveryOutcome.WAITING.value, batch=None)
#: The values of `why` of jobs that only their owners can submit again.
LEFT_TO_OWNER = [reason.label for reason in ONLY_BY_OWNER]
#: Open questions to a person, and to the owners of jobs.
OPEN_QUESTION = Q(
    arm__in=[Arm.QUESTION.value, Arm.BUDGET.value],
    outcome=RecoveryOutcome.WAITING.value,
    batch=None,
)
OPEN_OWNER_QUESTION = Q(
    arm=Arm.OWNER.value,
    outcome=RecoveryOutcome.WAITING.value,
    batch=None,
    why__in=LEFT_TO_OWNER,
)
#: How `why` begins once a person has changed the verdict of a job that a rule had planned to retry.
NO_LONGER_RETRIED = "No longer retried: "
NO_LONGER_ASKED = "No longer a question: "
WITHDRAWN = Q(outcome=RecoveryOutcome.WAITING.value, batch=None) & (
    Q(why__startswith=NO_LONGER_RETRIED) | Q(why__startswith=NO_LONGER_ASKED)
)
#: Decisions made before a person changed the verdict of their job.
OVERRIDDEN_SINCE = Q(job__verdict__overridden_at__gt=F("decided_at"))


class DecisionQuerySet(ExperimentQuerySet["Decision"]):
    def to_retry(self) -> Self:
        """Return the decisions to retry jobs whose verdict no person has changed since."""
        return self.filter(TO_RETRY).exclude(OVERRIDDEN_SINCE)

    def left_to_rules(self) -> Self:
        """Return the decisions to retry jobs that no person has put into a batch since."""
        by_hand = RetryJob.objects.filter(job=OuterRef("job"), state__in=IN_BATCH)
        return self.to_retry().filter(~Exists(by_hand))


class RecoveryRule(models.Model):
    """What is done about failed jobs that meet a condition: a name for a series of versions.

    `definition` defines the current version, as `apps.recovery.domain.rules.definition` reads
    it. The first rule by `position` that matches a job decides about it.
    """

    name = models.CharField(max_length=64, unique=True)
    position = models.PositiveIntegerField(help_text="Rules are tried in this order.")
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="recovery_rules",
        help_text="Applies to its jobs only; empty: to all.",
    )
    definition = models.JSONField(help_text="Scope, condition, action and limits.")
    version = models.PositiveIntegerField(default=1)
    mode = models.CharField(max_length=8, choices=Mode, default=Mode.PASSIVE.value)
    mode_at = models.DateTimeField(help_text="Time of the last change of the mode.")
    mode_by = models.CharField(max_length=150)
    mode_reason = models.TextField(blank=True)
    stopped_itself = models.BooleanField(
        default=False, help_text="It went back to passive because it did not help."
    )
    owner = models.CharField(
        max_length=150, blank=True, help_text="Person or team that looks after it."
    )
    shipped = models.BooleanField(default=False, help_text="It comes with the portal.")
    of_pack = models.BooleanField(
        default=False, db_default=False, help_text="The pack of its experiment declares it."
    )

    class Meta:
        ordering = ["position", "pk"]
        constraints = [
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="recovery_rule_mode"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("recovery:rule", args=[self.pk])


class RecoveryRuleVersion(models.Model):
    """One version of a rule. Versions never change."""

    rule = models.ForeignKey(RecoveryRule, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    definition = models.JSONField()
    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["rule", "number"], name="recovery_version_once"),
        ]

    def __str__(self) -> str:
        return f"{self.rule}, version {self.number}"


class Decision(Work):
    """What the rules decided about one failed job, and how the job ended after that.

    It is made once. `rule` and `version` say what decided; `why` says it in words; `changes` are
    the resources of the retry that differ.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="recovery")
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    rule = models.ForeignKey(
        RecoveryRule,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="decisions",
        db_index=False,
    )
    version = models.PositiveIntegerField(default=0)
    arm = models.CharField(max_length=16, choices=Arm, default=Arm.PENDING.value)
    outcome = models.CharField(
        max_length=16, choices=RecoveryOutcome, default=RecoveryOutcome.WAITING.value
    )
    why = models.CharField(max_length=500, blank=True)
    changes = models.JSONField(
        default=dict, blank=True, help_text="Resources that differ from those of the failed job."
    )
    attempt = models.PositiveSmallIntegerField(
        default=1, help_text="Which attempt failed; the first is 1."
    )
    first_asked = models.JSONField(
        default=dict, blank=True, help_text="Memory and time limit of the first attempt."
    )
    failed_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="End of the failed attempt, copied from the job to keep lists fast.",
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    act_at = models.DateTimeField(null=True, blank=True, help_text="Earliest time of the retry.")
    batch = models.ForeignKey(
        RetryBatch, on_delete=models.SET_NULL, null=True, blank=True, related_name="decisions"
    )
    recovery = models.CharField(
        max_length=16,
        choices=Recovery,
        default=Recovery.WAITING.value,
        help_text="Of a job that failed at its first attempt, after all later attempts.",
    )
    outcome_at = models.DateTimeField(null=True, blank=True)
    failed_core_seconds = models.BigIntegerField(
        default=0, help_text="Wall time × cores of the failed attempt."
    )
    retry_core_seconds = models.BigIntegerField(
        default=0, help_text="Wall time × cores of the retry."
    )

    objects = DecisionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(arm__in=Arm.values), name="decision_arm"),
            models.CheckConstraint(
                condition=Q(outcome__in=RecoveryOutcome.values), name="decision_outcome"
            ),
            models.CheckConstraint(
                condition=Q(recovery__in=Recovery.values), name="decision_recovery"
            ),
            models.CheckConstraint(
                condition=Q(arm=Arm.PENDING) ^ Q(decided_at__isnull=False), name="decision_decided"
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(arm=Arm.PENDING.value), name="decision_pending"
            ),
            models.Index(
                fields=["arm", "act_at"],
                condition=Q(outcome=RecoveryOutcome.WAITING.value),
                name="decision_waiting",
            ),
            # Lists of decisions are filtered by what these two include, without reading the rows.
            models.Index(
                fields=["rule", "version", "-decided_at", "-id"],
                include=["arm", "outcome", "experiment"],
                name="decision_of_rule",
            ),
            models.Index(
                fields=["rule", "-decided_at", "-id"],
                include=["arm", "outcome", "experiment"],
                name="decision_of_rule_newest",
            ),
            models.Index(fields=["decided_at"], name="decision_by_time"),
            models.Index(
                fields=["-failed_at", "-id"],
                include=["experiment", "recovery", "job"],
                condition=FIRST_FAILURES,
                name="decision_first_failures",
            ),
            models.Index(
                fields=["decided_at"],
                condition=Q(recovery=Recovery.WAITING.value, attempt=1),
                name="decision_unrecovered",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.arm} for {self.job}"

    @property
    def is_to_retry(self) -> bool:
        """Whether its retry is not planned yet."""
        is_planned = self.batch_id is not None or self._is_in_batch
        return self.arm in RETRIED_ARMS and not is_planned and self.act_at is not None

    @property
    def _is_in_batch(self) -> bool:
        """Whether its retry waits or runs, planned by a rule or a user. Only lists read this."""
        return getattr(self, "current_batch_id", None) is not None

    @property
    def _is_requeued(self) -> bool:
        """Whether the scheduler ran the job again, which needs no person."""
        if self.arm != Arm.HANDLED:
            return False
        verdict = getattr(self.job, "verdict", None)
        return verdict is not None and verdict.later_attempt is not None

    @property
    def text(self) -> str:
        """What was decided. A rule has not acted until its retry is planned.

        It leaves a job to a person who put it into a batch meanwhile.
        """
        if self._is_requeued:
            return "Requeued under the same job ID"
        if self.arm == Arm.CONTROL or self.outcome != RecoveryOutcome.WAITING:
            return self._text_of_unretried
        if self.is_to_retry:
            return "Will be retried"
        if self.arm in RETRIED_ARMS and self.batch_id is None and self._is_in_batch:
            return "Left to a person who retries it"
        return self._text_of_unretried

    @property
    def _text_of_unretried(self) -> str:
        """What was decided about a job that its rule does not retry."""
        if self.arm == Arm.OWNER and self.why in LEFT_TO_OWNER:
            return "Left to its owner"
        return Arm(self.arm).label

    @property
    def time(self) -> datetime:
        """The time of the decision. Raises `ValueError` while it is pending."""
        if self.decided_at is None:
            raise ValueError(f"{self} is not decided yet")
        return self.decided_at


class HeldStage(models.Model):
    """A stage that a rule has put on hold.

    A version of a rule holds a stage once: lifting the hold is the answer.
    """

    rule = models.ForeignKey(RecoveryRule, on_delete=models.CASCADE, related_name="+")
    version = models.PositiveIntegerField()
    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="+", db_index=False)
    hold = models.OneToOneField(Hold, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["stage", "rule", "version"], name="held_stage_once"),
        ]

    def __str__(self) -> str:
        return f"{self.hold} by {self.rule}, version {self.version}"


class DailyEffect(models.Model):
    """Decisions of a day (UTC, by `decided_at`) that have all this in common, as last counted."""

    rule = models.ForeignKey(
        RecoveryRule, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    version = models.PositiveIntegerField()
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    day = models.DateField()
    arm = models.CharField(max_length=16, choices=Arm)
    outcome = models.CharField(max_length=16, choices=RecoveryOutcome)
    jobs = models.PositiveIntegerField()
    failed_core_seconds = models.BigIntegerField()
    retry_core_seconds = models.BigIntegerField()

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "daily effects"
        constraints = [
            models.UniqueConstraint(
                fields=["day", "rule", "version", "experiment", "arm", "outcome"],
                nulls_distinct=False,
                name="daily_effect_once",
            ),
        ]
        indexes = [models.Index(fields=["rule", "version"], name="daily_effect_of_rule")]

    def __str__(self) -> str:
        return f"{self.rule} on {self.day}: {self.arm}, {self.outcome}"


class WeeklyRecovery(models.Model):
    """Jobs that failed at their first attempt and have all this in common, as last counted.

    `week` is its Monday (UTC), by the end of the failed attempt.
    """

    week = models.DateField()
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, db_index=False
    )
    category = models.CharField(max_length=16, choices=Category)
    recovery = models.CharField(max_length=16, choices=Recovery)
    jobs = models.PositiveIntegerField()

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "weekly recoveries"
        constraints = [
            models.UniqueConstraint(
                fields=["week", "experiment", "category", "recovery"],
                nulls_distinct=False,
                name="weekly_recovery_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.week}: {self.jobs} {self.recovery}"
