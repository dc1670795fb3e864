"""What people fill in to withdraw a signature and to hand over while away. Times are in the reader's zone."""

from typing import Any

from django import forms
from django.utils import timezone

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.accounts.permissions import is_approver, scope_of
from apps.core.web.moments import LocalMomentField
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import ApprovalGroup

#: The choice "as an approver"; no group has a number like it.
AS_APPROVER = "approver"


class WithdrawForm(forms.Form):
    """Why a signature is taken back, and the version that the person has seen."""

    reason = forms.CharField(max_length=MAX_REASON)
    version = forms.IntegerField(required=False, min_value=1)


class DelegationForm(forms.Form):
    """Who signs for a person who is away, what, and from when until when."""

    to_user = forms.CharField(max_length=150, label="Delegate", help_text="Username.")
    what = forms.ChoiceField(required=False, label="Scope")
    from_at = LocalMomentField(required=False, label="From", help_text="Leave empty to start now.")
    until_at = LocalMomentField(label="Until")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: dict[str, Any] = self.fields
        roles = [(AS_APPROVER, "Only as an approver")] if scope_of(user).has_anywhere(Role.APPROVER) else []
        groups = [(str(group.pk), f"Only for {group.name}") for group in own_groups(user)]
        fields["what"].choices = [("", "Everything I can sign"), *roles, *groups]

    def given(self) -> dict[str, Any]:
        """Return what the service takes."""
        sent = self.cleaned_data
        what = sent["what"]
        return {
            "to_user": User.objects.filter(username=sent["to_user"], is_active=True).first(),
            "from_at": sent["from_at"] or timezone.now(),
            "until_at": sent["until_at"],
            "role": Role.APPROVER.value if what == AS_APPROVER else "",
            "group": ApprovalGroup.objects.get(pk=what) if what.isdigit() else None,
        }


def own_groups(user: User) -> list[ApprovalGroup]:
    """Return the groups of which this person is, by name or by role."""
    roles = {role for role, _ in scope_of(user).roles}
    groups = ApprovalGroup.objects.filter(retired_at=None).prefetch_related("members")
    return [g for g in groups if g.role in roles or user.pk in {member.pk for member in g.members.all()}]


def may_hand_over(user: User) -> bool:
    """Tell whether there is anything that this person may sign."""
    return is_approver(user) or scope_of(user).has_anywhere(Role.APPROVER) or bool(own_groups(user))
