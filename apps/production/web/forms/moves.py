"""Forms of moves, priority and comments."""

from typing import Any

from django import forms

from apps.core.web.moments import DayField
from apps.production.enums import RequestedPriority
from apps.production.models import MAX_PRIORITY, MIN_PRIORITY


class ReasonForm(forms.Form):
    """The reason for a move, and the version of the request that the user has seen."""

    hint = "Shown in the activity of the request."
    reason = forms.CharField(required=False, strip=True, widget=forms.Textarea(attrs={"rows": 3}))
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, reason_needed: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if reason_needed:
            self.fields["reason"].label = "Reason (required)"
            self.fields["reason"].widget.attrs["aria-required"] = "true"
        else:
            self.fields["reason"].label = "Reason (optional)"
        self.fields["reason"].help_text = self.hint


class ReviewForm(ReasonForm):
    """The requested changes."""

    hint = (
        "Shown in the form of the request. A line that begins with a field is shown beside it: "
        "“Deadline: …”, “Stage 2 memory: …”."
    )


class SuccessorForm(ReasonForm):
    successor = forms.CharField(
        max_length=24, help_text="Key of the request that replaces it, such as NOVA-0231."
    )
    field_order = ("successor", "reason")


class PriorityForm(ReasonForm):
    """Class and number, with the reason. An empty field stays unchanged."""

    priority_class = forms.TypedChoiceField(
        choices=[("", "not set"), *reversed(RequestedPriority.choices)],
        required=False,
        label="Class",
        empty_value=None,
    )
    priority = forms.IntegerField(
        required=False,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        label="Number",
        help_text=(
            f"{MIN_PRIORITY} to {MAX_PRIORITY} within the class. Higher numbers run sooner; the "
            "default is 5."
        ),
    )
    field_order = ("priority_class", "priority", "reason")


class RescheduleForm(ReasonForm):
    """A later deadline, a requested class, or both, with the reason."""

    hint = "Approvers read it, and it is shown in the activity of the request."
    deadline = DayField(
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="A later one needs no new signatures.",
    )
    requested_class = forms.TypedChoiceField(
        choices=[("", "unchanged"), *reversed(RequestedPriority.choices)],
        required=False,
        label="Request class",
        empty_value=None,
        help_text="An approver sets it.",
    )
    field_order = ("deadline", "requested_class", "reason")


class ApprovalForm(PriorityForm):
    """A signature with the priority, for a user who may set it."""

    hint = "Required if the priority is not the requested one."

    def __init__(self, *args: Any, sets_priority: bool, **kwargs: Any) -> None:
        super().__init__(*args, reason_needed=False, **kwargs)
        self.fields["reason"].widget = forms.TextInput()
        if sets_priority:
            self.fields["reason"].label = "Reason"
            self.fields["priority"].help_text = (
                f"Its place within the class, {MIN_PRIORITY} to {MAX_PRIORITY}: higher runs "
                "sooner. 5 if empty."
            )
        else:
            self.fields["reason"].help_text = ReasonForm.hint
            del self.fields["priority_class"], self.fields["priority"]


class CommentForm(forms.Form):
    """A comment, with a choice of the field it is about unless `fields` is None."""

    field = forms.ChoiceField(required=False, label="About")
    text = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 5}),
        label="Comment",
        help_text="Type @name to notify someone who can see this request.",
    )

    def __init__(self, *args: Any, fields: list[tuple[str, str]] | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if fields is None:
            del self.fields["field"]
        else:
            self.fields["field"].choices = fields  # type: ignore[attr-defined]
