"""The request form: fields, the formset of stages, moves of its rows without JavaScript, and back to content."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from django import forms
from django.forms import BaseFormSet, formset_factory
from django.utils.datastructures import MultiValueDict

from apps.accounts.enums import Role
from apps.accounts.models import Experiment
from apps.accounts.permissions import scope_of
from apps.production import quantities
from apps.production.checks import Problems
from apps.production.content import FIELDS, MAX_STAGES, STAGE_FIELDS, RequestContent, StageContent, written
from apps.production.enums import RequestedPriority
from apps.production.models import MAX_PRIORITY

TOO_MANY = f"At most {MAX_STAGES} stages. Split the request in two."
BROKEN = "The stages of this form arrived damaged. Nothing was saved: load the page again."
#: Rows of a form that claims to have more than it may are read no further than this.
READ_AT_MOST = 2 * MAX_STAGES


class QuantityField(forms.CharField):
    """A number that is typed in human units; empty is None."""

    def __init__(self, parse: Callable[[str], int], help_text: str, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=64, help_text=help_text, **kwargs)
        self.parse = parse
        self.widget.attrs["autocomplete"] = "off"

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return self.parse(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


class RequestForm(forms.Form):
    """A request without its stages. Nothing is required here: a draft may be incomplete."""

    title = forms.CharField(required=False, help_text="What others will recognise it by.")
    deadline = forms.DateField(
        required=False, label="Needed by", widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
    )
    requested_priority = forms.ChoiceField(
        choices=RequestedPriority, label="Priority asked for", help_text="Above normal needs a reason."
    )
    priority_reason = forms.CharField(
        required=False, label="Why this priority", help_text="Who waits, and what is late without it."
    )
    purpose = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The analysis that it is for, and what it replaces or adds to.",
    )
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def clean_purpose(self) -> str:
        # Browsers send lines with CR LF; one text must not differ from itself.
        return str(self.cleaned_data["purpose"]).replace("\r\n", "\n")


class NewRequestForm(RequestForm):
    """With the choice of the experiment, which stays what it is."""

    experiment = forms.ModelChoiceField(
        queryset=Experiment.objects.none(), to_field_name="key", empty_label=None, help_text="Fixed once saved."
    )
    field_order = ("experiment", "title")

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["experiment"].queryset = writable_experiments(user)  # type: ignore[attr-defined]


def writable_experiments(user: Any) -> Any:
    """Return the experiments for which this person is a liaison."""
    scope = scope_of(user)
    if scope.has(Role.LIAISON):
        return Experiment.objects.all()
    own = [pk for role, pk in scope.roles if role == Role.LIAISON and pk is not None]
    return Experiment.objects.filter(pk__in=own)


class StageForm(forms.Form):
    """One stage of the chain."""

    name = forms.CharField(required=False, help_text="Such as generation; jobs carry it.")
    release = forms.CharField(required=False, help_text="Of the software, such as v09_72.")
    configuration = forms.CharField(required=False, help_text="File, such as prod_reco.fcl.")
    input_dataset = forms.CharField(
        required=False, label="Input dataset", help_text="Empty: the output of the stage before."
    )
    output_dataset = forms.CharField(required=False, label="Output dataset")
    events = QuantityField(quantities.parse_count, "In all, such as 20 M.")
    jobs = QuantityField(quantities.parse_count, "Into how many it is cut.")
    memory_bytes = QuantityField(quantities.parse_size, "Of one job: 4 GB, 3900 MB.", label="Memory")
    wall_seconds = QuantityField(quantities.parse_duration, "Of one job: 8 h, 08:00:00, 2 d.", label="Wall time")
    services = forms.MultipleChoiceField(
        required=False,
        label="Services needed",
        error_messages={"invalid_choice": "The portal knows no service “%(value)s”."},
    )

    def __init__(self, *args: Any, services: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["services"].choices = services  # type: ignore[attr-defined]

    def ticks(self) -> list[tuple[str, str, bool]]:
        """Return slug, name and whether it is ticked, for each service."""
        chosen = set(self["services"].value() or [])
        return [(slug, name, slug in chosen) for slug, name in self.fields["services"].choices]  # type: ignore[attr-defined]


StageFormSet = formset_factory(StageForm, extra=0, max_num=MAX_STAGES, absolute_max=READ_AT_MOST, validate_max=True)


class Moved(NamedTuple):
    """What was typed with its rows in the new order, and the row that takes the focus."""

    data: MultiValueDict[str, Any]
    focus: int | None


class RequestForms:
    """Request form and stage forms as one, always bound to what was typed, so that nothing typed is ever lost."""

    def __init__(self, data: MultiValueDict[str, Any], *, services: list[tuple[str, str]], new_for: Any = None) -> None:
        self.data = data
        self.main = RequestForm(data) if new_for is None else NewRequestForm(data, user=new_for)
        self.stages: BaseFormSet[StageForm] = StageFormSet(
            data,
            prefix="stages",
            form_kwargs={"services": services},
            error_messages={"too_many_forms": TOO_MANY},
        )
        management = self.stages.management_form
        self.is_damaged = not management.is_valid() or (management.cleaned_data["TOTAL_FORMS"] or 0) < 0
        self.loose: list[str] = [BROKEN] if self.is_damaged else []

    def problems(self) -> list[tuple[str, str, str]]:
        """Return every problem as anchor, words for the place, and message, in the order of the form."""
        found = [
            (form[name].auto_id, f"{place}{form[name].label}", str(message))
            for place, form in self._places()
            for name, messages in form.errors.items()
            for message in messages
        ]
        general = [*self.loose, *([] if self.is_damaged else self.stages.non_form_errors())]
        return found + [("stages", "Stages", str(message)) for message in general]

    def _places(self) -> list[tuple[str, forms.Form]]:
        return [("", self.main), *((f"Stage {i} · ", form) for i, form in enumerate(self.stages.forms, start=1))]

    def is_valid(self) -> bool:
        return self.main.is_valid() and self.stages.is_valid() and not self.is_damaged

    def add_problems(self, problems: Problems) -> None:
        """Put problems that checks or services found beside their fields; a field that has some already keeps those."""
        marked = {(id(form), name) for _, form in self._places() for name in form.errors}
        for path, messages in problems.items():
            form, name = self._field(path)
            if form is None:
                self.loose += [message for message in messages if message not in self.loose]
            elif (id(form), name) not in marked:
                form.add_error(name, messages)

    def _field(self, path: str) -> tuple[forms.Form | None, str]:
        parts = path.split(".")
        if len(parts) == 1:
            return (self.main, path) if path in self.main.fields else (None, path)
        position, name = int(parts[1]), parts[2]
        return (self.stages.forms[position], name) if position < len(self.stages.forms) else (None, name)

    def content(self) -> RequestContent:
        """Return what was typed, without what cannot be read."""
        stages = tuple(StageContent(**_read(form, (*STAGE_FIELDS, "services"))) for form in self.stages.forms)
        return RequestContent(stages=stages, **_read(self.main, FIELDS))

    def move_rows(self, action: str) -> "Moved | None":
        """Do `add`, `remove-2`, `up-2` or `down-2` (rows from 0); None for any other action, or a damaged form."""
        verb, _, place = action.partition("-")
        if self.is_damaged or verb not in {"add", "remove", "up", "down"}:
            return None
        rows, focus = self._rows(), None
        position = int(place) if re.fullmatch(r"[0-9]{1,3}", place) else -1
        if verb == "add" and len(rows) < MAX_STAGES:
            rows.append({})
            focus = len(rows) - 1
        elif verb == "remove" and 0 <= position < len(rows):
            del rows[position]
        elif verb == "up" and 0 < position < len(rows):
            focus = position - 1
            rows.insert(focus, rows.pop(position))
        elif verb == "down" and 0 <= position < len(rows) - 1:
            focus = position + 1
            rows.insert(focus, rows.pop(position))
        return Moved(self._with_rows(rows), focus)

    def _rows(self) -> list[dict[str, list[str]]]:
        names = StageForm.base_fields
        count = self.stages.total_form_count()
        return [{name: self.data.getlist(f"stages-{i}-{name}") for name in names} for i in range(count)]

    def _with_rows(self, rows: list[dict[str, list[str]]]) -> MultiValueDict[str, Any]:
        kept = {name: values for name, values in self.data.lists() if not name.startswith("stages-")}
        return MultiValueDict(kept | _stage_data(rows))


def _read(form: forms.Form, names: Iterable[str]) -> dict[str, Any]:
    form.is_valid()
    values = {name: form.cleaned_data[name] for name in names if name in form.cleaned_data}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _stage_data(rows: list[dict[str, list[str]]]) -> dict[str, list[str]]:
    data = {"stages-TOTAL_FORMS": [str(len(rows))], "stages-INITIAL_FORMS": ["0"]}
    for position, row in enumerate(rows):
        data |= {f"stages-{position}-{name}": values for name, values in row.items()}
    return data


def typed(content: RequestContent, **more: object) -> MultiValueDict[str, Any]:
    """Write content as if a person had typed it into the form."""
    values = {name: getattr(content, name) for name in FIELDS} | more
    data = {name: ["" if value is None else str(value)] for name, value in values.items()}
    return MultiValueDict(data | _stage_data([_typed_stage(stage) for stage in content.stages]))


def _typed_stage(stage: StageContent) -> dict[str, list[str]]:
    row = {name: [written(name, getattr(stage, name))] for name in STAGE_FIELDS}
    return row | {"services": list(stage.services)}


class ReasonForm(forms.Form):
    """A move, its reason, and the version that the person has seen."""

    reason = forms.CharField(required=False, strip=True, widget=forms.Textarea(attrs={"rows": 3}))
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, reason_needed: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].label = "Reason" if reason_needed else "Reason, if there is something to say"
        self.fields["reason"].help_text = "All who see the request read it in its timeline."


class PriorityForm(ReasonForm):
    """A number for the queue, with its reason."""

    priority = forms.IntegerField(
        min_value=0, max_value=MAX_PRIORITY, help_text=f"0 to {MAX_PRIORITY:,}; the higher, the sooner."
    )
    field_order = ("priority", "reason")


def add_problems(form: forms.Form, problems: Mapping[str, list[str]]) -> None:
    """Put problems found by a service beside the fields of a plain form."""
    for name, messages in problems.items():
        for message in messages:
            form.add_error(name if name in form.fields else None, message)
