"""A recovery rule that stops itself is told by mail and webhook; other changes of rules are not."""

import json
from datetime import timedelta

import pytest

from apps.core.enums import Group
from apps.core.models import Event
from apps.notifications.domain.webhooks import add_webhook
from apps.notifications.models import Notification
from apps.recovery.domain.rules.lifecycle import change_rule, create_rule, move_rule, set_mode
from apps.recovery.domain.rules.useless import stop_useless_rules
from apps.recovery.enums import Mode
from apps.recovery.models import DailyEffect, RecoveryRule
from tests.factories.people import person
from tests.notifications.mail_server import text_of
from tests.notifications.test_webhooks import receiver  # noqa: F401
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import call, deliver, send, with_address

pytestmark = pytest.mark.django_db

DEFINITION = {"condition": {"signals": [9]}, "action": {"kind": "retry"}}
WHY = "0 of 40 retries completed; at least 30 % are expected."


@pytest.fixture
def useless(approver, nova):
    """A rule of NOvA that acts and whose retries all fail."""
    rule = create_rule(name="Useless", definition=DEFINITION, by=approver, at=AT, experiment=nova)
    set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=AT, reason="Try it.")
    for day in range(1, 7):
        DailyEffect.objects.create(
            rule=rule,
            version=1,
            experiment=nova,
            day=AT.date() - timedelta(days=day),
            arm="acted",
            outcome="failed",
            jobs=10,
            failed_core_seconds=3600,
            retry_core_seconds=3600,
        )
    deliver()
    return rule


def test_stopped_rule_is_told_by_mail_to_those_who_let_rules_act(
    mail_server, useless, approver, admin, shifter, liaison
):
    with_address(approver, admin, shifter, liaison)
    assert stop_useless_rules(at=AT) == [useless]
    deliver()
    notifications = Notification.objects.values_list("user__username", "group")
    assert set(notifications) == {
        (approver.username, Group.TROUBLE),
        (admin.username, Group.TROUBLE),
    }
    assert send(AT)
    assert {mail["To"] for mail in mail_server.mails} == {approver.email, admin.email}
    for mail in mail_server.mails:
        assert "Useless stopped itself because it does not help" in text_of(mail)
        assert WHY in text_of(mail)
    assert stop_useless_rules(at=AT + timedelta(minutes=1)) == []
    deliver()
    assert send(AT + timedelta(minutes=1))
    assert len(mail_server.mails) == 2, "told once"


def test_stopped_rule_is_told_to_approvers_of_its_own_experiment(useless, nova, dune):
    person("nova-approver", ("approver", nova))
    person("dune-approver", ("approver", dune))
    stop_useless_rules(at=AT)
    deliver()
    recipients = set(Notification.objects.values_list("user__username", flat=True))
    assert "nova-approver" in recipients
    assert "dune-approver" not in recipients


def test_stopped_rule_is_posted_to_the_webhook_of_an_approver(
    receiver,  # noqa: F811
    useless,
    approver,
    liaison,
):
    for by in (approver, liaison):
        add_webhook(url=receiver.url, experiment=None, by=by, at=AT)
    stop_useless_rules(at=AT)
    deliver()
    call(AT)
    call(AT + timedelta(hours=1))
    ((_, body),) = receiver.told
    message = json.loads(body)
    assert (message["kind"], message["actor"]) == ("recovery.stopped", "opsportal")
    assert message["url"] == f"https://portal.example.org/recovery/rules/{useless.pk}/"
    assert (message["text"], message["reason"]) == (
        "Useless stopped itself because it does not help",
        WHY,
    )


def test_writing_and_switching_rules_is_in_their_history_and_told_to_nobody(
    useless, approver, shifter
):
    changed = {**DEFINITION, "limits": {"attempts": 2}}
    change_rule(rule=useless, definition=changed, by=shifter, at=AT, reason="Less.", base=1)
    set_mode(rule=useless, mode=Mode.OFF, by=shifter, at=AT)
    move_rule(rule=useless, before=RecoveryRule.objects.first(), by=approver)
    deliver()
    kinds = Event.objects.filter(kind__startswith="recovery.").order_by("pk")
    assert list(kinds.values_list("kind", flat=True)) == [
        "recovery.created",
        "recovery.mode_set",
        "recovery.changed",
        "recovery.mode_set",
    ]
    assert not Notification.objects.exists()
