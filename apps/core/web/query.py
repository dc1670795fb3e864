"""Parse parameters of query strings."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import django_filters
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import CheckboxSelectMultiple, Form, MultipleChoiceField
from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict

T = TypeVar("T")

MAX_VALUES = 100
#: Maximum characters of an invalid value that a message repeats.
_SHOWN = 40


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return a parameter as a whole number; None if it is missing or not a number."""
    return number_of(query.get(name, ""))


def number_of(text: str) -> int | None:
    """Return digits as a number that fits a database column; None for any other text."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return None


def read_query_or_warn(
    request: HttpRequest, name: str, read: Callable[[str], T | None], *, expected: str
) -> T | None:
    """Return a parameter parsed by `read`; None if it is missing.

    If `read` returns None, a message says what was `expected`, because the page does not show what
    was requested.
    """
    text = request.GET.get(name, "")
    value = read(text) if text else None
    if text and value is None:
        messages.warning(
            request, f"“{text[:_SHOWN]}” is not a valid value of “{name}”: expected {expected}."
        )
    return value


class _Choices(MultipleChoiceField):
    widget = CheckboxSelectMultiple

    def to_python(self, value: Any) -> list[str]:
        return [text for text in super().to_python(value) if text]


class Several(django_filters.MultipleChoiceFilter):
    """A choice of several values, all shown in the form; an empty value is ignored."""

    field_class = _Choices


class AnyOf(django_filters.FilterSet):
    """Filters of a query string.

    A repeated parameter matches any of its values, except for ranges and parameters in `ONCE`.
    """

    ONCE: frozenset[str] = frozenset()

    @classmethod
    def may_repeat(cls, name: str) -> bool:
        """Return whether several values of this parameter are alternatives."""
        several = (
            django_filters.CharFilter,
            django_filters.ChoiceFilter,
            django_filters.NumberFilter,
            Several,
        )
        return name not in cls.ONCE and isinstance(cls.base_filters[name], several)

    @property
    def form(self) -> Form:
        """The form, bound to the last value of each parameter.

        `others` has all values of repeated parameters.
        """
        if hasattr(self, "_form"):
            return self._form  # type: ignore[no-any-return]
        form: Form = super().form
        self.others: dict[str, list[Any]] = {}
        texts_by_name: dict[str, list[str]] = {}
        # Reading the errors cleans the form, so that errors can be added.
        if form.errors is not None and isinstance(self.data, MultiValueDict):
            texts_by_name = dict(self.data.lists())
        for name in form.fields:
            is_repeated = len(texts_by_name.get(name, ())) > 1
            # The field of `Several` reads all values itself.
            reads_all = isinstance(self.filters[name], Several)
            if not is_repeated or reads_all or not self.may_repeat(name):
                continue
            distinct = dict.fromkeys(text for text in texts_by_name[name] if text)
            texts = list(distinct)[: MAX_VALUES + 1]
            try:
                self.others[name] = [form.fields[name].clean(text) for text in texts]
            except ValidationError as error:
                form.add_error(name, error)
            if len(texts) > MAX_VALUES:
                form.add_error(name, f"Enter at most {MAX_VALUES} values.")
        return form

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Apply each filter; several values of a parameter are alternatives."""
        for name, value in self.form.cleaned_data.items():
            rows = queryset.model._base_manager.all()
            if values := self.others.get(name):
                queryset &= reduce(or_, (self.filters[name].filter(rows, text) for text in values))
            else:
                queryset = self.filters[name].filter(queryset, value)
        return queryset
