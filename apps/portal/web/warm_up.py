"""Code that the web server loads before the first request, and its warnings at start.

Otherwise, the first request would wait for it.
"""

import logging
from importlib import import_module
from pathlib import Path

from django.conf import settings
from django.template import Engine, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import reverse

from apps.core.domain.background import celery_app
from apps.core.domain.subscriptions import load_subscribers
from apps.portal.pages.health.page import check_proxy, loaded_plugins

log = logging.getLogger(__name__)


def load_ahead() -> None:
    """Load plugins, subscribers, tasks, URLs and templates.

    A broken template is skipped here and fails on its own page. Other parts of the portal load
    numpy, the Redis client and single sign-on only where they use them.
    """
    loaded_plugins()
    load_subscribers()
    celery_app()
    for module in ("apps.jobs.domain.statistics.explorer", "kombu.transport.redis"):
        import_module(module)
    if settings.OIDC_ISSUER:
        import_module("apps.accounts.web.openid")
    for warning in check_proxy():
        log.warning("%s %s", warning.msg, warning.hint)
    reverse("portal:home")
    for directory in Engine.get_default().dirs:
        for path in sorted(Path(directory).rglob("*.html")):
            try:
                get_template(path.relative_to(directory).as_posix())
            except TemplateSyntaxError:
                continue
