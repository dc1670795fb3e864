"""Form fields and widgets of text whose lines have numbers, and of several choices."""

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.forms.widgets import Script
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

_DOCUMENT = re.compile(r"docs/([a-z0-9-]+)\.md")


class NumberedText(forms.Textarea):
    """A text area with the number of each line, as errors name lines.

    After an error that names a line, that line is selected.
    """

    def __init__(self, *, rows: int = 6) -> None:
        attributes = {"rows": rows, "cols": 100, "spellcheck": "false", "wrap": "off"}
        super().__init__({**attributes, "data-numbered": "", "class": "mono"})

    class Media:
        js = (Script("opsportal/js/numbered_text.js", type="module"),)


class CheckBoxes(forms.CheckboxSelectMultiple):
    """Several choices as check boxes in columns: a list would need the Ctrl key. Many scroll."""

    def __init__(self, attrs: dict[str, Any] | None = None, choices: Any = ()) -> None:
        super().__init__({"class": "choices", **(attrs or {})}, choices)


class JsonText(forms.JSONField):
    """JSON, shown with an indentation. An error names the line."""

    widget = NumberedText
    #: How errors start: with the label of the field, in the back office.
    start_of_errors = ""

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Show the text again as it was entered, with its line numbers."""
        return initial if self.disabled else data

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):  # what was entered, with an error
            return value
        return json.dumps(value, indent=2, ensure_ascii=False)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and not value.strip() and callable(self.initial):
            return self.initial()  # the value of a new record, such as an empty object
        if isinstance(value, str) and value.strip():
            try:
                json.loads(value)
            except json.JSONDecodeError as error:
                place = f"Line {error.lineno}, column {error.colno}"
                raise self._error(f"{place}: {error.msg}. Write valid JSON.") from error
            except (ValueError, RecursionError) as error:
                raise self._error("A number is too long, or the text too deep.") from error
        read = super().to_python(value)
        if problem := _storage_problem(read):
            raise self._error(problem)
        return read

    def _error(self, text: str) -> forms.ValidationError:
        return forms.ValidationError(self.start_of_errors + text)


def _storage_problem(value: Any) -> str:
    """Return why PostgreSQL cannot store a value of JSON, or an empty text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        return "Remove unpaired surrogate characters."
    except ValueError:
        return "Write finite numbers: no NaN, no Infinity."
    return "Remove NUL characters (\\u0000)." if "\\u0000" in text else ""


def with_links(help_text: str, titles: Mapping[str, str]) -> SafeString:
    """Return a help text in which `docs/NAME.md` is a link to that page, with its title.

    One that has its links already stays as it is.
    """
    if isinstance(help_text, SafeString):
        return help_text

    def link(match: re.Match[str]) -> str:
        name = match[1]
        if name not in titles:
            return match[0]
        return format_html('<a href="{}">{}</a>', reverse("core:help", args=[name]), titles[name])

    return mark_safe(_DOCUMENT.sub(link, help_text))  # noqa: S308 (of the code, as in Django)
