"""What the tests of notifications share: events delivered, mail sent, people with addresses."""

from datetime import UTC, datetime

from apps.core.domain import outbox
from apps.core.models import Delivery
from apps.notifications.domain import delivery
from apps.notifications.domain.mail import MailServer

FRIDAY = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def with_address(*users):
    for user in users:
        user.email = f"{user.username}@example.org"
        user.save(update_fields=["email"])


def deliver(at=FRIDAY):
    """Hand every event that waits to its subscribers."""
    for pk in (
        Delivery.objects.filter(delivered_at=None).order_by("pk").values_list("pk", flat=True)
    ):
        assert outbox.deliver(delivery_id=pk, at=at), Delivery.objects.get(pk=pk).last_error


def send(at):
    """Do what the task does, at this moment; return whether the server answered."""
    delivery.form_digests(at=at)
    with MailServer() as server:
        for pk in list(delivery.due_mail(at).values_list("pk", flat=True)):
            if not delivery.send_mail(message_id=pk, server=server, at=at):
                return False
    return True


def call(at):
    for pk in list(delivery.due_calls(at).values_list("pk", flat=True)):
        delivery.call_webhook(message_id=pk, at=at)
