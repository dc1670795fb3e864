"""Forms to withdraw a signature and to delegate signatures. Times are in the user's time zone."""

from typing import Any

from django import forms
from django.utils import timezone

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.web.moments import LocalMomentField
from apps.production.domain.approvals.delegations import own_groups
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import ApprovalGroup

#: The choice "as an approver". Other choices are ids of groups.
AS_APPROVER = "approver"


class WithdrawForm(forms.Form):
    """The reason, and the version of the request that the user has seen."""

    reason = forms.CharField(max_length=MAX_REASON)
    version = forms.IntegerField(required=False, min_value=1)


class DelegationForm(forms.Form):
    """The delegate, the scope and the period."""

    to_user = forms.CharField(max_length=150, label="Delegate", help_text="Username.")
    what = forms.ChoiceField(required=False, label="Scope")
    from_at = LocalMomentField(required=False, label="From", help_text="Leave empty to start now.")
    until_at = LocalMomentField(label="Until")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: dict[str, Any] = self.fields
        if scope_of(user).has_anywhere(Role.APPROVER):
            roles = [(AS_APPROVER, "Only as an approver")]
        else:
            roles = []
        groups = [(str(group.pk), f"Only for {group.name}") for group in own_groups(user)]
        fields["what"].choices = [("", "Everything I can sign"), *roles, *groups]

    def delegation(self) -> dict[str, Any]:
        """Return the arguments of `delegate`."""
        sent = self.cleaned_data
        what = sent["what"]
        return {
            "to_user": User.objects.filter(username=sent["to_user"], is_active=True).first(),
            "from_at": sent["from_at"] or timezone.now(),
            "until_at": sent["until_at"],
            "role": Role.APPROVER.value if what == AS_APPROVER else "",
            "group": ApprovalGroup.objects.get(pk=what) if what.isdigit() else None,
        }
