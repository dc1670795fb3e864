"""Writes and sends mail.

`compose` writes a message, `MailServer.send` passes it to the mail server. `delivery` decides which
messages are due and retries those that fail.
"""

import smtplib
from collections.abc import Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.smtp import EmailBackend
from django.template.loader import render_to_string
from django.urls import reverse

from apps.core.domain.event_kinds import headline
from apps.core.domain.hidden_characters import mark_hidden
from apps.notifications.models import Message, Notification

#: Maximum number of events in a digest; the portal lists the rest.
MAX_ITEMS = 200


def mail_is_configured() -> bool:
    return bool(settings.EMAIL_HOST)


class Refused(Exception):
    """The mail server works, but rejects this message."""


class MailServer:
    """One connection for many messages, opened with the first one."""

    def __init__(self) -> None:
        # Not the backend of the settings: it must report whether a message was accepted.
        self._backend = EmailBackend(fail_silently=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, smtplib.SMTPException):
            self._backend.close()

    def send(self, mail: EmailMultiAlternatives) -> None:
        """Send one message to one user.

        Raises `Refused` if the server rejects it, else `OSError` as SMTP's errors.
        """
        try:
            self._backend.open()
            self._backend.send_messages([mail])
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as error:
            if isinstance(error, smtplib.SMTPDataError):
                code, text = error.smtp_code, error.smtp_error
            else:
                code, text = next(iter(error.recipients.values()))
            raise Refused(
                f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}"
            ) from error


def compose(message: Message, rows: Sequence[Notification]) -> EmailMultiAlternatives:
    """Write the mail of a message; the same message always has the same Message-ID."""
    if message.user is None:
        raise TypeError("mail needs a user")
    shown = rows[:MAX_ITEMS]
    muted = None if message.digest or shown[0].request is None else shown[0].request
    context = {
        "items": [
            {
                "title": mark_hidden(headline(row.event)),
                "actor": mark_hidden(row.event.actor),
                "at": row.event.at,
                "reason": mark_hidden(row.text or row.event.reason),
                # Marks it as read and leads on to what it is about.
                "url": settings.PORTAL_URL + reverse("notifications:open", args=[row.pk]),
            }
            for row in shown
        ],
        "more": max(0, len(rows) - MAX_ITEMS),
        "settings_url": settings.PORTAL_URL + reverse("notifications:settings"),
        "list_url": settings.PORTAL_URL + reverse("notifications:list"),
        "mute_url": settings.PORTAL_URL + reverse("notifications:request", args=[muted.key])
        if muted
        else "",
    }
    subject = f"[opsportal] {shown[0].event.target_label}"
    if message.digest:
        subject = f"[opsportal] Digest: {len(rows)} event{'' if len(rows) == 1 else 's'}"
    mail = EmailMultiAlternatives(
        subject=" ".join(mark_hidden(subject).split()),
        body=render_to_string("notifications/mail.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[message.user.email],
        headers=_headers(message, shown[0], str(context["mute_url"] or context["settings_url"])),
    )
    mail.attach_alternative(render_to_string("notifications/mail.html", context), "text/html")
    return mail


def _headers(message: Message, row: Notification, unsubscribe_url: str) -> dict[str, str]:
    host = urlsplit(settings.PORTAL_URL).hostname
    headers = {
        "Message-ID": f"<message-{message.pk}.{message.created_at:%Y%m%d%H%M%S}@{host}>",
        "Auto-Submitted": "auto-generated",
        "List-Unsubscribe": f"<{unsubscribe_url}>",
    }
    if not message.digest and (row.request_id or row.hold_id):
        # The ID of no message: it groups the mails of a request or a hold into a thread.
        root = (
            f"<{f'request-{row.request_id}' if row.request_id else f'hold-{row.hold_id}'}@{host}>"
        )
        headers |= {"In-Reply-To": root, "References": root}
    return headers
