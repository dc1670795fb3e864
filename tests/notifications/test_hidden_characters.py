"""Mail, feeds and webhooks show control, direction and invisible characters by their code
points.
"""

import json

import pytest

from apps.accounts.models import Experiment
from apps.core.domain.events import publish
from apps.core.domain.hidden_characters import HIDDEN
from apps.notifications.domain.atom_feeds import make_feed_address
from apps.notifications.domain.delivery import payload
from apps.notifications.models import Preferences
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver, send

pytestmark = pytest.mark.django_db
CANARY = "\u202e\x1b[2J\u200b\x07\ufffe"


@pytest.fixture
def event(asked):
    by, reason = f"mallory{CANARY}", f"line one\r\nline two {CANARY}"
    event = publish(
        kind="request.approve", target=asked, by=by, at=AT, reason=reason, old=CANARY, new=CANARY
    )
    deliver()
    return event


def test_mail_shows_them(mail_server, event, approver):
    assert send(AT)
    bodies = [
        part.get_payload(decode=True).decode()
        for mail in mail_server.mails
        for part in mail.walk()
        if not part.is_multipart()
    ]
    assert not any(HIDDEN.search(body.replace("\r\n", "\n")) for body in bodies)
    assert sum("mallory⟨U+202E⟩⟨U+001B⟩[2J⟨U+200B⟩⟨U+0007⟩⟨U+FFFE⟩" in body for body in bodies) == 2


def test_feeds_show_them(client, event, asked, liaison, nova):
    Experiment.objects.filter(pk=nova.pk).update(name=f"NOvA{CANARY}")
    make_feed_address(user=liaison, by=liaison, at=AT)
    token = Preferences.objects.get(user=liaison).feed_token
    for path in ("inbox", f"requests/{asked}", "experiments/NOVA"):
        text = client.get(f"/feeds/{token}/{path}.atom").content.decode()
        assert not HIDDEN.search(text)
        assert "mallory⟨U+202E⟩" in text


def test_webhooks_show_them(event, asked):
    body = json.loads(json.dumps(payload(event, asked)))
    assert not any(HIDDEN.search(str(value)) for value in body.values())
    assert body["reason"] == "line one\nline two ⟨U+202E⟩⟨U+001B⟩[2J⟨U+200B⟩⟨U+0007⟩⟨U+FFFE⟩"
