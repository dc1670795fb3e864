"""Starts the program `capture` from `manage.py`, without Django where it has a token.

Beside the portal itself it needs no configuration of its own: it hands over to PORTAL_URL, with a
token that is made at the first start and kept with the journal.
"""

import os
import sys
from argparse import Namespace
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from capture.configuration import (
    BadConfiguration,
    journal_directory,
    parse_options,
    read_variable,
)

#: What the program must not get: whoever reads its memory has no way into the portal.
CREDENTIALS = (
    "ARCHIVE_ELASTICSEARCH_API_KEY",
    "ARCHIVE_ELASTICSEARCH_PASSWORD",
    "ARCHIVE_KAFKA_KEY_PASSWORD",
    "ARCHIVE_KAFKA_PASSWORD",
    "DATABASE_URL",
    "EMAIL_URL",
    "JOB_ARCHIVE_ACCESS_KEY",
    "JOB_ARCHIVE_SECRET_KEY",
    "METRICS_TOKEN",
    "OIDC_CLIENT_SECRET",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "REDIS_URL",
    "SECRET_KEY",
    "SECRET_KEY_FALLBACKS",
)
_PORTAL_URL = "http://localhost:8000"  # the default of that setting
_ROOT = Path(__file__).parents[2]


def start_capture(arguments: Sequence[str]) -> None:
    """Let the program take the place of this process."""
    environment = dict(os.environ)
    try:
        options = parse_options(arguments, environment)
        prepare_environment(environment, options)
    except BadConfiguration as error:
        sys.exit(f"error: {error}")
    os.execve(  # noqa: S606 -- there is no shell on purpose
        sys.executable, [sys.executable, "-P", "-m", "capture", *arguments], environment
    )


def prepare_environment(environment: MutableMapping[str, str], options: Namespace) -> None:
    """Add what the program lacks, and remove the portal's credentials.

    Raises `BadConfiguration`.
    """
    secret_key = read_variable("SECRET_KEY", environment)
    if secret_key and not read_variable("MASKING_KEY", environment):
        environment["MASKING_KEY"] = secret_key

    beside_portal = bool(read_variable("DATABASE_URL", environment))
    if beside_portal and not options.portal:
        environment["CAPTURE_PORTAL"] = read_variable("PORTAL_URL", environment) or _PORTAL_URL
        if not read_variable("ARCHIVE_PORTAL_TOKEN", environment):
            token = journal_directory(options) / "token"
            if not token.exists():
                _make_token(options.cluster, token)
            environment["ARCHIVE_PORTAL_TOKEN_FILE"] = str(token)

    for name in CREDENTIALS:
        environment.pop(name, None)
        environment.pop(f"{name}_FILE", None)
    paths = [str(_ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _make_token(cluster: str, path: Path) -> None:
    """Register this machine as a capture host; this needs Django and the database."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    django.setup()
    from django.core.management import CommandError, call_command
    from django.db import Error

    try:
        call_command("capture_host", "here", "--cluster", cluster, "--token-file", str(path))
    except (CommandError, Error, OSError) as error:
        raise BadConfiguration(f"No token for this machine can be made: {error}") from error
