"""Approval groups and rules, signatures, delegations and reminders."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from apps.accounts.enums import Role

REMIND_AFTER_DAYS = 3


class ApprovalGroup(models.Model):
    """Users of whom one must sign.

    These are the members, and all users with the role of the group for the experiment.
    """

    name = models.CharField(max_length=100, unique=True)
    experiment = models.ForeignKey(
        "accounts.Experiment",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: all experiments.",
    )
    role = models.CharField(
        max_length=16,
        choices=Role,
        blank=True,
        help_text="All users with this role belong to the group.",
    )
    members = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        blank=True,
        related_name="+",
        help_text="They can sign only requests that they can see.",
    )
    retired_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="The group does not sign requests after this time.",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ApprovalRule(models.Model):
    """The groups that must sign requests of a type or experiment.

    All groups of all matching rules must sign.
    """

    workflow = models.ForeignKey(
        "production.WorkflowType",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: all types.",
    )
    experiment = models.ForeignKey(
        "accounts.Experiment",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Empty: all experiments.",
    )
    groups = models.ManyToManyField(
        ApprovalGroup,
        blank=True,
        limit_choices_to={"retired_at": None},
        help_text="All of them must sign. Without groups, one approver is enough.",
    )
    remind_after_days = models.PositiveSmallIntegerField(
        default=REMIND_AFTER_DAYS,
        help_text="Send one reminder to the users a request waits for. 0: never.",
    )
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.workflow or 'every type'} of {self.experiment or 'every experiment'}"


def _person(related_name: str = "+", **more: Any) -> Any:
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name=related_name, **more
    )


class Signature(models.Model):
    """A user's approval of the content of a request at `version`.

    The user signs for a group, or as an approver if no rule matches. `made_by` and `sent_by` copy
    author and submitter of the request, so that a constraint can compare them with the signer.
    """

    request = models.ForeignKey(
        "production.Request", on_delete=models.CASCADE, related_name="signatures"
    )
    group = models.ForeignKey(
        ApprovalGroup, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    group_name = models.CharField(
        max_length=100,
        blank=True,
        help_text="Name of the group at that time. Empty: signed as an approver.",
    )
    by = _person()
    for_user = _person(null=True, blank=True)
    made_by = _person()
    sent_by = _person(null=True)
    at = models.DateTimeField()
    version = models.PositiveIntegerField()
    content = models.JSONField(help_text="The content that was signed.")
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=150, blank=True)
    withdrawn_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["request", "group"],
                condition=Q(withdrawn_at=None),
                nulls_distinct=False,
                name="signature_once",
            ),
            models.CheckConstraint(
                condition=~(Q(by=F("made_by")) | Q(by=F("sent_by"), sent_by__isnull=False)),
                name="signature_not_of_requester",
            ),
            models.CheckConstraint(
                condition=Q(for_user=None)
                | ~(
                    Q(for_user=F("made_by"))
                    | Q(for_user=F("sent_by"), sent_by__isnull=False)
                    | Q(for_user=F("by"))
                ),
                name="signature_not_for_requester",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.by} for {self.group_name or 'the approvers'}"


class Delegation(models.Model):
    """Permission to sign on behalf of a user for a time, under one's own name. Not transitive."""

    from_user = _person("delegations_given")
    to_user = _person("delegations_taken")
    group = models.ForeignKey(
        ApprovalGroup,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Only signatures of this group.",
    )
    role = models.CharField(
        max_length=16,
        choices=[(Role.APPROVER.value, Role.APPROVER.label)],
        blank=True,
        help_text="Only as an approver. Without group and role: everything the user may sign.",
    )
    from_at = models.DateTimeField()
    until_at = models.DateTimeField()
    created_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(from_user=F("to_user")), name="delegation_to_another"
            ),
            models.CheckConstraint(
                condition=Q(until_at__gt=F("from_at")), name="delegation_ends_later"
            ),
            models.CheckConstraint(
                condition=Q(group=None) | Q(role=""), name="delegation_of_one_thing"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.to_user} for {self.from_user}"


class Reminder(models.Model):
    """A reminder that was sent while a request waited in a state. At most one per wait."""

    request = models.ForeignKey(
        "production.Request", on_delete=models.CASCADE, related_name="reminders"
    )
    state = models.CharField(max_length=24)
    since = models.DateTimeField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "state", "since"], name="reminder_once")
        ]

    def __str__(self) -> str:
        return f"{self.request_id} {self.state} since {self.since}"
