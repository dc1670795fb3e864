"""Celery tasks: deliver due messages in batches, and delete old ones."""

from time import monotonic

from celery import shared_task
from django.utils import timezone

from apps.notifications.domain import delivery
from apps.notifications.domain.mail import MailServer, mail_is_configured

#: Maximum number of messages and of seconds per run.
BATCH = 200
SECONDS = 60


@shared_task(name="notifications.send_mail")
def send_mail() -> None:
    """Combine digests and send mail.

    If the mail server does not answer, the rest waits for the next run.
    """
    if not mail_is_configured():
        return
    delivery.form_digests(at=timezone.now())
    until = monotonic() + SECONDS
    with MailServer() as server:
        for pk in list(delivery.due_mail(timezone.now()).values_list("pk", flat=True)[:BATCH]):
            if monotonic() > until or not delivery.send_mail(
                message_id=pk, server=server, at=timezone.now()
            ):
                return


@shared_task(name="notifications.call_webhooks")
def call_webhooks() -> None:
    until = monotonic() + SECONDS
    for pk in list(delivery.due_calls(timezone.now()).values_list("pk", flat=True)[:BATCH]):
        if monotonic() > until:
            return
        delivery.call_webhook(message_id=pk, at=timezone.now())


@shared_task(name="notifications.drop_old_messages")
def drop_old_messages() -> None:
    delivery.drop_old(at=timezone.now())
