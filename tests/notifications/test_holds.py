"""Holds of all production or an experiment, and their end,
are told once to each person with requests under them.
"""

from datetime import timedelta

import pytest

from apps.accounts.models import Membership
from apps.core.enums import Group
from apps.core.models import Event
from apps.notifications.domain.atom_feeds import make_feed_address
from apps.notifications.domain.notifications import notify, unread_count
from apps.notifications.domain.preferences import follow_request, save_preferences
from apps.notifications.enums import Channel, Level, When
from apps.notifications.models import Message, Notification, Preferences, Webhook
from apps.production.domain.approvals.reminders import remind_of_holds
from apps.production.domain.holds import lift_hold, place_hold
from tests.factories.people import person
from tests.factories.requests import request_in
from tests.notifications.mail_server import text_of
from tests.notifications.test_atom_feeds import titles
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver, send, with_address

pytestmark = pytest.mark.django_db


@pytest.fixture
def bring(nova, dune, liaison, other_liaison, approver):
    """Return a function that makes a request of NOvA, or of DUNE, in a state,
    of which everybody was told.
    """

    def request(state="queued", experiment=nova):
        by = liaison if experiment == nova else other_liaison
        found = request_in(state, by=by, experiment=experiment, approver=approver)
        deliver()
        Notification.objects.all().delete()
        Message.objects.all().delete()
        return found

    return request


def hold(by, **what):
    placed = place_hold(by=by, at=AT, reason="Power cut.", **what)
    deliver()
    return placed


def told():
    return sorted(Notification.objects.values_list("user__username", "group"))


def trouble(*names):
    return [(name, Group.TROUBLE) for name in names]


def test_hold_of_an_experiment_is_told_once_to_each_of_its_people_and_so_is_its_end(
    bring, nova, dune, shifter
):
    for state in ("queued", "running", "awaiting_approval"):
        bring(state)
    bring("running", dune)
    person("nova-two", ("liaison", nova))
    placed = hold(shifter, experiment=nova)
    assert told() == trouble("nova-liaison", "nova-two")
    Notification.objects.all().delete()
    lift_hold(hold=placed, by=shifter, at=AT)
    deliver()
    assert told() == [("nova-liaison", Group.PROGRESS), ("nova-two", Group.PROGRESS)]


def test_hold_of_all_production_is_told_to_those_with_requests_under_way(
    bring, dune, nova, shifter
):
    bring("running")
    bring("draft", dune)
    bring("done", dune)
    hold(shifter)
    assert told() == trouble("nova-liaison")


def test_hold_of_all_production_notifies_all_experiments_but_not_its_author(bring, nova, dune):
    bring("running")
    bring("queued", dune)
    hold(person("two-hats", ("shifter", None), ("liaison", dune)))
    assert told() == trouble("dune-liaison", "nova-liaison")


def test_hold_of_a_stage_is_told_once_as_before(bring, shifter):
    hold(shifter, stage=bring("running").stages.first())
    assert told() == trouble("nova-liaison")
    assert Notification.objects.get().request is not None


def test_whoever_muted_all_requests_under_it_is_not_told_and_watchers_are(
    bring, liaison, shifter, approver, nova
):
    one, two = bring("running"), bring("queued")
    follow_request(request=one, user=liaison, level=Level.MUTED)
    follow_request(request=one, user=approver, level=Level.WATCHING)
    placed = hold(shifter, experiment=nova)
    assert told() == trouble("nova-liaison", "opg-one")
    follow_request(request=two, user=liaison, level=Level.MUTED)
    Notification.objects.all().delete()
    lift_hold(hold=placed, by=shifter, at=AT)
    deliver()
    assert [name for name, _ in told()] == ["opg-one"]


def test_mail_by_the_persons_rules(bring, mail_server, liaison, other_liaison, shifter, dune):
    with_address(liaison, other_liaison)
    bring("running")
    bring("running")
    bring("running", dune)
    rules = {(Channel.MAIL, Group.TROUBLE): When.NEVER}
    save_preferences(
        user=other_liaison, digest_hour=8, quiet_from=None, quiet_until=None, rules=rules
    )
    placed = hold(shifter)
    assert send(AT)
    (mail,) = mail_server.mails
    assert (mail["X-To"], mail["Subject"]) == (
        "nova-liaison@example.org",
        "[opsportal] All production",
    )
    for words in (
        "All production is on hold: no new jobs start",
        "Power cut.",
        f"https://portal.example.org/notifications/{Notification.objects.get(user=liaison).pk}/",
    ):
        assert words in text_of(mail)
    lift_hold(hold=placed, by=shifter, at=AT)
    deliver()
    assert send(AT + timedelta(days=1))
    assert [mail["X-To"] for mail in mail_server.mails[1:]] == [
        "nova-liaison@example.org",
        "dune-liaison@example.org",
    ]
    assert "All production is no longer on hold" in text_of(mail_server.mails[1])


def test_removed_member_gets_no_mail_and_sees_nothing(bring, mail_server, liaison, shifter, nova):
    with_address(liaison)
    bring("running")
    hold(shifter, experiment=nova)
    hold(shifter)
    assert unread_count(liaison) == 2
    Membership.objects.filter(user=liaison).delete()
    del liaison._scope
    assert unread_count(liaison) == 0
    assert send(AT)
    assert mail_server.mails == []


def test_list_and_feeds_have_it(bring, browse, client, liaison, other_liaison, shifter, nova, dune):
    bring("running")
    bring("running", dune)
    hold(shifter, experiment=nova)
    hold(shifter)
    page = " ".join(browse(liaison).get("/notifications/").content.decode().split())
    assert ">NOvA is on hold: no new jobs start</a>" in page
    row = Notification.objects.filter(user=liaison).first()
    opened = browse(liaison).get(f"/notifications/{row.pk}/")
    assert opened["Location"] == "/requests/holds/"
    rows = browse(liaison).get("/api/v1/notifications/").json()["results"]
    assert {(row["about"], row["request"]) for row in rows} == {
        ("NOvA", None),
        ("All production", None),
    }
    held = ["All production is on hold: no new jobs start", "NOvA is on hold: no new jobs start"]
    for user, key, wanted in ((liaison, "NOVA", held), (other_liaison, "DUNE", held[:1])):
        make_feed_address(user=user, by=user, at=AT)
        token = Preferences.objects.get(user=user).feed_token
        assert titles(client.get(f"/feeds/{token}/inbox.atom")) == wanted
        assert titles(client.get(f"/feeds/{token}/experiments/{key}.atom"))[: len(wanted)] == wanted


def test_told_once_and_in_as_many_queries_however_many_there_are(
    bring, nova, shifter, settings, django_assert_num_queries
):
    settings.EMAIL_HOST = "mail.example.org"
    bring("running")
    hold(shifter)
    event = Event.objects.get(kind="hold.placed")
    for first, last in ((0, 2), (2, 6)):
        for number in range(first, last):
            bring("queued")
            some = person(f"nova-{number}", ("liaison", nova))
            with_address(some)
            Webhook.objects.create(
                user=some, url="https://a.example.org/", created_at=AT, created_by=some
            )
        Notification.objects.all().delete()
        Message.objects.all().delete()
        with django_assert_num_queries(15):
            assert notify(event=event) == last + 1
        assert notify(event=event) == 0
        sent = [
            Message.objects.filter(channel=channel).count()
            for channel in (Channel.MAIL, Channel.WEBHOOK)
        ]
        assert (sent, len(told())) == ([last, last], last + 1)


def test_who_is_reminded_of_a_hold_is_told_and_nobody_else(bring, mail_server, shifter, nova):
    with_address(shifter)
    stage = bring("running").stages.first()
    for what in ({}, {"experiment": nova}, {"stage": stage}):
        hold(shifter, **what)
    Notification.objects.all().delete()
    Message.objects.all().delete()
    assert remind_of_holds(at=AT + timedelta(days=3)) == 3
    deliver()
    assert told() == [("shift-one", Group.TURN)] * 3
    assert send(AT + timedelta(days=4))
    texts = [text_of(mail) for mail in mail_server.mails]
    for words in (
        "All production is still on hold",
        "NOvA is still on hold",
        "has a stage still on hold",
    ):
        assert any(words in text for text in texts), words
