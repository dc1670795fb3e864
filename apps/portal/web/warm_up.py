"""What a process of the web server loads before its first visitor, who would wait for it."""

from pathlib import Path

from django.template import Engine, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import reverse

from apps.portal.pages.health import plugin_kinds


def load_ahead() -> None:
    """Load plugins, addresses and templates; one that is broken is told of by its own page."""
    plugin_kinds()
    reverse("portal:home")
    for directory in Engine.get_default().dirs:
        for path in sorted(Path(directory).rglob("*.html")):
            try:
                get_template(path.relative_to(directory).as_posix())
            except TemplateSyntaxError:
                continue
