"""The list of notifications, its settings, and following a request."""

import pytest

from apps.core.domain.events import publish
from apps.notifications.domain.notifications import select_unread, visible_notifications
from apps.notifications.domain.preferences import preferences_of
from apps.notifications.models import Follow, Message, Notification, Preferences, Rule, Webhook
from apps.production.domain.discussion import withdraw_comment, write_comment
from tests.factories import people
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver
from tests.pages import text_of

pytestmark = pytest.mark.django_db


def page(client, path):
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_list_shows_what_is_new_and_the_frame_counts_it(browse, asked, liaison):
    publish(kind="request.reject", target=asked, by="opg-one", at=AT, reason="<b>no</b>")
    deliver()
    client = browse(liaison)
    text = page(client, "/notifications/")
    assert "was rejected" in text
    assert "“&lt;b&gt;no&lt;/b&gt;”" in text
    assert "2 unread" in text


def test_reading_marks_one_or_all_that_were_shown(browse, asked, liaison):
    client, first = browse(liaison), Notification.objects.get(user=liaison)
    publish(kind="request.done", target=asked, by="x", at=AT)
    deliver()
    client.post("/notifications/read/", {"until": first.pk, "only": first.pk})
    assert list(
        Notification.objects.filter(user=liaison, read_at=None).values_list(
            "event__kind", flat=True
        )
    ) == ["request.done"]
    client.post("/notifications/read/", {"until": first.pk})
    # It came after the page.
    assert Notification.objects.filter(user=liaison, read_at=None).count() == 1
    client.post("/notifications/read/", {"until": 2**60})
    assert "No unread notifications" in page(client, "/notifications/?show=unread")
    assert not Notification.objects.filter(user__username="opg-one", read_at__isnull=False).exists()


def test_kinds_of_events_are_shown_alone(browse, asked, liaison):
    client = browse(liaison)
    publish(kind="request.done", target=asked, by="x", at=AT)
    deliver()
    Notification.objects.filter(user=liaison, event__kind="request.done").update(group="turn")
    shown = client.get("/notifications/?group=turn")
    assert [entry.first.event.kind for entry in shown.context["entries"]] == ["request.done"]
    assert "Mark all as read" not in text_of(shown), "it would mark those that are not shown"
    assert len(client.get("/notifications/?group=nonsense").context["entries"]) == 2
    assert "No such notifications." in page(client, "/notifications/?group=failures")


def test_many_events_of_a_kind_and_day_are_one_line(browse, asked, liaison):
    client = browse(liaison)
    for _ in range(4):
        publish(kind="request.reject", target=asked, by="opg-one", at=AT)
    deliver()
    shown = client.get("/notifications/")
    [entry] = [line for line in shown.context["entries"] if line.others]
    assert len(entry.others) == 3
    assert "and 3 more like it" in text_of(shown)

    until = shown.context["until"]
    client.post("/notifications/read/", {"until": until, "only": entry.new})

    rows = Notification.objects.filter(user=liaison, event__kind="request.reject")
    assert not rows.filter(read_at=None).exists()
    assert client.post("/notifications/read/", {"until": until, "only": "1,x"}, follow=True)
    assert "Nothing was marked as read" in text_of(
        client.post("/notifications/read/", {"until": until, "only": "1,x"}, follow=True)
    )


def test_call_to_act_counts_as_read_once_the_request_has_moved_on(browse, asked, liaison):
    client = browse(liaison)
    publish(kind="request.return", target=asked, by="checks", at=AT, new=asked.state)
    publish(kind="request.request_changes", target=asked, by="opg-one", at=AT, new="draft")
    deliver()

    rows = select_unread(visible_notifications(liaison)).filter(group="turn")

    assert asked.state != "draft"
    assert [row.event.kind for row in rows] == ["request.return"]
    assert "needs changes" not in page(client, "/notifications/?show=unread")
    assert "needs changes" in page(client, "/notifications/")


def test_settings_without_a_mail_server_offer_no_mail(browse, liaison, settings):
    settings.EMAIL_HOST = ""
    client = browse(liaison)
    shown = client.get("/notifications/settings/")
    assert 'name="mail_turn"' not in text_of(shown)
    assert 'name="webhook_turn"' in text_of(shown)
    assert "Digest at" not in text_of(shown)
    fields = {}
    for field in shown.context["form"].fields:
        if field.startswith("webhook_"):
            fields[field] = "never"
    assert client.post("/notifications/settings/", fields).status_code == 302
    assert not Rule.objects.filter(user=liaison, channel="mail").exists()
    assert preferences_of(liaison).digest_hour == 8


def test_opening_marks_as_read_and_leads_to_what_it_is_about(browse, asked, liaison, other_liaison):
    row = Notification.objects.get(user=liaison)
    address = f"/notifications/{row.pk}/"
    assert f'href="{address}"' in page(browse(liaison), "/notifications/")
    assert browse(other_liaison).get(address).status_code == 404
    assert Notification.objects.filter(pk=row.pk, read_at=None).exists()
    assert browse(liaison).head(address).status_code == 302
    assert Notification.objects.filter(pk=row.pk, read_at=None).exists()
    assert browse(liaison).get(address)["Location"] == asked.get_absolute_url()
    assert not Notification.objects.filter(pk=row.pk, read_at=None).exists()


def test_mention_shows_what_was_said_until_it_is_withdrawn(browse, asked, liaison, approver):
    words = f"@{liaison.username} <b>Why so few jobs?</b>"
    comment = write_comment(request=asked, text=words, by=approver, at=AT)
    deliver()
    client = browse(liaison)
    assert "&lt;b&gt;Why so few jobs?&lt;/b&gt;”" in page(client, "/notifications/")
    assert client.get("/api/v1/notifications/").json()["results"][0]["text"] == words
    row = Notification.objects.get(user=liaison, event__kind="request.commented")
    opened = client.get(f"/notifications/{row.pk}/")
    assert opened["Location"] == f"{asked.get_absolute_url()}#comment-{comment.pk}"
    withdraw_comment(comment=comment, by=approver, at=AT)
    assert "Why so few jobs?" not in page(client, "/notifications/")
    assert "Why so few jobs?" not in client.get("/api/v1/notifications/").content.decode()


@pytest.mark.parametrize(
    "data", [{}, {"until": "x"}, {"until": -1}, {"until": 2**70}, {"until": 1, "only": "\0"}]
)
def test_nonsense_marks_nothing(browse, asked, liaison, data):
    assert browse(liaison).post("/notifications/read/", data).status_code == 302
    assert Notification.objects.filter(read_at__isnull=False).count() == 0


def test_empty_list_says_what_will_come(browse, db):
    assert "No notifications yet" in page(browse(people.person("nobody")), "/notifications/")


def filled(client, **changes):
    form = client.get("/notifications/settings/").context["form"]
    values = {name: form[name].value() for name in form.fields}
    return {name: value for name, value in (values | changes).items() if value is not None}


def test_settings_are_kept_and_only_what_differs_is_stored(browse, liaison, settings):
    settings.EMAIL_HOST = "mail.example.org"
    client = browse(liaison)
    data = filled(client, mail_turn="never", digest_hour=7, quiet_from="22:00", quiet_until="06:30")
    assert client.post("/notifications/settings/", data).status_code == 302
    assert list(Rule.objects.values_list("channel", "group", "when")) == [("mail", "turn", "never")]
    again = filled(client)
    assert again["mail_turn"] == "never"
    assert (again["digest_hour"], str(again["quiet_from"])) == (7, "22:00:00")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quiet_from": "22:00"}, "Enter both times"),
        ({"quiet_from": "22:00", "quiet_until": "22:00"}, "are the same"),
        ({"webhook_turn": "digest"}, "choose one from the list"),
        ({"digest_hour": "25"}, "choose one from the list"),
        ({"quiet_from": "late"}, "Enter a time such as 14:30"),
    ],
)
def test_bad_settings_come_back_with_what_is_wrong(browse, liaison, settings, changes, said):
    settings.EMAIL_HOST = "mail.example.org"
    client = browse(liaison)
    response = client.post("/notifications/settings/", filled(client, **changes))
    assert response.status_code == 400
    assert said in response.content.decode()
    assert not Preferences.objects.exists()


def test_webhook_secret_is_shown_once(browse, liaison):
    client = browse(liaison)
    response = client.post(
        "/notifications/settings/webhooks/", {"url": "https://chat.example.org/hook/s3cret"}
    )
    secret = response.context["new_secret"]
    assert secret in response.content.decode()
    text = page(client, "/notifications/settings/")
    assert secret not in text
    assert "chat.example.org" in text
    assert "s3cret" not in text


def test_webhook_of_the_inside_is_refused_beside_its_field(browse, liaison):
    response = browse(liaison).post(
        "/notifications/settings/webhooks/", {"url": "https://127.0.0.1/"}
    )
    assert response.status_code == 400
    assert "WEBHOOK_NETWORKS" in response.content.decode()
    assert not Webhook.objects.exists()


def test_liaison_adds_none_for_an_experiment_and_changes_none_of_others(
    browse, liaison, shifter, nova
):
    client = browse(shifter)
    client.post(
        "/notifications/settings/webhooks/", {"url": "https://a.example.org/", "experiment": "NOVA"}
    )
    hook = Webhook.objects.get()
    assert hook.experiment == nova
    client = browse(liaison)
    client.post(
        "/notifications/settings/webhooks/", {"url": "https://b.example.org/", "experiment": "NOVA"}
    )
    assert Webhook.objects.exclude(pk=hook.pk).get().user == liaison
    assert (
        client.post(f"/notifications/settings/webhooks/{hook.pk}/", {"do": "remove"}).status_code
        == 404
    )
    assert (
        browse(shifter)
        .post(f"/notifications/settings/webhooks/{hook.pk}/", {"do": "remove"})
        .status_code
        == 302
    )
    assert not Webhook.objects.filter(pk=hook.pk).exists()


def test_feed_addresses_are_made_and_revoked(browse, liaison, asked):
    client = browse(liaison)
    assert "inbox.atom" not in page(client, "/notifications/settings/")
    client.post("/notifications/settings/feeds/", {"do": "make"})
    text = page(client, "/notifications/settings/")
    assert "inbox.atom" in text
    assert "experiments/NOVA.atom" in text
    assert f"requests/{asked}.atom" in page(client, f"/notifications/requests/{asked}/")
    client.post("/notifications/settings/feeds/", {"do": "revoke"})
    assert "inbox.atom" not in page(client, "/notifications/settings/")


def test_request_is_watched_and_muted_by_post_alone(browse, liaison, asked):
    client, path = browse(liaison), f"/notifications/requests/{asked}/"
    assert "notifications of your roles" in page(client, path)
    assert client.post(path, {"level": "watching"}).headers["Location"] == f"/requests/{asked}/"
    assert "You are watching this request" in page(client, path)
    client.post(path, {"level": "muted"})
    assert "You have muted this request" in page(client, path)
    client.post(path, {"level": "everything"})
    assert Follow.objects.get().level == "muted"
    client.post(path, {"level": ""})
    assert not Follow.objects.exists()


def test_page_of_the_request_has_the_card(browse, liaison, asked):
    card = page(browse(liaison), f"/requests/{asked}/").partition(
        f'action="/notifications/requests/{asked}/"'
    )[2]
    assert "Watch" in card


def test_queries_do_not_grow_with_notifications(browse, liaison, asked, django_assert_num_queries):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client = browse(liaison)
    with CaptureQueriesContext(connection) as before:
        page(client, "/notifications/")
    for _ in range(8):
        publish(kind="request.done", target=asked, by="x", at=AT)
    deliver()
    with django_assert_num_queries(len(before)):
        assert page(client, "/notifications/").count("is done") >= 8


def test_admin_sends_again_what_was_refused(client, admin, liaison):
    message = Message.objects.create(
        channel="mail", user=liaison, state="refused", created_at=AT, due_at=AT, refusals=24
    )
    client.force_login(admin)
    data = {"action": "send_again", "_selected_action": [message.pk], "confirmed": "yes"}
    assert client.post("/admin/notifications/message/", data).status_code == 302
    message.refresh_from_db()
    assert (message.state, message.refusals) == ("waiting", 0)


def test_health_page_tells_of_channels(client, shifter, liaison, settings):
    settings.EMAIL_HOST = ""
    Message.objects.create(
        channel="mail", user=liaison, created_at=AT, due_at=AT, attempts=3, last_error="451 <later>"
    )
    client.force_login(shifter)
    text = page(client, "/health/")
    assert "no mail server" in text
    assert "451 &lt;later&gt;" in text
