"""Errors of forms: each names its field and says what to do."""

from typing import Any

from django import forms
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.validators import BaseValidator
from django.forms import BoundField
from django.utils.text import capfirst

from apps.core.web.quantity_field import QuantityField
from apps.core.web.text_fields import JsonText

#: By kind of field, the more general ones first. `{field}` is the label of the field.
_TEXTS: tuple[tuple[type[forms.Field], dict[str, str]], ...] = (
    (
        forms.Field,
        {
            "required": "“{field}” is required: enter a value.",
            "max_length": "Shorten “{field}” to %(limit_value)d characters: it has %(show_value)d.",
            "min_value": "Enter %(limit_value)s or more for “{field}”.",
            "max_value": "Enter %(limit_value)s or less for “{field}”.",
            "null_characters_not_allowed": "Remove the NUL characters from “{field}”.",
        },
    ),
    (
        forms.ChoiceField,
        {
            "required": "“{field}” is required: choose a value.",
            "invalid_choice": (
                "“%(value)s” is not a choice for “{field}”: choose one from the list."
            ),
        },
    ),
    (
        forms.ModelChoiceField,
        {
            "required": "“{field}” is required: choose a value.",
            "invalid_choice": "Choose again for “{field}”: that record does not exist any more.",
            "invalid_pk_value": "Choose again for “{field}”: that record does not exist any more.",
        },
    ),
    (
        forms.SlugField,
        {"invalid": "Use only letters, digits, hyphens and underscores in “{field}”."},
    ),
    (forms.URLField, {"invalid": "Enter an address for “{field}” that starts with https://."}),
    (forms.EmailField, {"invalid": "Enter an address such as ann@example.org for “{field}”."}),
    (forms.IntegerField, {"invalid": "Enter a whole number for “{field}”."}),
    (
        QuantityField,
        {
            "min_value": "Enter a larger value for “{field}”.",
            "max_value": "Enter a smaller value for “{field}”.",
        },
    ),
    (forms.FloatField, {"invalid": "Enter a number for “{field}”."}),
    (forms.DecimalField, {"invalid": "Enter a number for “{field}”."}),
    (forms.DateField, {"invalid": "Enter a date such as 2026-11-30 for “{field}”."}),
    (forms.TimeField, {"invalid": "Enter a time such as 14:30 for “{field}”."}),
    (SimpleArrayField, {"item_invalid": "Value %(nth)s:"}),
)


def label_of(form_field: forms.Field, name: str) -> str:
    """Return the label of a field, as its form shows it."""
    return str(form_field.label or capfirst(name.replace("_", " ")))


def name_field_in_errors(form_field: forms.Field, name: str, record_name: str = "record") -> None:
    """Replace Django's general messages by ones that name the field; the form's own stay."""
    label = label_of(form_field, name)
    texts = {"unique": f"Another {record_name} has this “{label}”: enter a different one."}
    for kind, messages in _TEXTS:
        if isinstance(form_field, kind):
            for code, text in messages.items():
                texts[code] = text.replace("{field}", label.replace("%", "%%"))

    defaults = _default_messages(type(form_field))
    limited = _codes_of_own_limits(form_field)
    for code, text in texts.items():
        if form_field.error_messages.get(code) == defaults.get(code) and code not in limited:
            form_field.error_messages[code] = text

    if isinstance(form_field, JsonText | QuantityField):
        form_field.start_of_errors = f"“{label}”: "

    for part in _parts_of(form_field):
        part.label = label
        name_field_in_errors(part, name)


class NamedField(BoundField):
    """A field of a form whose errors name it. Forms make it before they check their values."""

    def __init__(self, form: forms.BaseForm, field: forms.Field, name: str) -> None:
        super().__init__(form, field, name)
        if form.is_bound:  # a form with hundreds of fields is mostly shown without errors
            name_field_in_errors(field, name)


def name_duplicates(form: Any, record_name: str) -> None:
    """Say what is the same in another record; a message of the form itself stays."""
    texts = dict(form._meta.error_messages or {})
    of_form = dict(texts.get(NON_FIELD_ERRORS, {}))
    text = f"Another {record_name} has the same %(field_labels)s: change one of them."
    of_form.setdefault("unique_together", text)
    form._meta.error_messages = {**texts, NON_FIELD_ERRORS: of_form}


def _codes_of_own_limits(form_field: forms.Field) -> set[str]:
    """Return the codes of the limits of a field that have a message of their own."""
    codes = set()
    for validator in form_field.validators:
        if isinstance(validator, BaseValidator) and "message" in vars(validator):
            codes.add(validator.code)
    return codes


def _default_messages(kind: type[forms.Field]) -> dict[str, Any]:
    messages: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        messages.update(getattr(parent, "default_error_messages", {}))
    return messages


def _parts_of(form_field: forms.Field) -> list[forms.Field]:
    """Return the fields that a field consists of: date and time, or the values of an array."""
    if isinstance(form_field, SimpleArrayField):
        return [form_field.base_field]
    if isinstance(form_field, forms.MultiValueField):
        return list(form_field.fields)
    return []
