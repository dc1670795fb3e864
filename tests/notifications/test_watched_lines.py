"""Users are notified of lines that they watch, and only of what they may see by then."""

from datetime import timedelta

import pytest
from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.notifications.domain.notifications import unread_count, visible_notifications
from apps.notifications.models import Message, Notification
from apps.search.domain.line_watches import watch_line, watches_of
from apps.search.domain.templates import LogTemplates, TemplateLine, store_templates
from tests.factories import clusters, people
from tests.factories import jobs as job_factory
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver, send, with_address

pytestmark = pytest.mark.django_db
LINE = "error: <b>no disk</b>"


def store(number, at):
    job = job_factory.row(
        clusters.cluster("alps"),
        number,
        at=AT,
        experiment=people.nova(),
        state=JobState.FAILED,
        ended_at=at,
    )
    store_templates([LogTemplates(job, {7: TemplateLine(LINE, True)})], at=at)


@pytest.fixture
def watcher():
    user = people.person("watcher", ("liaison", people.nova()))
    with_address(user)
    store(1, AT)
    watch_line(user=user, line_hash=7, at=AT)
    return user


def test_watcher_finds_the_line_among_the_notifications(watcher, client):
    store(2, AT + timedelta(minutes=5))
    deliver(AT + timedelta(minutes=6))
    (row,) = Notification.objects.all()
    assert (row.user, row.group) == (watcher, "trouble")
    client.force_login(watcher)
    page = client.get(reverse("notifications:list")).content.decode()
    assert "error: &lt;b&gt;no disk&lt;/b&gt;" in page
    assert "was written again by a job: you watch this line" in page
    opened = client.get(reverse("notifications:open", args=[row.pk]), follow=True)
    assert opened.redirect_chain[-1][0] == "/failures/where-else/?template=0000000000000007"


def test_who_lost_the_role_sees_nothing_of_the_line(watcher, client):
    store(2, AT + timedelta(minutes=5))
    deliver(AT + timedelta(minutes=6))
    assert unread_count(watcher) == 1
    watcher.memberships.all().delete()
    user = type(watcher).objects.get(pk=watcher.pk)
    assert not visible_notifications(user).exists()
    client.force_login(user)
    page = client.get(reverse("notifications:list")).content.decode()
    assert "no disk" not in page
    assert "A line of jobs that you may no longer see" in page


def test_mail_to_who_lost_the_role_is_dropped(watcher, mail_server):
    store(2, AT + timedelta(minutes=5))
    deliver(AT + timedelta(minutes=6))
    assert Message.objects.get().state == "waiting"
    watcher.memberships.all().delete()
    assert send(AT + timedelta(minutes=7))
    assert Message.objects.get().state == "dropped"


def test_mail_names_the_line(watcher, mail_server):
    store(2, AT + timedelta(minutes=5))
    deliver(AT + timedelta(minutes=6))
    assert send(AT + timedelta(minutes=7))
    assert Message.objects.get().state == "sent"


def test_watches_are_listed_and_removed_on_the_page(watcher, client):
    watch = watches_of(watcher).get()
    remove = reverse("notifications:remove-watch", args=[watch.pk])
    client.force_login(people.person("other", ("liaison", people.nova())))
    assert "Watched lines" not in client.get(reverse("notifications:list")).content.decode()
    assert client.post(remove).status_code == 404
    client.force_login(watcher)
    assert remove in client.get(reverse("notifications:list")).content.decode()
    assert client.get(remove).status_code == 303  # back to the page
    page = client.post(remove, follow=True).content.decode()
    assert "You no longer watch this line." in page
    assert not watches_of(watcher).exists()
