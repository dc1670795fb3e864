"""The request form: fields, the formset of stages, moving rows without JavaScript, and conversion to content."""

import re
from collections.abc import Container, Iterable
from typing import Any

from django import forms
from django.db.models import Q
from django.forms import BaseFormSet, formset_factory
from django.utils.datastructures import MultiValueDict

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.production.domain.content.model import FIELDS, MAX_STAGES, RequestContent, StageContent
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.types.arguments import Argument, Value
from apps.production.domain.types.declaration import StageType, Workflow, general
from apps.production.domain.types.faults import Problems
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.domain.types.versions import newest_version, visible_types, workflow_of
from apps.statusboard.models import Service

TOO_MANY = f"A request has at most {MAX_STAGES} stages. Split it into several requests."
BROKEN = "The stages of this form are invalid. Nothing was saved. Reload the page."
#: Rows read of a form that claims to have more.
READ_AT_MOST = 2 * MAX_STAGES


def field_of(argument: Argument, services: Iterable[tuple[str, str]] = ()) -> forms.Field:
    """Return the form field of an argument; `read_plain` parses and checks its text."""
    words: dict[str, Any] = {"required": False, "label": argument.title, "help_text": argument.help}
    own = argument is REQUEST.get(argument.name) or argument.name in CORE
    match argument.kind.widget:
        case "services":
            unknown = {"invalid_choice": "Service “%(value)s” does not exist."}
            return forms.MultipleChoiceField(choices=list(services), error_messages=unknown, **words)
        case "choice":
            none = [] if own else [("", "–")]
            return forms.ChoiceField(choices=[*none, *((choice, choice) for choice in argument.choices)], **words)
        case "yes_no":
            return forms.ChoiceField(choices=[("", "–"), ("yes", "Yes"), ("no", "No")], **words)
        case "lines":
            widget: forms.Widget = forms.Textarea(attrs={"rows": 3})
        case "date":
            widget = forms.DateInput(attrs={"type": "date"})
        case _:
            widget = forms.TextInput()
    if not (own and argument.kind.is_text):
        widget.attrs["autocomplete"] = "off"
    return forms.CharField(widget=widget, **words)


class RequestForm(forms.Form):
    """A request without its stages. No field is required: a draft may be incomplete."""

    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, workflow: Workflow, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.type = workflow
        self.fields.update({a.name: field_of(a) for a in (*REQUEST.values(), *workflow.arguments)})


class DraftForm(RequestForm):
    """With experiment and type, which can be chosen until the request is submitted."""

    experiment = forms.ModelChoiceField(
        queryset=Experiment.objects.none(),
        to_field_name="key",
        empty_label=None,
        help_text="Fixed once submitted. The number of the request changes with it.",
    )
    workflow = forms.ChoiceField(
        required=False,
        label="Workflow type",
        help_text="Decides fields and stages. Fixed once submitted.",
    )
    form_key = forms.CharField(required=False, widget=forms.HiddenInput)
    shown_workflow = forms.CharField(required=False, widget=forms.HiddenInput)
    field_order = ("experiment", "workflow", "title")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["experiment"].queryset = writable_experiments(user)  # type: ignore[attr-defined]
        types = dict(workflow_choices(user))
        types.setdefault(self.type.key, self.type.title)
        self.fields["workflow"].choices = list(types.items())  # type: ignore[attr-defined]
        self.order_fields(self.field_order)


def writable_experiments(user: User) -> Any:
    """Return the experiments for which the user is a liaison."""
    scope = scope_of(user)
    if scope.has(Role.LIAISON):
        return Experiment.objects.all()
    own = [pk for role, pk in scope.roles if role == Role.LIAISON and pk is not None]
    return Experiment.objects.filter(pk__in=own)


def workflow_choices(user: User) -> list[tuple[str, str]]:
    """Return key and title of the workflow types for the user's new requests, the general one first."""
    types = visible_types(user).filter(Q(experiment=None) | Q(experiment__in=writable_experiments(user)))
    return sorted(types.values_list("key", "title"), key=lambda pair: (pair[0] != "general", pair[1]))


def chosen_workflow(user: User, key: str, current: Workflow | None = None) -> Workflow:
    """Return the newest version of the type of this key; the current or general one if the user cannot choose it."""
    if current is not None and key == current.key:
        return current
    version = newest_version(key) if key in dict(workflow_choices(user)) else None
    return workflow_of(version) if version else current or general()


class StageForm(forms.Form):
    """A stage, with the arguments of its kind."""

    kind = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)

    def __init__(self, *args: Any, workflow: Workflow, services: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.type = workflow.stage(self.data.get(self.add_prefix("kind"), ""))
        self.fields.update({argument.name: field_of(argument, services) for argument in self.type.arguments})

    def ticks(self) -> list[tuple[str, str, bool]]:
        """Return slug, name and whether ticked for each service."""
        chosen = set(self["services"].value() or [])
        return [(slug, name, slug in chosen) for slug, name in self.fields["services"].choices]  # type: ignore[attr-defined]


StageFormSet = formset_factory(StageForm, extra=0, max_num=MAX_STAGES, absolute_max=READ_AT_MOST, validate_max=True)


class RequestForms:
    """Request form and stage forms as one, always bound to the input, so that no input is lost."""

    def __init__(self, data: MultiValueDict[str, Any], *, workflow: Workflow, draft_of: User | None = None) -> None:
        self.data = data
        self.workflow = workflow
        services = list(Service.objects.values_list("slug", "name"))
        self.main = (
            RequestForm(data, workflow=workflow)
            if draft_of is None
            else DraftForm(data, workflow=workflow, user=draft_of)
        )
        self.stages: BaseFormSet[StageForm] = StageFormSet(
            data,
            prefix="stages",
            form_kwargs={"services": services, "workflow": workflow},
            error_messages={"too_many_forms": TOO_MANY},
        )
        management = self.stages.management_form
        self.is_damaged = not management.is_valid() or (management.cleaned_data["TOTAL_FORMS"] or 0) < 0
        self.loose: list[str] = [BROKEN] if self.is_damaged else []
        stages = [{"kind": form.type.key, **_typed_in(form, CORE, form.type.arguments)} for form in self.stages.forms]
        whole = {**_typed_in(self.main, REQUEST, (*REQUEST.values(), *workflow.arguments)), "stages": stages}
        #: The input without unreadable values, and why these cannot be read, by path.
        self.content, self.unreadable = read_plain(whole, workflow)
        self.add_problems(self.unreadable)

    def problems(self) -> list[tuple[str, str, str]]:
        """Return every problem as anchor, label and message, in the order of the form."""
        found = [
            (form[name].auto_id, f"{place}{form[name].label}", str(message))
            for place, form in self._places()
            for name in form.fields
            for message in form.errors.get(name, ())
        ]
        general = [*self.loose, *([] if self.is_damaged else self.stages.non_form_errors())]
        return found + [("stages", "Stages", str(message)) for message in general]

    def _places(self) -> list[tuple[str, forms.Form]]:
        return [("", self.main), *((f"Stage {i} · ", form) for i, form in enumerate(self.stages.forms, start=1))]

    def is_valid(self) -> bool:
        return self.main.is_valid() and self.stages.is_valid() and not self.is_damaged

    def add_problems(self, problems: Problems) -> None:
        """Add problems to their fields, except to fields that already have some."""
        marked = {(id(form), name) for _, form in self._places() for name in form.errors}
        for path, messages in problems.items():
            form, name = self._field(path)
            if form is None:
                self.loose += [message for message in messages if message not in self.loose]
            elif (id(form), name) not in marked:
                form.add_error(name, messages)

    def place_of(self, path: str) -> tuple[str, str]:
        """Return anchor and label of a path; those of the stages if there is no field."""
        form, name = self._field(path)
        words = next((place for place, one in self._places() if one is form), "")
        if form is None or name not in form.fields:
            return "stages", "Stages" if path.startswith("stages") else "Request"
        return form[name].auto_id, f"{words}{form[name].label}"

    def add_advice(self, path: str, message: str) -> None:
        """Show a warning beside its field; it does not make the form invalid."""
        form, name = self._field(path)
        if form is not None and name in form.fields:
            field: Any = form.fields[name]
            field.advice = [*getattr(field, "advice", ()), message]

    def _field(self, path: str) -> tuple[forms.Form | None, str]:
        parts = [part for part in path.split(".") if part != "arguments"]
        if len(parts) == 1:
            path = parts[0]
            return (self.main, path) if path in self.main.fields else (None, path)
        position, name = int(parts[1]), parts[2]
        form = self.stages.forms[position] if position < len(self.stages.forms) else None
        return (form, name) if form is not None and name in form.fields else (None, name)

    def switched(self, before: Workflow) -> MultiValueDict[str, Any]:
        """Return the input under this type; stages that were filled in under the type before are kept."""
        begun, old = blank(self.workflow), _typed_stages(blank(before))
        rows = self._rows()
        if [_filled(row) for row in rows] == [_filled(row) for row in old]:
            rows = _typed_stages(begun)
        for row in rows:
            row["kind"] = [self.workflow.stage("".join(row.get("kind", []))).key]
        data = self._with(_typed_arguments(begun), rows)
        data["shown_workflow"] = self.workflow.key
        return data

    def move_rows(self, action: str) -> tuple[MultiValueDict[str, Any], int | None] | None:
        """Return the input after `add`, `remove-2`, `up-2`, `down-2` (rows from 0), and the row to focus.

        None for any other action or a damaged form.
        """
        verb, _, place = action.partition("-")
        if self.is_damaged or verb not in {"add", "remove", "up", "down"}:
            return None
        rows, focus = self._rows(), None
        position = int(place) if re.fullmatch(r"[0-9]{1,3}", place) else -1
        to = position + {"up": -1, "down": 1}.get(verb, 0)
        if verb == "add" and len(rows) < MAX_STAGES:
            kind = self.workflow.stage(self.data.get("add_kind", ""))
            rows.append(_typed_stage(_blank_stage(self.workflow, kind), kind))
            focus = len(rows) - 1
        elif verb == "remove" and 0 <= position < len(rows):
            del rows[position]
        elif to != position and 0 <= min(to, position) <= max(to, position) < len(rows):
            rows.insert(to, rows.pop(position))
            focus = to
        return self._with({}, rows), focus

    def _rows(self) -> list[dict[str, list[str]]]:
        rows: list[dict[str, list[str]]] = [{} for _ in range(self.stages.total_form_count())]
        for key in self.data:
            found = re.fullmatch(r"stages-([0-9]{1,3})-([a-z0-9_]+)", key)
            if found and int(found[1]) < len(rows):
                rows[int(found[1])][found[2]] = self.data.getlist(key)
        return rows

    def _with(self, new: dict[str, list[str]], rows: list[dict[str, list[str]]]) -> MultiValueDict[str, Any]:
        """Return the input with these stages, and with `new` values for missing fields."""
        kept = {name: values for name, values in self.data.lists() if not name.startswith("stages-")}
        return MultiValueDict(new | kept | _stage_data(rows))


def _typed_in(form: forms.Form, own: Container[str], arguments: Iterable[Argument]) -> dict[str, Any]:
    """Return the non-empty input as plain data; fields not in `own` are arguments."""
    form.is_valid()
    values: dict[str, Any] = {}
    for argument in arguments:
        value = form.cleaned_data.get(argument.name, "")
        # Browsers send lines with CR LF, which would look like a change.
        values[argument.name] = value.replace("\r\n", "\n") if isinstance(value, str) else value
    given = {name: value for name, value in values.items() if value not in ("", [])}
    others = {name: value for name, value in given.items() if name not in own}
    return {**{name: value for name, value in given.items() if name in own}, "arguments": others}


def _filled(row: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: values for name, values in row.items() if any(values)}


def _stage_data(rows: list[dict[str, list[str]]]) -> dict[str, list[str]]:
    data = {"stages-TOTAL_FORMS": [str(len(rows))], "stages-INITIAL_FORMS": ["0"]}
    for position, row in enumerate(rows):
        data |= {f"stages-{position}-{name}": values for name, values in row.items()}
    return data


def typed(content: RequestContent, **more: object) -> MultiValueDict[str, Any]:
    """Return content as form input."""
    types = {"workflow": content.workflow.key, "shown_workflow": content.workflow.key}
    values = {name: getattr(content, name) for name in FIELDS} | types | more
    data = {name: ["" if value is None else str(value)] for name, value in values.items()}
    return MultiValueDict(data | _typed_arguments(content) | _stage_data(_typed_stages(content)))


def _typed_arguments(content: RequestContent) -> dict[str, list[str]]:
    return {a.name: [a.write(content.arguments.get(a.name))] for a in content.workflow.arguments}


def _typed_stages(content: RequestContent) -> list[dict[str, list[str]]]:
    return [_typed_stage(stage, content.workflow.stage(stage.kind)) for stage in content.stages]


def _typed_stage(stage: StageContent, kind: StageType) -> dict[str, list[str]]:
    row = {a.name: [a.write(stage.value(a.name))] for a in kind.arguments if a.name != "services"}
    return row | {"kind": [stage.kind], "services": list(stage.services)}


def blank(workflow: Workflow) -> RequestContent:
    """Return a new request of this type: its initial stages and all defaults."""
    stages = tuple(_blank_stage(workflow, workflow.stage(key)) for key in workflow.begins_with)
    return RequestContent(workflow=workflow, arguments=_defaults(workflow.arguments), stages=stages)


def _blank_stage(workflow: Workflow, kind: StageType) -> StageContent:
    """Return a stage with its defaults, named by its kind if the type has several."""
    defaults = _defaults(kind.arguments)
    own: dict[str, Any] = {name: defaults.pop(name) for name in list(defaults) if name in CORE}
    name = {} if len(workflow.stages) == 1 else {"name": kind.key}
    return StageContent(kind=kind.key, arguments=defaults, **{**name, **own})


def _defaults(arguments: Iterable[Argument]) -> dict[str, Value]:
    return {argument.name: argument.default for argument in arguments if argument.default is not None}
