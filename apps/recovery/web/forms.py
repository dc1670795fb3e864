"""Forms to write recovery rules, to switch them, and to answer their questions."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from apps.accounts.models import Experiment
from apps.clusters.schedulers.base import JobState
from apps.core.web.quantity_field import QuantityField
from apps.diagnosis.enums import Category, VerdictKind
from apps.production.domain.reasons import MAX_REASON
from apps.recovery.domain.rules.definition import MOST_ALIKE_JOBS, MOST_ATTEMPTS, MOST_FACTOR
from apps.recovery.enums import ActionKind, Mode
from apps.submission.domain.arrays.changed_resources import ResourceChanges

#: States in which failed jobs end.
_END_STATES = [
    (state.value, state.text)
    for state in JobState
    if state not in (JobState.COMPLETED, JobState.REQUEUED)
]
#: Fields of the form by part of the definition.
_PARTS = {
    "scope": ("workflow_type", "stage", "cluster", "site"),
    "condition": (
        "end_states",
        "verdicts",
        "categories",
        "known_errors",
        "services",
        "exit_codes",
        "signals",
        "hold_reasons",
        "alike_jobs",
    ),
    "action": ("kind", "factor", "most_factor", "wait_minutes"),
    "limits": (
        "attempts",
        "core_hours_a_day",
        "request_percent",
        "control_percent",
        "least_success_percent",
    ),
}
_LISTS = ("known_errors", "services")
_NUMBERS = ("exit_codes", "signals")


_Ticks = forms.CheckboxSelectMultiple


class _Numbers(forms.CharField):
    """Whole numbers, separated by commas."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        numbers = []
        for part in str(text or "").replace(",", " ").split():
            try:
                numbers.append(int(part))
            except ValueError:
                raise forms.ValidationError(f"“{part[:20]}” is no whole number.") from None
        return numbers


class _Names(forms.CharField):
    """Names, separated by commas or blanks."""

    def to_python(self, value: Any) -> Any:
        return str(super().to_python(value) or "").replace(",", " ").split()


class _Lines(forms.CharField):
    """Texts, one a line."""

    widget = forms.Textarea(attrs={"rows": 2})

    def to_python(self, value: Any) -> Any:
        lines = []
        for line in str(super().to_python(value) or "").splitlines():
            if line.strip():
                lines.append(line.strip())
        return lines


class RuleForm(forms.Form):
    """A recovery rule; empty conditions match anything."""

    name = forms.CharField(max_length=64)
    experiment = forms.ModelChoiceField(
        Experiment.objects.none(), required=False, empty_label="All experiments"
    )
    workflow_type = forms.CharField(max_length=64, required=False, help_text="Empty: all types.")
    stage = forms.CharField(max_length=64, required=False, help_text="Empty: all stages.")
    cluster = forms.CharField(max_length=64, required=False, help_text="Empty: all clusters.")
    site = forms.CharField(max_length=64, required=False, help_text="Empty: all sites.")
    end_states = forms.MultipleChoiceField(
        choices=_END_STATES, required=False, label="The job ended as", widget=_Ticks
    )
    verdicts = forms.MultipleChoiceField(
        choices=VerdictKind.choices, required=False, label="Verdict", widget=_Ticks
    )
    categories = forms.MultipleChoiceField(
        choices=Category.choices, required=False, label="Category", widget=_Ticks
    )
    known_errors = _Names(
        required=False, max_length=2000, help_text="IDs, such as NOSPACE, CHECKSUM."
    )
    services = _Names(required=False, max_length=1000, help_text="Such as samweb, dcache.")
    exit_codes = _Numbers(required=False, max_length=500, help_text="Such as 65, 66.")
    signals = _Numbers(required=False, max_length=200, help_text="Such as 9.")
    hold_reasons = _Lines(
        required=False,
        max_length=2000,
        label="Hold reason",
        help_text="Of jobs that ended on hold: a part of the reason, one a line.",
    )
    alike_jobs = forms.IntegerField(
        min_value=0,
        max_value=MOST_ALIKE_JOBS,
        required=False,
        label="Jobs that fail alike",
        help_text="By the same known error and service within an hour. Empty: one is enough.",
    )
    kind = forms.ChoiceField(
        choices=ActionKind.choices,
        label="Action",
        help_text=(
            "Another cluster is one that starts requests of the experiment automatically, is up,"
            " and has not failed the job before. At another site, it is one whose site is known"
            " and differs. If there is none, a person is asked. With half the events, those that"
            " are not produced are missing in the request."
        ),
    )
    factor = forms.FloatField(
        min_value=1,
        max_value=MOST_FACTOR,
        initial=1.5,
        help_text="Multiplies the memory or wall time of the next attempt.",
    )
    most_factor = forms.FloatField(
        min_value=1,
        max_value=MOST_FACTOR,
        initial=2,
        label="Bound",
        help_text="Maximum, as a multiple of what the stage requests.",
    )
    wait_minutes = forms.IntegerField(
        min_value=0,
        max_value=10_080,
        initial=0,
        label="Wait (minutes)",
        help_text="Retries also wait while a service that the job needs is down.",
    )
    attempts = forms.IntegerField(
        min_value=2,
        max_value=MOST_ATTEMPTS,
        initial=3,
        label="Attempts of a job",
        help_text="With the first one. Then a person is asked.",
    )
    core_hours_a_day = forms.FloatField(
        min_value=0.1, max_value=10_000_000, initial=1000, label="Core-hours a day"
    )
    request_percent = forms.FloatField(
        min_value=0.1,
        max_value=100,
        initial=100,
        label="Share of a request (%)",
        help_text="The rule retries at most this share of a request’s jobs, then asks a person.",
    )
    control_percent = forms.FloatField(
        min_value=0,
        max_value=50,
        initial=5,
        label="Control group (%)",
        help_text="For comparison, these jobs get one unchanged retry. With 0 nothing is compared.",
    )
    least_success_percent = forms.FloatField(
        min_value=0,
        max_value=99,
        initial=50,
        label="Least success (%)",
        help_text="The rule stops itself once it is clear that fewer of its retries complete.",
    )
    reason = forms.CharField(max_length=2000, widget=forms.Textarea(attrs={"rows": 2}))
    base = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(
        self, *args: Any, experiments: Any, is_new: bool, needs_experiment: bool, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        experiment = self.fields["experiment"]
        experiment.queryset = experiments  # type: ignore[attr-defined]
        experiment.required = needs_experiment
        if not is_new:
            del self.fields["name"], self.fields["experiment"]

    @property
    def parts(self) -> list[tuple[str, list[forms.BoundField]]]:
        """The fields by heading, in the order of the page."""
        headings = {
            "scope": "Jobs",
            "condition": "that fail like this",
            "action": "get this",
            "limits": "within these limits",
        }
        parts = []
        for part, names in _PARTS.items():
            fields = []
            if part == "scope":
                fields = [self[name] for name in ("name", "experiment") if name in self.fields]
            for name in names:
                fields.append(self[name])
            parts.append((headings[part], fields))
        return parts

    @property
    def definition(self) -> dict[str, Any]:
        """The definition that was entered, part by part."""
        definition: dict[str, Any] = {}
        for part, names in _PARTS.items():
            values = {}
            for name in names:
                if self.cleaned_data[name] is not None:
                    values[name] = self.cleaned_data[name]
            definition[part] = values
        return definition

    def add_problems(self, problems: Mapping[str, Sequence[str]]) -> None:
        """Show problems of a definition beside their fields."""
        for path, messages in problems.items():
            field = None
            for name in path.split("."):
                if name in self.fields:
                    field = name
            for message in messages:
                self.add_error(field, message)


def initial_of(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the form's fields for a stored definition."""
    initial: dict[str, Any] = {}
    for part, names in _PARTS.items():
        values = definition.get(part, {})
        for name in names:
            if name in values:
                initial[name] = values[name]
    for name in (*_LISTS, *_NUMBERS):
        initial[name] = ", ".join(map(str, initial.get(name, ())))
    initial["hold_reasons"] = "\n".join(initial.get("hold_reasons", ()))
    return initial


class ModeForm(forms.Form):
    """The mode of a rule, and why."""

    mode = forms.ChoiceField(choices=Mode.choices)
    reason = forms.CharField(max_length=2000, required=False)


class AnswerForm(forms.Form):
    """Resources of retries beyond the bound of a rule, and why."""

    memory = QuantityField(
        suffix="bytes", required=False, max_length=40, help_text="Per job. Empty: unchanged."
    )
    wall_time = QuantityField(
        suffix="seconds",
        label="Wall time",
        required=False,
        max_length=40,
        help_text="Per job. Empty: unchanged.",
    )
    reason = forms.CharField(
        max_length=MAX_REASON, help_text="Why the jobs get more than the bound, or stay failed."
    )
    lift_hold = forms.BooleanField(
        required=False, initial=True, label="Lift the hold on the stage, too"
    )

    def __init__(self, *arguments: Any, may_lift: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not may_lift:
            del self.fields["lift_hold"]

    @property
    def changes(self) -> ResourceChanges:
        """The changed resources; call it on a valid form."""
        return ResourceChanges(
            memory_bytes=self.cleaned_data["memory"] or 0,
            time_limit_seconds=self.cleaned_data["wall_time"] or 0,
        )


def initial_answer(proposal: ResourceChanges) -> dict[str, int | None]:
    """Return the initial values of `AnswerForm`."""
    return {
        "memory": proposal.memory_bytes or None,
        "wall_time": proposal.time_limit_seconds or None,
    }
