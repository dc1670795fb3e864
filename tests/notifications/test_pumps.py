"""Mail, feeds and webhooks are written in a second, whatever 200 kB somebody gives as a reason."""

from datetime import timedelta

import pytest
from django.template.loader import get_template
from django.urls import reverse

from apps.core.domain.events import publish
from apps.core.domain.hidden_characters import mark_hidden
from apps.notifications.domain.atom_feeds import atom
from apps.notifications.domain.delivery import payload
from apps.notifications.domain.mail import compose
from apps.notifications.domain.webhook_addresses import BadAddress, check_address
from apps.notifications.enums import Channel
from apps.notifications.models import Message, Notification, Webhook
from tests.notifications.told import FRIDAY as AT
from tests.pumps import slow_input
from tests.worst_inputs import shapes

INPUTS = shapes("\u202e", "<b>", "&amp;", "\r\n", "\x1b[31m")


@pytest.mark.django_db
def test_mail_feed_and_call(asked, approver):
    message = Message(
        channel=Channel.MAIL, user=approver, created_at=AT, due_at=AT + timedelta(hours=1)
    )
    reverse("notifications:settings")  # the routes are read once
    for name in ("mail.txt", "mail.html"):
        get_template(f"notifications/{name}").render({})
    event = publish(kind="request.approve", target=asked, by="x", at=AT)

    def write(text: str) -> None:
        event.reason = text.replace("\0", "\x01")
        compose(
            message,
            [Notification(pk=1, user=approver, event=event, request=asked, group="outcome", at=AT)],
        )
        atom(title="x", path="/x/", feed_path="/x.atom", entries=[(event, "/x/")])
        payload(event, asked)

    write("")
    assert slow_input(write, INPUTS) == ""


def test_urls_and_hidden_characters():
    urls = shapes("https://", "https://[", "https://a@", "https://a:1", "https://a/%")
    assert slow_input(check_address, urls, refused=(BadAddress,)) == ""
    assert slow_input(lambda url: Webhook(url=url).host, urls) == ""
    assert slow_input(mark_hidden, INPUTS) == ""
