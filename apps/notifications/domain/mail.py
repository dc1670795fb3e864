"""Writing mails, and the connection to the mail server."""

import re
import smtplib
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.smtp import EmailBackend
from django.core.validators import validate_email
from django.template.loader import render_to_string
from django.urls import reverse

from apps.core.domain.event_kinds import headline
from apps.notifications.models import Message, Notification

_NO_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
#: A digest tells of no more; the rest is in the portal.
MOST_TOLD = 200


class Refused(Exception):
    """The mail server takes mail, but not this one."""


class MailServer:
    """One connection, opened with the first mail, for as many as there are."""

    def __init__(self) -> None:
        # Not the backend of the settings: whether a mail was taken must be known.
        self._backend = EmailBackend(fail_silently=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, smtplib.SMTPException):
            self._backend.close()

    def send(self, mail: EmailMultiAlternatives) -> None:
        """Hand over one mail to one person.

        Raises `Refused` where the server does not take this one, else `OSError`: SMTP's errors are such too.
        """
        try:
            self._backend.open()
            self._backend.send_messages([mail])
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as error:
            raise Refused(_words(error)) from error


def _words(error: smtplib.SMTPRecipientsRefused | smtplib.SMTPDataError) -> str:
    if isinstance(error, smtplib.SMTPDataError):
        code, text = error.smtp_code, error.smtp_error
    else:
        code, text = next(iter(error.recipients.values()))
    return f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}"


def is_address(address: str) -> bool:
    try:
        validate_email(address)
    except ValidationError:
        return False
    return True


def clean(text: str) -> str:
    """Return a text without characters that mails and feeds cannot hold."""
    return _NO_TEXT.sub(" ", text)


def title_of(row: Notification) -> str:
    """Return a notification as one line: `NOVA-0219 was approved`."""
    return clean(headline(row.event))


def url_of(row: Notification) -> str:
    return settings.PORTAL_URL + row.get_absolute_url()


def compose(message: Message, rows: Sequence[Notification]) -> EmailMultiAlternatives:
    """Write the mail of a message; the same message gives the same Message-ID each time."""
    if message.user is None:
        raise TypeError("a mail goes to a person")
    shown, more = rows[:MOST_TOLD], max(0, len(rows) - MOST_TOLD)
    muted = None if message.digest or shown[0].request is None else shown[0].request
    links = {
        "settings_url": settings.PORTAL_URL + reverse("notifications:settings"),
        "list_url": settings.PORTAL_URL + reverse("notifications:list"),
        "mute_url": settings.PORTAL_URL + reverse("notifications:request", args=[muted.key]) if muted else "",
    }
    items = [
        {"title": title_of(row), "row": row, "url": url_of(row), "reason": clean(row.event.reason)} for row in shown
    ]
    subject = f"[opsportal] {shown[0].event.target_label}"
    if message.digest:
        subject = f"[opsportal] Digest: {len(rows)} event{'' if len(rows) == 1 else 's'}"
    mail = EmailMultiAlternatives(
        subject=" ".join(clean(subject).split()),
        body=_text(items, more, links),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[message.user.email],
        headers=_headers(message, shown, links),
    )
    html = render_to_string("notifications/mail.html", {"items": items, "more": more, **links})
    mail.attach_alternative(html, "text/html")
    return mail


def message_id(message: Message) -> str:
    return f"<message-{message.pk}.{message.created_at:%Y%m%d%H%M%S}@{urlsplit(settings.PORTAL_URL).hostname}>"


def _headers(message: Message, shown: Sequence[Notification], links: dict[str, str]) -> dict[str, str]:
    headers = {
        "Message-ID": message_id(message),
        "Auto-Submitted": "auto-generated",
        "List-Unsubscribe": f"<{links['mute_url'] or links['settings_url']}>",
    }
    row = shown[0]
    if not message.digest and (row.request_id or row.hold_id):
        # Nobody ever sent this one: it holds the mails of a request, or a hold, together.
        name = f"request-{row.request_id}" if row.request_id else f"hold-{row.hold_id}"
        root = f"<{name}@{urlsplit(settings.PORTAL_URL).hostname}>"
        headers |= {"In-Reply-To": root, "References": root}
    return headers


def _text(items: list[dict[str, object]], more: int, links: dict[str, str]) -> str:
    parts = []
    for item in items:
        row, reason = item["row"], item["reason"]
        assert isinstance(row, Notification)  # noqa: S101
        by = f"by {clean(row.event.actor)}, {row.event.at:%Y-%m-%d %H:%M} UTC"
        parts.append("\n".join([str(item["title"]), by, *([str(reason)] if reason else []), str(item["url"])]))
    if more:
        parts.append(f"… and {more} more: {links['list_url']}")
    foot = f"-- \nWhat you are told, and when: {links['settings_url']}"
    if links["mute_url"]:
        foot += f"\nMute this request: {links['mute_url']}"
    return "\n\n".join([*parts, foot]) + "\n"
