"""Mail, feeds and webhooks are written in half a second, whatever 200 kB somebody gives as a reason."""

from contextlib import suppress
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
from tests.worst_inputs import run, shapes, within

TEXTS = [text.replace("\0", "\x01") for text in shapes("\u202e", "<b>", "&amp;", "\r\n", "\x1b[31m")]


@pytest.mark.django_db
def test_mail_feed_and_call(asked, approver):
    message = Message(channel=Channel.MAIL, user=approver, created_at=AT, due_at=AT + timedelta(hours=1))
    reverse("notifications:settings")  # the routes are read once
    for name in ("mail.txt", "mail.html"):
        get_template(f"notifications/{name}").render({})
    for text in TEXTS:
        event = publish(kind="request.approve", target=asked, by="x", at=AT, reason=text)
        row = Notification(pk=1, user=approver, event=event, request=asked, group="outcome", at=AT)
        with within(what=f"mail: {text[:8]!r}"):
            compose(message, [row])
        with within(what=f"feed: {text[:8]!r}"):
            atom(title="x", path="/x/", feed_path="/x.atom", entries=[(event, "/x/")])
        with within(what=f"call: {text[:8]!r}"):
            payload(event, asked)


def test_urls_and_hidden_characters():
    def check(text: str) -> None:
        with suppress(BadAddress):
            check_address(text)

    urls = shapes("https://", "https://[", "https://a@", "https://a:1", "https://a/%")
    run(check, urls, "check_address")
    run(lambda url: Webhook(url=url).host, urls, "host_of")
    run(mark_hidden, TEXTS, "mark_hidden")
