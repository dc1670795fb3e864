"""The form field of sizes and durations."""

from collections.abc import Callable, Mapping
from typing import Any

from django import forms

from apps.core.domain import quantities

#: How quantities are parsed and formatted, by suffix of the column name.
QUANTITIES: Mapping[str, tuple[Callable[[str], int], Callable[[int], str]]] = {
    "bytes": (quantities.parse_size, quantities.format_size),
    "seconds": (quantities.parse_duration, quantities.format_duration),
}


class QuantityField(forms.Field):
    """A whole number of bytes or seconds, written with its unit: `4 GB`, `2 h`."""

    #: How errors start: with the label of the field, in the back office.
    start_of_errors = ""

    def __init__(
        self,
        *,
        suffix: str,
        min_value: int | None = None,
        max_value: int | None = None,
        max_length: int | None = None,
        **more: Any,
    ) -> None:
        """Take the arguments of a form field for integers; the model field checks the limits.

        Text is at most `max_length` characters long, if set.
        """
        self.parse, self.write = QUANTITIES[suffix]
        self.max_length = max_length
        super().__init__(**more)

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        attributes = super().widget_attrs(widget)
        if self.max_length is not None:
            attributes["maxlength"] = str(self.max_length)
        return attributes

    def prepare_value(self, value: Any) -> Any:
        return self.write(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        text = str(self.prepare_value(value) or "").strip()
        if self.max_length is not None and len(text) > self.max_length:
            raise forms.ValidationError(
                f"{self.start_of_errors}Enter at most {self.max_length} characters."
            )
        try:
            return self.parse(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(f"{self.start_of_errors}{error}") from error
