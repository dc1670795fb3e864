"""Forms of the queue: manual moves and fair shares."""

from typing import Any

from django import forms

from apps.production.domain.priority.shares import ShareRow
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import MAX_WEIGHT


class MoveForm(forms.Form):
    """The new rank, the reason, and the queue as the user saw it.

    A preview needs no reason.
    """

    to_rank = forms.IntegerField(min_value=1, label="To rank")
    reason = forms.CharField(max_length=MAX_REASON)
    version = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    seen_rank = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, previews: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = not previews


class UndoForm(forms.Form):
    """The reason is optional here.

    Permission is checked before a missing reason is reported.
    """

    reason = forms.CharField(required=False)
    version = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)


class SharesForm(forms.Form):
    """A weight per experiment and the reason, which a preview does not need."""

    reason = forms.CharField(
        required=False, max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 2})
    )
    version = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)

    def __init__(self, *args: Any, rows: list[ShareRow], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = rows
        self.fields[
            "reason"
        ].help_text = "Required to save. Members of the experiments can read it."
        for share_row in rows:
            self.fields[self.name_of(share_row)] = forms.IntegerField(
                min_value=0,
                max_value=MAX_WEIGHT,
                initial=share_row.weight,
                label=f"Share of {share_row.experiment.name}",
            )

    @staticmethod
    def name_of(share_row: ShareRow) -> str:
        return f"share-{share_row.experiment.key}"

    @property
    def lines(self) -> list[tuple[ShareRow, forms.BoundField]]:
        """The share of each experiment with its field."""
        return [(share_row, self[self.name_of(share_row)]) for share_row in self._rows]

    @property
    def weights(self) -> dict[int, int]:
        """The weights of a valid form by primary key of the experiment."""
        return {
            share_row.experiment.pk: self.cleaned_data[self.name_of(share_row)]
            for share_row in self._rows
        }
