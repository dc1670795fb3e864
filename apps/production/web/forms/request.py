"""The request form.

It holds the fields, the formset of stages, and the conversion to content.
"""

import re
from collections.abc import Container, Iterable, Mapping
from functools import cached_property
from typing import Any

from django import forms
from django.db.models import Q
from django.forms import BaseFormSet, formset_factory
from django.utils.datastructures import MultiValueDict

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.production.domain.content.model import (
    FIELDS,
    MAX_STAGES,
    RequestContent,
    StageContent,
    values_of,
)
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.types.arguments import Argument, Value
from apps.production.domain.types.declaration import StageType, Workflow, general_workflow
from apps.production.domain.types.faults import Problems
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.domain.types.versions import newest_version, visible_types, workflow_of
from apps.production.web.forms.fields import FieldPlace, TickedForm, make_form_field
from apps.production.web.forms.shared import NONE, Row, SharedForm, gather, own_or_shared
from apps.statusboard.models import Service

TOO_MANY = f"A request has at most {MAX_STAGES} stages. Split it into several requests."
BROKEN = "The stages of this form are invalid. Nothing was saved. Reload the page."
#: The most rows to read from a form that claims to have more.
READ_AT_MOST = 2 * MAX_STAGES
#: Fields of a stage that are always visible, as a row of the table of stages.
FIRST = ("name", "configuration", "output_dataset", "jobs")
#: Fields of all stages that are shown in one table, next to the resource use of past jobs.
RESOURCES = ("memory_bytes", "wall_seconds")
RETRY_BOUNDS = ("retry_memory_bytes", "retry_wall_seconds")
#: Fields of a stage that few change, folded once more unless its type requires them.
RARE = (*RETRY_BOUNDS, "output_event_bytes")


class RequestForm(forms.Form):
    """A request without its stages. No field is required, because a draft may be incomplete."""

    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)
    field_order = (
        "title",
        "purpose",
        "experiment",
        "workflow",
        "campaign",
        "deadline",
        "requested_priority",
        "priority_reason",
    )

    def __init__(self, *args: Any, workflow: Workflow, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.type = workflow
        for argument in (*REQUEST.values(), *workflow.arguments):
            self.fields[argument.name] = make_form_field(argument)
        self.fields["purpose"].widget.attrs["rows"] = 2
        # The parameter scan, which few requests have, comes last.
        self.fields["scan"] = self.fields.pop("scan")
        self.order_fields(self.field_order)


class DraftForm(RequestForm):
    """A request form with experiment and type, which can be changed until submission."""

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

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        experiments = writable_experiments(user)
        self.fields["experiment"].queryset = experiments  # type: ignore[attr-defined]
        types = dict(workflow_choices(user))
        types.setdefault(self.type.key, self.type.title)
        self.fields["workflow"].choices = list(types.items())  # type: ignore[attr-defined]


def writable_experiments(user: User) -> Any:
    """Return the experiments for which the user is a liaison."""
    scope = scope_of(user)
    if scope.has(Role.LIAISON):
        return Experiment.objects.all()
    own = [pk for role, pk in scope.roles if role == Role.LIAISON and pk is not None]
    return Experiment.objects.filter(pk__in=own)


def workflow_choices(user: User) -> list[tuple[str, str]]:
    """Return (key, title) of each workflow type that the user can choose for new requests.

    The general type comes first.
    """
    types = visible_types(user).filter(
        Q(experiment=None) | Q(experiment__in=writable_experiments(user))
    )
    return sorted(
        types.values_list("key", "title"), key=lambda pair: (pair[0] != "general", pair[1])
    )


def chosen_workflow(user: User, key: str, current: Workflow | None = None) -> Workflow:
    """Return the newest version of the workflow type with this key.

    If the user cannot choose that type, return `current`, or the general type without one.
    """
    if current is not None and key == current.key:
        return current
    version = None
    if key in dict(workflow_choices(user)):
        version = newest_version(key)
    return workflow_of(version) if version else current or general_workflow()


def is_marked(field: forms.BoundField) -> bool:
    """Whether a field has advice or an open discussion thread."""
    return bool(getattr(field.field, "advice", ())) or getattr(field.field, "is_discussed", False)


def _is_faulty(field: forms.BoundField) -> bool:
    return bool(field.errors) or is_marked(field)


class StageForm(TickedForm):
    """A stage, with the arguments of its kind.

    An empty shared argument takes the value of all stages.
    """

    kind = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)

    def __init__(
        self, *args: Any, workflow: Workflow, services: list[tuple[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.workflow = workflow
        self.type = workflow.stage(self.data.get(self.add_prefix("kind"), ""))
        #: The step of the stage in the form's navigation, with its number of errors and empty
        #: fields.
        self.unfolds = False
        #: The step of the stage in the form's navigation, which shows its number of problems.
        self.step: Any = None
        own = [(NONE, "None"), *services]
        for argument in self.type.arguments:
            self.fields[argument.name] = make_form_field(
                argument, own if argument.shared else services
            )

    def title(self) -> str:
        """Return the name to show while the stage has none."""
        return self.type.title if len(self.workflow.stages) > 1 else "unnamed"

    def first_fields(self) -> list[forms.BoundField]:
        """Return the fields of its row in the table of stages."""
        return [field for field in self.visible_fields() if field.name in FIRST]

    def more_fields(self) -> list[forms.BoundField]:
        """Return the folded fields, without shared fields, resources and rare fields."""
        apart = (*FIRST, *RESOURCES, "services")
        more = []
        for field in self.visible_fields():
            if not (field.name in apart or self._is_shared(field) or self._is_rare(field)):
                more.append(field)
        return more

    def rare_fields(self) -> list[forms.BoundField]:
        """Return the fields that few change."""
        return [field for field in self.visible_fields() if self._is_rare(field)]

    def rare_text(self) -> str:
        """Return the values of the rare fields as one line."""
        values = []
        for field in self.rare_fields():
            if field.value():
                values.append(str(field.value()))
        return " · ".join(values)

    def unfolds_rare(self) -> bool:
        """Whether a rare field is invalid, or has advice or an open discussion."""
        return any(_is_faulty(field) for field in self.rare_fields())

    def _is_rare(self, field: forms.BoundField) -> bool:
        is_apart = self._is_shared(field) or self._is_required(field)
        return field.name in RARE and not is_apart

    def resource_fields(self) -> list[forms.BoundField]:
        """Return the fields for the table of resources."""
        return [self[name] for name in RESOURCES if name in self.fields]

    def more_text(self) -> str:
        """Return the values of the folded fields as one line."""
        values = []
        for field in self.more_fields():
            if field.value():
                values.append(str(field.value()))
        return " · ".join(values)

    def has_gaps(self) -> bool:
        """Whether a required field is empty among those that are folded."""
        return any(self._is_required(field) and not field.value() for field in self.more_fields())

    def needs_attention(self) -> bool:
        """Whether a folded field is invalid, or has advice or an open discussion."""
        in_row = (*FIRST, *RESOURCES)
        return any(_is_faulty(field) for field in self.visible_fields() if field.name not in in_row)

    def unfolds_shared(self) -> bool:
        """Whether a shared field of this stage is invalid, or has advice or an open discussion."""
        return any(_is_faulty(field) for field in self.visible_fields() if self._is_shared(field))

    def shared_fields(self) -> list[forms.BoundField]:
        """Return the shared fields that this stage can override, except services."""
        shared = []
        for field in self.visible_fields():
            if self._is_shared(field) and field.name != "services":
                shared.append(field)
        return shared

    def has_shared(self) -> bool:
        """Whether this stage has an argument that all stages share."""
        return any(argument.shared for argument in self.type.arguments)

    def own_labels(self) -> str:
        """Return the labels of the shared fields that this stage overrides, as one line."""
        labels = []
        for field in self.visible_fields():
            if self._is_shared(field) and field.value():
                labels.append(str(field.label))
        return ", ".join(labels)

    def has_own_services(self) -> bool:
        return "services" in self.fields and not self._is_shared(self["services"])

    def differs(self) -> bool:
        """Whether the stage overrides a shared value, or a shared field has an error or comment."""
        shared = (field for field in self.visible_fields() if self._is_shared(field))
        return any(field.value() or field.errors or is_marked(field) for field in shared)

    def _is_required(self, field: forms.BoundField) -> bool:
        argument = self.type.argument(field.name)
        return argument is not None and argument.required

    def _is_shared(self, field: forms.BoundField) -> bool:
        argument = self.type.argument(field.name)
        return argument is not None and argument.shared


StageFormSet = formset_factory(
    StageForm, extra=0, max_num=MAX_STAGES, absolute_max=READ_AT_MOST, validate_max=True
)


class RequestForms:
    """The request form and its stage forms as one form.

    It is always bound to the input, so that no input is lost.
    """

    def __init__(
        self, data: MultiValueDict[str, Any], *, workflow: Workflow, draft_of: User | None = None
    ) -> None:
        self.data = data
        self.workflow = workflow
        services = list(Service.objects.values_list("slug", "name"))
        if draft_of is None:
            self.main = RequestForm(data, workflow=workflow)
        else:
            self.main = DraftForm(data, workflow=workflow, user=draft_of)
        self.stages: BaseFormSet[StageForm] = StageFormSet(
            data,
            prefix="stages",
            form_kwargs={"services": services, "workflow": workflow},
            error_messages={"too_many_forms": TOO_MANY},
        )
        self.shared = SharedForm(data, workflow=workflow, services=services)
        management = self.stages.management_form
        self.is_damaged = (
            not management.is_valid() or (management.cleaned_data["TOTAL_FORMS"] or 0) < 0
        )
        self.loose: list[str] = [BROKEN] if self.is_damaged else []
        self.shared.is_valid()
        shared = self.shared.cleaned_data
        stages = []
        for form in self.stages.forms:
            stages.append(
                {"kind": form.type.key, **_read_input(form, CORE, form.type.arguments, shared)}
            )
        whole = {
            **_read_input(self.main, REQUEST, (*REQUEST.values(), *workflow.arguments), {}),
            "stages": stages,
        }
        #: The content of the form, without values that cannot be read.
        self.content, problems = read_plain(whole, workflow)
        self.add_problems(problems)
        #: Why values cannot be read, by path.
        self.unreadable = self.errors()

    def errors(self) -> Problems:
        """Return all errors by path, in the order of the form. Errors of all stages come last."""
        errors: Problems = {}
        stages = ((f"stages.{position}.", form) for position, form in enumerate(self.stages.forms))
        for prefix, form in [("", self.main), ("shared.", self.shared), *stages]:
            for name in form.fields:
                if name in form.errors:
                    errors[f"{prefix}{name}"] = [str(message) for message in form.errors[name]]
        general = [*self.loose, *([] if self.is_damaged else self.stages.non_form_errors())]
        if not general:
            return errors
        return errors | {"stages": [str(message) for message in general]}

    def anchors(self) -> list[str]:
        """Return the anchors of all fields in the order of the form, then of the stages."""
        anchors = []
        for form in self._places:
            anchors += [form[name].auto_id for name in form.fields]
        whole_stages = [f"stage-{number}" for number in range(1, len(self.stages.forms) + 1)]
        return [*anchors, *whole_stages, "stages"]

    @cached_property
    def _places(self) -> dict[forms.Form, str]:
        """The prefix of the field labels of each form, in the order of the page."""
        places: dict[forms.Form, str] = {self.main: "", self.shared: "All stages · "}
        for number, form in enumerate(self.stages.forms, start=1):
            places[form] = f"Stage {number} · "
        return places

    def is_valid(self) -> bool:
        return (
            self.main.is_valid()
            and self.shared.is_valid()
            and self.stages.is_valid()
            and not self.is_damaged
        )

    def add_problems(self, problems: Problems) -> None:
        """Add problems to their fields, without duplicates."""
        for path, messages in problems.items():
            form, name = self._field(path)
            if form is None:
                self.loose += [message for message in messages if message not in self.loose]
            elif new := [
                message for message in messages if message not in form.errors.get(name, ())
            ]:
                form.add_error(name, new)

    def unfold(self, focus: int | None = None) -> None:
        """Unfold the stages that need attention.

        Of the stages that only lack values, the first one and that at position `focus` are
        unfolded.
        """
        first_gap = next((form for form in self.stages.forms if form.has_gaps()), None)
        for position, form in enumerate(self.stages.forms):
            lacks_values = form is first_gap or (position == focus and form.has_gaps())
            is_only = len(self.stages.forms) == 1
            form.unfolds = lacks_values or is_only or form.needs_attention()

    def find_place(self, path: str) -> FieldPlace:
        """Return the place of the field or the stage at a path, or of all the stages."""
        whole_stage = re.fullmatch(r"stages\.(\d+)", path)
        if whole_stage and int(whole_stage[1]) < len(self.stages.forms):
            number = int(whole_stage[1]) + 1
            return FieldPlace(f"stage-{number}", f"Stage {number}")
        form, name = self._field(path)
        if form is None or name not in form.fields:
            return FieldPlace("stages", "Stages" if path.startswith("stages") else "Request")
        return FieldPlace(form[name].auto_id, f"{self._places[form]}{form[name].label}")

    def is_empty(self, path: str) -> bool:
        """Whether a path belongs to a field without input."""
        form, name = self._field(path)
        return form is not None and name in form.fields and not form[name].value()

    def add_advice(self, path: str, message: str) -> None:
        """Show a warning next to a field. It does not make the form invalid."""
        form, name = self._field(path)
        if form is not None and name in form.fields:
            field: Any = form.fields[name]
            field.advice = list(dict.fromkeys([*getattr(field, "advice", ()), message]))

    def mark(self, path: str) -> None:
        """Keep a field of a stage visible because it has comments."""
        parts = path.split(".")
        if not path.startswith("stages.") or len(parts) <= 2:
            return
        form = self.stages.forms[int(parts[1])]
        if parts[-1] in form.fields:
            form.fields[parts[-1]].is_discussed = True  # type: ignore[attr-defined]

    def _field(self, path: str) -> tuple[forms.Form | None, str]:
        parts = [part for part in path.split(".") if part != "arguments"]
        if len(parts) == 1:
            path = parts[0]
            return (self.main, path) if path in self.main.fields else (None, path)
        if parts[0] == "shared":
            return self.shared, parts[1]
        if len(parts) == 2:
            return None, parts[1]
        position = int(parts[1])
        name = parts[2]
        form = None
        if position < len(self.stages.forms):
            form = self.stages.forms[position]
        if form is None or name not in form.fields:
            return None, name
        argument = form.type.argument(name)
        follows = argument is not None and argument.shared and not form[name].value()
        return (self.shared if follows else form), name

    def switched(
        self, untouched: Iterable[RequestContent], new_content: RequestContent
    ) -> MultiValueDict[str, Any]:
        """Return the input converted to this form's type.

        `new_content` is the content of a new request of this type; `untouched` are contents of new
        requests of the previous type. Stages that equal an untouched request are replaced by those
        of `new_content`; others are kept.
        """
        rows = self.rows()
        shared, new = gather(_typed_stages(new_content), self.workflow)
        if self.has_stages_of(untouched):
            rows = new
        for row in rows:
            row["kind"] = [self.workflow.stage("".join(row.get("kind", []))).key]
        data = self.with_rows(rows, defaults=_typed_arguments(new_content) | shared)
        data["shown_workflow"] = self.workflow.key
        return data

    def has_stages_of(self, contents: Iterable[RequestContent]) -> bool:
        """Return whether the stages have the same input as those of one of these requests."""
        rows = [_without_empty(row) for row in self.rows()]
        for content in contents:
            _, stages = gather(_typed_stages(content), content.workflow)
            if rows == [_without_empty(row) for row in stages]:
                return True
        return False

    def next_kind(self) -> str:
        """Return the kind of stage that probably follows: that declared after the last one's."""
        kinds = [kind.key for kind in self.workflow.stages]
        if not self.stages.forms:
            return kinds[0]
        after_last = kinds.index(self.stages.forms[-1].type.key) + 1
        return kinds[min(after_last, len(kinds) - 1)]

    def rows(self) -> list[Row]:
        """Return the input of each stage."""
        rows: list[Row] = [{} for _ in range(self.stages.total_form_count())]
        for key in self.data:
            match = re.fullmatch(r"stages-([0-9]{1,3})-([a-z0-9_]+)", key)
            if match and int(match[1]) < len(rows):
                rows[int(match[1])][match[2]] = self.data.getlist(key)
        return rows

    def with_rows(
        self, rows: list[Row], *, defaults: Row | None = None, changed: Row | None = None
    ) -> MultiValueDict[str, Any]:
        """Return the input with these stages, `defaults` for missing and `changed` other fields."""
        kept = {
            name: values for name, values in self.data.lists() if not name.startswith("stages-")
        }
        return MultiValueDict((defaults or {}) | kept | (changed or {}) | _stage_data(rows))


def _read_input(
    form: forms.Form, own: Container[str], arguments: Iterable[Argument], shared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the non-empty input as plain data, with shared values filled in.

    Fields that are not in `own` become arguments.
    """
    form.is_valid()
    values: dict[str, Any] = {}
    for argument in arguments:
        value = form.cleaned_data.get(argument.name, "")
        if argument.shared:
            value = own_or_shared(value, shared.get(argument.name, ""))
        # Browsers send lines with CR LF, which would look like a change.
        if isinstance(value, str):
            values[argument.name] = value.replace("\r\n", "\n")
        else:
            values[argument.name] = value

    own_values: dict[str, Any] = {}
    other_values: dict[str, Any] = {}
    for name, value in values.items():
        if value in ("", []):
            continue
        if name in own:
            own_values[name] = value
        else:
            other_values[name] = value
    return {**own_values, "arguments": other_values}


def _without_empty(row: Row) -> Row:
    return {name: values for name, values in row.items() if any(values)}


def _stage_data(rows: list[Row]) -> Row:
    data = {"stages-TOTAL_FORMS": [str(len(rows))], "stages-INITIAL_FORMS": ["0"]}
    for position, row in enumerate(rows):
        data |= {f"stages-{position}-{name}": values for name, values in row.items()}
    return data


def typed(content: RequestContent, **more: object) -> MultiValueDict[str, Any]:
    """Return content as form input."""
    types = {"workflow": content.workflow.key, "shown_workflow": content.workflow.key}
    values = values_of(content, FIELDS) | types | more
    data = {name: ["" if value is None else str(value)] for name, value in values.items()}
    shared, rows = gather(_typed_stages(content), content.workflow)
    return MultiValueDict(data | _typed_arguments(content) | shared | _stage_data(rows))


def _typed_arguments(content: RequestContent) -> Row:
    return {a.name: [a.write(content.arguments.get(a.name))] for a in content.workflow.arguments}


def _typed_stages(content: RequestContent) -> list[Row]:
    return [typed_stage(stage, content.workflow.stage(stage.kind)) for stage in content.stages]


def typed_stage(stage: StageContent, kind: StageType) -> Row:
    """Return a stage as form input."""
    row = {}
    for a in kind.arguments:
        if a.name != "services":
            row[a.name] = [a.write(stage.value(a.name))]
    return row | {"kind": [stage.kind], "services": list(stage.services)}


def blank(workflow: Workflow) -> RequestContent:
    """Return a new request of this type, with its initial stages and all defaults."""
    stages = tuple(blank_stage(workflow, workflow.stage(key)) for key in workflow.begins_with)
    return RequestContent(workflow=workflow, arguments=_defaults(workflow.arguments), stages=stages)


def blank_stage(workflow: Workflow, kind: StageType) -> StageContent:
    """Return a stage with its defaults, named after its kind if the type has several kinds."""
    defaults = _defaults(kind.arguments)
    own: dict[str, Any] = {name: defaults.pop(name) for name in list(defaults) if name in CORE}
    name = {} if len(workflow.stages) == 1 else {"name": kind.key}
    return StageContent(kind=kind.key, arguments=defaults, **{**name, **own})


def _defaults(arguments: Iterable[Argument]) -> dict[str, Value]:
    defaults = {}
    for argument in arguments:
        if argument.default is not None:
            defaults[argument.name] = argument.default
    return defaults
