"""Whatever happens, in whatever order: each mail that is due arrives once, none in quiet hours,
nothing is lost.

The mail server is a real one on a real port, in this process, so that it can go and come back many
times.
"""

import email
from collections import Counter
from datetime import time, timedelta

import pytest
from aiosmtpd.controller import Controller
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apps.core.domain.events import publish
from apps.core.enums import Group
from apps.notifications.domain import delivery
from apps.notifications.domain.mail import MailServer
from apps.notifications.domain.preferences import hours_of, save_preferences
from apps.notifications.enums import Channel, MessageState, When
from apps.notifications.models import Message, Notification
from dev.processes import free_port
from tests.factories.people import person
from tests.factories.requests import draft
from tests.notifications.mail_server import text_of
from tests.notifications.told import FRIDAY, deliver, send, with_address

KINDS = ["request.pass", "request.approve", "request.hold", "request.edited", "request.commented"]
PEOPLE = ["nova-liaison", "opg-one", "nova-two"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from(KINDS)),
        st.tuples(
            st.just("rule"),
            st.sampled_from(PEOPLE),
            st.sampled_from(Group.values),
            st.sampled_from(When.values),
        ),
        st.tuples(
            st.just("quiet"), st.sampled_from(PEOPLE), st.integers(0, 23), st.integers(0, 23)
        ),
        st.tuples(st.just("server"), st.sampled_from(["up", "down", "defer"])),
        st.tuples(st.just("die"), st.sampled_from(["digest", "before", "after"])),
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 300, 1400])),
        st.tuples(st.just("send")),
    ),
    max_size=25,
)


class Keeper:
    """Keeps what it takes."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, email.message.Message]] = []
        self.defers = False

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802
        if self.defers:
            return "450 later"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        self.kept.append((envelope.rcpt_tos[0], email.message_from_bytes(envelope.content)))
        return "250 kept"


class Dies(BaseException):
    """A worker that is killed: what is not committed is gone."""


class Play:
    """The portal, its people and the mail server, moved by the steps of one example."""

    def __init__(self, keeper, port, users, request, monkeypatch) -> None:
        self.keeper, self.port, self.users, self.request = keeper, port, users, request
        self.monkeypatch, self.at, self.server = monkeypatch, FRIDAY, None
        self.published: dict[int, str] = {}
        self.twice = 0

    def do(self, name, *arguments) -> None:
        getattr(self, f"do_{name}")(*arguments)

    def do_event(self, kind) -> None:
        event = publish(
            kind=kind,
            target=self.request,
            by="somebody",
            at=self.at,
            reason=f"mark{len(self.published)}.",
        )
        self.published[event.pk] = event.reason
        deliver(self.at)

    def do_rule(self, name, group, when) -> None:
        self._save(name, rules={(Channel.MAIL, group): When(when)})

    def do_quiet(self, name, start, end) -> None:
        hours = (None, None) if start == end else (time(start), time(end))
        self._save(name, quiet_from=hours[0], quiet_until=hours[1])

    def _save(self, name, **changes) -> None:
        values = {"digest_hour": 8, "quiet_from": None, "quiet_until": None, "rules": {}}
        save_preferences(user=self.users[name], **(values | changes))

    def do_server(self, state) -> None:
        self.keeper.defers = state == "defer"
        if state == "down":
            self.stop()
        elif self.server is None:
            self.server = Controller(
                self.keeper, hostname="127.0.0.1", port=self.port, ready_timeout=60
            )
            self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def do_wait(self, minutes) -> None:
        self.at += timedelta(minutes=minutes)

    def do_send(self) -> None:
        before = len(self.keeper.kept)
        send(self.at)
        for name, _ in self.keeper.kept[before:]:
            user = type(self.users["opg-one"]).objects.get(email=name)
            assert not hours_of(user).is_quiet(self.at)

    def do_die(self, where) -> None:
        """The worker is killed: while it makes a digest, before it hands a mail over,
        or after the server's yes.
        """

        def die(*_, **__):
            raise Dies

        def hand_over_and_die(server, mail):
            real(server, mail)
            raise Dies

        real = MailServer.send
        targets = {
            "digest": (Message.objects, "create", die),
            "before": (MailServer, "send", die),
            "after": (MailServer, "send", hand_over_and_die),
        }
        with self.monkeypatch.context() as patch:
            patch.setattr(*targets[where])
            before = len(self.keeper.kept)
            try:
                send(self.at)
            except Dies:
                self.twice += where == "after" and len(self.keeper.kept) > before

    def finish(self) -> None:
        """Let the server run and all waits end, then wait and send once more:
        nothing may arrive again.
        """
        self.do_server("up")
        for _ in range(150):  # three days, in steps that meet every hour
            if not self.is_waiting():
                break
            self.do_wait(30)
            self.do_send()
        self.do_wait(1440)
        self.do_send()

    def is_waiting(self) -> bool:
        unsent = Message.objects.exclude(state=MessageState.SENT)
        in_digest = Notification.objects.filter(digest_at__isnull=False)
        return unsent.exists() or in_digest.exists()


@pytest.fixture
def port():
    return free_port()


@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_each_due_mail_arrives_once(steps, port, nova, liaison, approver, monkeypatch, settings):
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    keeper = Keeper()
    with transaction.atomic():
        users = {
            user.username: user
            for user in (liaison, approver, person("nova-two", ("liaison", nova)))
        }
        with_address(*users.values())
        play = Play(keeper, port, users, draft(liaison, nova), monkeypatch)
        deliver()
        try:
            play.do_server("up")
            for step in steps:
                play.do(*step)
            play.finish()
            check(play)
        finally:
            play.stop()
            transaction.set_rollback(True)


def check(play: Play) -> None:
    assert not Message.objects.exclude(state=MessageState.SENT).exists()
    assert not Notification.objects.filter(digest_at__isnull=False).exists()
    expected = Counter(
        (row.user.email, play.published[row.event_id])
        for row in Notification.objects.filter(message__isnull=False).select_related("user")
    )
    distinct = {mail["Message-ID"]: (to, mail) for to, mail in play.keeper.kept}
    arrived = Counter(
        (to, mark)
        for to, mail in distinct.values()
        for mark in play.published.values()
        if mark in text_of(mail)
    )
    assert arrived == expected
    assert set(expected.values()) <= {1}
    # Only a worker that was killed after the server's yes sends one again, under the same number.
    assert len(play.keeper.kept) - len(distinct) == play.twice


def waiting_mail(user):
    mail = Message.objects.create(channel=Channel.MAIL, user=user, created_at=FRIDAY, due_at=FRIDAY)
    event = publish(kind="webhook.disabled", target=user, by="x", at=FRIDAY)
    Notification.objects.create(
        user=user, event=event, group=Group.TROUBLE, at=FRIDAY, message=mail
    )
    return mail


def test_mail_that_kills_its_worker_waits_longer_each_time(db):
    """Every other mail goes first, as it is due before."""

    class Server:
        def send(self, mail):
            raise Dies

    user = person("opg-one", ("approver", None))
    with_address(user)
    mail = waiting_mail(user)
    at = FRIDAY
    for attempts, wait in enumerate((10, 30, 60), 1):
        with pytest.raises(Dies):
            delivery.send_mail(message_id=mail.pk, server=Server(), at=at)
        mail.refresh_from_db()
        assert (mail.state, mail.attempts) == (MessageState.WAITING, attempts)
        assert mail.due_at == at + timedelta(seconds=wait)
        assert not delivery.due_mail(mail.due_at - timedelta(seconds=1)).exists()
        at = mail.due_at
    assert delivery.MAIL.failing().get() == mail


def test_two_workers_at_once_send_each_mail_once(transactional_db, port, settings):
    """The second passes over what the first holds."""
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connection

    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    keeper = Keeper()
    user = person("opg-one", ("approver", None))
    with_address(user)
    for _ in range(20):
        waiting_mail(user)
    assert delivery.due_mail(FRIDAY).count() == 20

    def work(_):
        try:
            return send(FRIDAY)
        finally:
            connection.close()

    server = Controller(keeper, hostname="127.0.0.1", port=port, ready_timeout=60)
    server.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            assert all(pool.map(work, range(3)))
    finally:
        server.stop()
    assert Message.objects.filter(state=MessageState.SENT).count() == len(keeper.kept) == 20
