"""What pydantic finds wrong with plain data, in plain English and by the path of the field."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Problems = dict[str, list[str]]

NOT_A_MAPPING = "This must be names with values."
#: What to say instead of pydantic's own words, which speak of Python.
_WORDS = {
    "bool_parsing": "This must be true or false.",
    "dataclass_type": NOT_A_MAPPING,
    "dict_type": NOT_A_MAPPING,
    "extra_forbidden": "There is no such field.",
    "missing": "This is needed.",
    "string_pattern_mismatch": "A name is small letters, digits and _, at most 40.",
    "string_too_short": "This is needed.",
    "string_type": "This must be text; put it in quotes.",
    "string_unicode": "Text cannot hold half of a surrogate pair.",
    "tuple_type": "This must be a list.",
    "unexpected_keyword_argument": "There is no such field.",
}


def message_of(fault: Mapping[str, Any]) -> str:
    """Return what to say of one of `ValidationError.errors()`."""
    return str(fault["ctx"]["error"]) if fault["type"] == "value_error" else _WORDS.get(fault["type"], fault["msg"])


def problems_of(error: ValidationError) -> Problems:
    """Return every message by path, such as `stages.0.memory_bytes`; the whole has the empty path."""
    problems: Problems = {}
    for fault in error.errors(include_url=False, include_input=False):
        # A name may be long. A last part `[key]` tells that the name is at fault, not what it stands for.
        path = ".".join(str(part)[:40] for part in fault["loc"] if part != "[key]")
        problems.setdefault(path, []).append(message_of(fault))
    return {path: list(dict.fromkeys(messages)) for path, messages in problems.items()}


def raise_faults(faults: Iterable[tuple[tuple[int | str, ...], str]]) -> None:
    """Raise what a validator raises for several faults, each at its place below the field; nothing for none."""
    details = [
        InitErrorDetails(type=PydanticCustomError("refused", "{words}", {"words": words}), loc=place, input=None)
        for place, words in faults
    ]
    if details:
        raise ValidationError.from_exception_data("", details)
