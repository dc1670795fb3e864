"""The portal at PORTAL_URL, its mail server, and the settings."""

import json
import smtplib
import sys
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.mail.backends.smtp import EmailBackend

from apps.core.http.addresses import ListedServers
from apps.core.http.client import TransferLimits, send
from apps.core.http.errors import HttpError
from apps.notifications.domain.mail import mail_is_configured
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning
from apps.portal.pages.doctor.support import PYTHON, version_finding

_LIMITS = TransferLimits(connect=3, read=5, total=8, most_bytes=100_000)
_MAIL_SECONDS = 5


def check_python(at: datetime) -> Iterator[DoctorFinding]:
    yield version_finding(PYTHON, sys.version_info[:3])


def check_settings(at: datetime) -> Iterator[DoctorFinding]:
    """Report what `check --deploy` reports."""
    is_well = True
    for message in checks.run_checks(include_deployment_checks=True):
        if message.is_silenced() or message.level < checks.WARNING:
            continue
        is_well = False
        judge = problem if message.level >= checks.ERROR else warning
        fix = message.hint or "Correct the setting that it names (docs/settings.md)."
        yield judge(f"settings {message.id}", _one_line(message.msg), _one_line(fix))
    if is_well:
        yield ok("settings", "`check --deploy` finds nothing")


def check_answers(at: datetime) -> Iterator[DoctorFinding]:
    """Ask `/healthz` at PORTAL_URL, as a browser would reach it."""
    name = "portal answers"
    fix = (
        "Start it (`systemctl start opsportal.target`), or correct PORTAL_URL, its name in DNS, "
        "or the proxy."
    )
    try:
        status, body = _get("healthz")
    except HttpError as error:
        yield problem(name, f"{settings.PORTAL_URL}: {error}", fix)
        return
    if status != 200 or body.strip() != b"ok":
        yield problem(name, f"{settings.PORTAL_URL}/healthz answers {status}", fix)
    else:
        yield ok(name, settings.PORTAL_URL)


def check_ready(at: datetime) -> Iterator[DoctorFinding]:
    """Ask `/readyz` whether the running web process can serve."""
    name = "portal is ready"
    fix = "Restart it (`systemctl restart opsportal-web`), and read `journalctl -u opsportal-web`."
    try:
        status, body = _get("readyz")
    except HttpError as error:
        yield problem(name, f"{settings.PORTAL_URL}: {error}", fix)
        return
    if status == 200:
        yield ok(name, "/readyz answers 200")
        return
    yield problem(name, f"/readyz answers {status}{_not_ready(body)}", fix)


def check_mail(at: datetime) -> Iterator[DoctorFinding]:
    """Connect to the mail server and log in; no mail is sent."""
    if not mail_is_configured():
        yield ok("mail server", "EMAIL_URL is not set: the portal sends no mail")
        return
    server = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    backend = EmailBackend(timeout=_MAIL_SECONDS)
    try:
        backend.open()
        backend.close()
    except (OSError, smtplib.SMTPException) as error:
        yield problem(
            "mail server",
            f"{server}: {type(error).__name__}: {error}",
            "Start that server, or correct EMAIL_URL with its user and password.",
        )
    else:
        yield ok("mail server", f"{server} accepts connections")


def _get(path: str) -> tuple[int, bytes]:
    """Return status and body. The server of PORTAL_URL may be at a private address."""
    parts = urlsplit(settings.PORTAL_URL)
    rule = ListedServers({f"{parts.scheme}://{parts.netloc}"})
    url = f"{settings.PORTAL_URL.rstrip('/')}/{path}"
    with send("GET", url, rule=rule, limits=_LIMITS) as answer:
        return answer.status, answer.body()


def _not_ready(body: bytes) -> str:
    """Return the parts that `/readyz` names, or nothing for an answer of something else."""
    try:
        parts = json.loads(body)["checks"]
        failing = [f"{part['name']} {part['detail']}" for part in parts if not part["ok"]]
    except (ValueError, KeyError, TypeError):
        return ""
    return f": {', '.join(failing)}"


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
