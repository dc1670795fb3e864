"""Forms of the request page that need more than one app."""

from typing import Any

from django import forms

from apps.clusters.models import Cluster
from apps.production.web.forms.moves import ReasonForm
from apps.submission.web.forms import limit_field

#: The choice of no cluster.
BY_HAND = "by-hand"


class StartForm(ReasonForm):
    """The start of a request for which no cluster is chosen: a cluster, or jobs by hand.

    An answer without the field, such as one of a script, means jobs by hand.
    """

    cluster = forms.ChoiceField(
        required=False,
        help_text="The portal submits the jobs there, stage by stage.",
        error_messages={"invalid_choice": "Choose one of these clusters."},
    )
    most_in_flight = limit_field()
    field_order = ("cluster", "most_in_flight", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Cluster.objects.filter(submits=True).order_by("name").values_list("name", flat=True)
        choices = [(name, name) for name in names]
        if len(choices) > 1:
            choices.insert(0, ("", "Choose a cluster"))
        choices.append((BY_HAND, "None: its jobs are submitted by hand"))
        self.fields["cluster"].choices = choices  # type: ignore[attr-defined]

    def clean_cluster(self) -> Cluster | None:
        name = self.cleaned_data["cluster"]
        if not name and "cluster" in self.data:
            raise forms.ValidationError("Choose a cluster, or that its jobs are submitted by hand.")
        return Cluster.objects.filter(submits=True, name=name).first()
