"""Mail goes out once, to whom it concerns, also when the mail server is killed and comes back."""

from datetime import time, timedelta

import pytest

from apps.accounts.domain.roles import grant_role, revoke_role
from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.enums import Group
from apps.notifications.domain import delivery
from apps.notifications.domain.delivery import retry_messages
from apps.notifications.domain.preferences import save_preferences
from apps.notifications.enums import Channel, MessageState, When
from apps.notifications.models import Message, Notification
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, check_request, submit_request
from tests.factories.people import person
from tests.factories.requests import draft
from tests.notifications.mail_server import text_of
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver, send, with_address

pytestmark = pytest.mark.django_db


def later(**delta):
    return AT + timedelta(**delta)


def test_approver_is_asked_at_once_and_requester_reads_it_in_the_digest(
    mail_server, asked, liaison, approver, browse
):
    assert send(AT)
    (mail,) = mail_server.mails
    assert mail["X-To"] == mail["To"] == "opg-one@example.org"
    assert mail["Subject"] == f"[opsportal] {asked}"
    assert f"{asked} is awaiting approval" in text_of(mail)
    row = Notification.objects.get(user=approver)
    link = f"/notifications/{row.pk}/"
    assert f"https://portal.example.org{link}" in text_of(mail)
    assert browse(approver).get(link)["Location"] == f"/requests/{asked}/"
    assert Notification.objects.get(pk=row.pk).read_at
    assert mail["Auto-Submitted"] == "auto-generated"
    assert send(later(hours=1))
    assert len(mail_server.mails) == 1
    assert send(later(days=1))
    digest = mail_server.mails[1]
    assert digest["X-To"] == "nova-liaison@example.org"
    assert "Digest: 1 event" in digest["Subject"]


def test_reason_comes_along_escaped_and_the_thread_holds_together(
    mail_server, asked, liaison, approver
):
    MOVE_FUNCTIONS["request-changes"](request=asked, by=approver, at=AT, reason="<b>why</b>\nv09?")
    deliver()
    assert send(AT)
    question, answer = mail_server.mails
    assert question["References"] == answer["In-Reply-To"]
    assert question["Subject"] == answer["Subject"]
    assert question["Message-ID"] != answer["Message-ID"]
    assert "<b>why</b>" in text_of(answer)
    html = next(part for part in answer.walk() if part.get_content_type() == "text/html")
    assert "&lt;b&gt;why&lt;/b&gt;" in html.get_payload(decode=True).decode()


def test_killed_server_loses_and_repeats_nothing(mail_server, asked, approver):
    mail_server.kill()
    assert not send(AT)
    message = Message.objects.get()
    assert (message.state, message.attempts) == (MessageState.WAITING, 1)
    assert "ConnectionRefusedError" in message.last_error
    assert send(later(seconds=5))  # not due yet
    assert not send(later(seconds=10))
    mail_server.start()
    assert send(later(minutes=20))
    assert send(later(minutes=40))
    assert [mail["X-To"] for mail in mail_server.mails] == ["opg-one@example.org"]
    message.refresh_from_db()
    assert (message.state, message.last_error) == (MessageState.SENT, "")


def test_server_that_dies_before_its_yes_gets_the_same_message_id_again(mail_server, asked):
    mail_server.behave("vanish")
    assert not send(AT)
    mail_server.kill()
    mail_server.behave("")
    mail_server.start()
    assert send(later(hours=1))
    first, second = mail_server.mails
    assert first["Message-ID"] == second["Message-ID"]


def test_worker_that_dies_before_the_commit_sends_the_same_message_id(
    mail_server, asked, monkeypatch
):
    def die(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(delivery, "_settle", die)
        with pytest.raises(KeyboardInterrupt):
            send(AT)
    assert Message.objects.get().state == MessageState.WAITING
    assert send(AT)
    assert send(later(hours=1))
    first, second = mail_server.mails
    assert first["Message-ID"] == second["Message-ID"]


@pytest.mark.parametrize("mode", ["refuse", "defer", "reject"])
def test_refused_mail_keeps_no_other_back_and_is_set_aside_in_the_end(
    mail_server, asked, mode, liaison
):
    mail_server.behave(mode)
    at = AT
    for _ in range(delivery.MAX_REFUSALS):
        assert send(at)
        at += timedelta(hours=1, seconds=1)
    message = Message.objects.order_by("pk").first()
    assert message.state == MessageState.REFUSED
    assert message.last_error[:3] in {"550", "450", "554"}
    mail_server.behave("")
    retry_messages(pks=[message.pk], at=at)
    assert send(at)
    message.refresh_from_db()
    assert message.state == MessageState.SENT


def test_removed_member_and_inactive_one_get_nothing(mail_server, asked, liaison, approver, nova):
    second = person("opg-two", ("approver", None))
    with_address(second)
    other = draft(liaison, nova)
    submit_request(request=other, by=liaison, at=AT)
    check_request(request=other, at=AT)
    deliver()
    revoke_role(membership=second.memberships.get(), by="test", at=AT)
    approver.is_active = False
    approver.save()
    assert send(AT)
    assert mail_server.mails == []
    assert set(Message.objects.values_list("state", flat=True)) == {MessageState.DROPPED}


@pytest.mark.parametrize("address", ["a@b.example\nBcc: x@y.example", "nobody", "a@b, c@d", ""])
def test_no_mail_to_what_is_no_address(mail_server, waiting, approver, address):
    approver.email = address
    approver.save()
    deliver()
    assert send(AT)
    assert mail_server.mails == []


def test_title_and_reason_cannot_add_a_header(mail_server, asked, approver):
    publish(
        kind="request.approve",
        target=asked,
        by="x\r\nBcc: evil@x.example",
        at=AT,
        reason="a\r\nBcc: b@x.example\x01",
    )
    deliver()
    assert send(AT)
    for mail in mail_server.mails:
        assert mail["Bcc"] is None
        assert mail.defects == []


def test_quiet_hours_hold_mail_back_also_what_a_dead_server_left(mail_server, asked, approver):
    User.objects.update(time_zone="UTC")
    save_preferences(
        user=approver, digest_hour=8, quiet_from=time(20), quiet_until=time(7), rules={}
    )
    mail_server.kill()
    assert not send(AT)
    mail_server.start()
    assert send(AT.replace(hour=21))
    assert send(AT.replace(hour=21) + timedelta(hours=9, minutes=59))
    assert mail_server.mails == []
    assert send(AT.replace(hour=7) + timedelta(days=1))
    assert [mail["To"] for mail in mail_server.mails].count("opg-one@example.org") == 1


def test_zone_of_the_person_counts(mail_server, waiting, approver):
    approver.time_zone = "America/Chicago"
    approver.save()
    save_preferences(
        user=approver, digest_hour=8, quiet_from=time(0), quiet_until=time(8), rules={}
    )
    deliver()  # 12:00 UTC is 06:00 there
    assert Message.objects.get().due_at == AT.replace(hour=14)


def test_rules_say_who_is_told_when(mail_server, waiting, approver, liaison):
    rules = {(Channel.MAIL, Group.TURN): When.DIGEST}
    save_preferences(user=approver, digest_hour=13, quiet_from=None, quiet_until=None, rules=rules)
    never = {(Channel.MAIL, group): When.NEVER for group in Group}
    save_preferences(user=liaison, digest_hour=8, quiet_from=None, quiet_until=None, rules=never)
    deliver()
    assert send(AT)
    assert mail_server.mails == []
    assert send(later(hours=1))
    assert send(later(days=2))
    assert [mail["X-To"] for mail in mail_server.mails] == ["opg-one@example.org"]
    # It is in the list of the portal all the same.
    assert Notification.objects.filter(user=liaison).exists()


def test_digest_has_each_event_once_and_leaves_out_what_may_be_seen_no_more(
    mail_server, nova, dune, liaison, approver
):
    with_address(liaison)
    grant_role(user=liaison, role="liaison", experiment=dune, by="test", at=AT)
    for experiment in (nova, nova, dune):
        request = draft(liaison, experiment)
        submit_request(request=request, by=liaison, at=AT)
        check_request(request=request, at=AT)
    deliver()
    revoke_role(membership=liaison.memberships.get(experiment=dune), by="test", at=AT)
    assert send(later(days=1))
    assert send(later(days=2))
    (mail,) = mail_server.mails
    text = text_of(mail)
    assert [
        text.count(f"{key} is awaiting approval") for key in ("NOVA-0001", "NOVA-0002", "DUNE-0001")
    ] == [1, 1, 0]


def test_without_mail_server_nothing_is_planned(waiting, approver, settings):
    settings.EMAIL_HOST = ""
    deliver()
    assert Notification.objects.filter(user=approver).count() == 1
    assert not Message.objects.exists()


def test_old_rows_are_dropped_and_what_waits_stays(mail_server, asked):
    mail_server.kill()
    assert not send(AT)
    assert delivery.drop_old(at=later(days=400)) == 0
    mail_server.start()
    assert send(later(days=400))
    assert delivery.drop_old(at=later(days=800)) > 0
    assert not Message.objects.exists()
    assert not Notification.objects.exists()
