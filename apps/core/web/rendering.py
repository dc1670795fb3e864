"""How form fields are written: by Django's own templates for Jinja2, which take half the time of the others.

A page with hundreds of fields or options spends most of its time in those templates.
"""

from typing import Any

from django.forms.renderers import DjangoTemplates, Jinja2
from django.template import TemplateDoesNotExist

_OTHERS = DjangoTemplates()


class FieldRenderer(Jinja2):
    """Django's renderer; what has no template for Jinja2, as the widgets of the back office, goes to Django's own."""

    field_template_name = "forms/field.html"

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> str:
        try:
            return super().render(template_name, context, request)
        except TemplateDoesNotExist:
            return _OTHERS.render(template_name, context, request)
