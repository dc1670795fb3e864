"""Validation errors of pydantic as messages for users, by field path."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Problems = dict[str, list[str]]

NOT_A_MAPPING = "Enter names with values."
NOT_A_NAME = "Use at most 40 lower-case letters, digits and _."
#: Messages that replace pydantic's, which refer to Python.
_WORDS = {
    "bool_parsing": "Enter true or false.",
    "dataclass_type": NOT_A_MAPPING,
    "dict_type": NOT_A_MAPPING,
    "extra_forbidden": "This field does not exist.",
    "missing": "This field is required.",
    "string_pattern_mismatch": NOT_A_NAME,
    "string_too_short": "This field is required.",
    "string_type": "Enter text. Put it in quotes.",
    "string_unicode": "Remove the unpaired surrogate character.",
    "tuple_type": "Enter a list.",
    "unexpected_keyword_argument": "This field does not exist.",
}


def message_of(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    return str(_WORDS.get(fault["type"], fault["msg"]))


def problems_of(error: ValidationError) -> Problems:
    """Return all messages by path, such as `stages.0.memory_bytes`; an empty path is the whole."""
    problems: Problems = {}
    for fault in error.errors(include_url=False, include_input=False):
        # Names can be long. A last part `[key]` means that the name is invalid, not its value.
        path = ".".join(str(part)[:40] for part in fault["loc"] if part != "[key]")
        problems.setdefault(path, []).append(message_of(fault))
    return {path: list(dict.fromkeys(messages)) for path, messages in problems.items()}


def raise_faults(faults: Iterable[tuple[tuple[int | str, ...], str]]) -> None:
    """Raise a `ValidationError` with several faults, each with its place below the field.

    Do nothing without faults.
    """
    details = []
    for place, message in faults:
        error = PydanticCustomError("refused", "{message}", {"message": message})
        details.append(InitErrorDetails(type=error, loc=place, input=None))
    if details:
        raise ValidationError.from_exception_data("", details)
