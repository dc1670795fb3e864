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


class MailRefused(Exception):
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

        Raises `MailRefused` if the server rejects it, else `OSError` as SMTP's errors.
        """
        try:
            self._backend.open()
            self._backend.send_messages([mail])
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as error:
            raise MailRefused(_reply_of(error)) from error


def _reply_of(error: smtplib.SMTPRecipientsRefused | smtplib.SMTPDataError) -> str:
    """Return the code and the text with which the server rejected a mail."""
    if isinstance(error, smtplib.SMTPDataError):
        code = error.smtp_code
        text = error.smtp_error
    else:
        code, text = next(iter(error.recipients.values()))
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return f"{code} {text}"


def compose(message: Message, notifications: Sequence[Notification]) -> EmailMultiAlternatives:
    """Write the mail of a message; the same message always has the same Message-ID."""
    if message.user is None:
        raise TypeError("mail needs a user")
    first = notifications[0]
    subject = f"[opsportal] {first.event.target_label}"
    mute_url = ""
    if message.digest:
        events = "event" if len(notifications) == 1 else "events"
        subject = f"[opsportal] Digest: {len(notifications)} {events}"
    elif first.request is not None:
        mute_url = _url("notifications:request", first.request.key)
    settings_url = _url("notifications:settings")
    context = {
        "items": [_item(notification) for notification in notifications[:MAX_ITEMS]],
        "more": max(0, len(notifications) - MAX_ITEMS),
        "settings_url": settings_url,
        "list_url": _url("notifications:list"),
        "mute_url": mute_url,
    }
    mail = EmailMultiAlternatives(
        subject=" ".join(mark_hidden(subject).split()),
        body=render_to_string("notifications/mail.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[message.user.email],
        headers=_headers(message, first, mute_url or settings_url),
    )
    mail.attach_alternative(render_to_string("notifications/mail.html", context), "text/html")
    return mail


def _item(notification: Notification) -> dict[str, object]:
    """Return a notification as the templates of mails show it."""
    return {
        "title": mark_hidden(headline(notification.event)),
        "actor": mark_hidden(notification.event.actor),
        "at": notification.event.at,
        "reason": mark_hidden(notification.text or notification.event.reason),
        # This page marks it as read, and redirects to what it is about.
        "url": _url("notifications:open", notification.pk),
    }


def _url(name: str, *args: object) -> str:
    return f"{settings.PORTAL_URL}{reverse(name, args=args)}"


def _headers(message: Message, notification: Notification, unsubscribe_url: str) -> dict[str, str]:
    host = urlsplit(settings.PORTAL_URL).hostname
    headers = {
        "Message-ID": f"<message-{message.pk}.{message.created_at:%Y%m%d%H%M%S}@{host}>",
        "Auto-Submitted": "auto-generated",
        "List-Unsubscribe": f"<{unsubscribe_url}>",
    }
    # No message has this ID: it groups the mails of a request or a hold into a thread.
    thread = ""
    if notification.request_id:
        thread = f"<request-{notification.request_id}@{host}>"
    elif notification.hold_id:
        thread = f"<hold-{notification.hold_id}@{host}>"
    if thread and not message.digest:
        headers |= {"In-Reply-To": thread, "References": thread}
    return headers
