"""Form fields are read by a browser as those that Django's own templates write."""

from html.parser import HTMLParser

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates, get_default_renderer
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe

from apps.core.web.rendering import FieldRenderer

NASTY = '<b title="it\'s">&amp; é\r\n</b>'
VALUES = [None, "", "a", NASTY, mark_safe("<i>&amp;</i>"), lazystr(NASTY), 0, 12_345.5, True]
ATTRIBUTES = [
    {},
    {"id": "x", "required": True, "hidden": False, NASTY: NASTY},
    {"rows": 3, "data-a": None},
]
CHOICES = [
    ("", "–"),
    (1, 12_345),
    ("a", NASTY),
    (NASTY, mark_safe("<i>a</i>")),
    (NASTY, [("b", "B"), ("c", lazystr(NASTY))]),
    ("", [("d", "D")]),
]


class Own(forms.Select):
    option_template_name = "django/forms/widgets/input_option.html"


def widgets():
    inputs = (
        forms.TextInput,
        forms.NumberInput,
        forms.EmailInput,
        forms.URLInput,
        forms.HiddenInput,
        forms.DateInput,
        forms.DateTimeInput,
        forms.TimeInput,
        forms.Textarea,
        forms.CheckboxInput,
    )
    yield from (widget() for widget in inputs)
    yield forms.PasswordInput(render_value=True)
    yield from (
        widget(choices=CHOICES)
        for widget in (forms.Select, forms.SelectMultiple, forms.RadioSelect, Own)
    )
    yield from (forms.NullBooleanSelect(), forms.ClearableFileInput())


@pytest.mark.parametrize("widget", list(widgets()), ids=lambda widget: type(widget).__name__)
def test_fields_are_written_as_by_templates(widget):
    for attributes in ATTRIBUTES:
        for value in VALUES:
            by_template = widget.render(NASTY, value, attributes, renderer=DjangoTemplates())
            assert read(widget.render(NASTY, value, attributes, renderer=FieldRenderer())) == read(
                by_template
            )


class Reader(HTMLParser):
    """Collects what a browser reads: tags with their attributes, and text."""

    def __init__(self) -> None:
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))

    def handle_endtag(self, tag):
        self.found.append(f"/{tag}")

    def handle_data(self, data):
        self.found.append(data.strip())


def read(html):
    reader = Reader()
    reader.feed(html)
    return [found for found in reader.found if found]


def test_all_forms_are_written_so():
    assert isinstance(get_default_renderer(), FieldRenderer)
