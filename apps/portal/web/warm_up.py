"""What the web server loads before the first request, which would wait for it, and what it warns of at start."""

import logging
from pathlib import Path

from django.template import Engine, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import reverse

from apps.portal.pages.health import check_proxy, loaded_plugins

log = logging.getLogger(__name__)


def load_ahead() -> None:
    """Load plugins, URLs and templates; a broken template fails on its own page."""
    loaded_plugins()
    for warning in check_proxy():
        log.warning("%s %s", warning.msg, warning.hint)
    reverse("portal:home")
    for directory in Engine.get_default().dirs:
        for path in sorted(Path(directory).rglob("*.html")):
            try:
                get_template(path.relative_to(directory).as_posix())
            except TemplateSyntaxError:
                continue
