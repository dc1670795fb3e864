"""The page of a monitoring source: its tokens are rotated without a gap, and payloads are tried."""

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.core.models import Event
from apps.statusboard.domain.monitoring import trials
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.domain.monitoring.source_fetch import PullFailed
from apps.statusboard.domain.monitoring.source_tokens import authenticate_source
from apps.statusboard.domain.monitoring.trials import try_fetch, try_payload
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import Incident, RawPayload, Service, UnmappedAlert
from tests.factories.statusboard import alert, message, post, service, source
from tests.pages import text_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def now():
    return timezone.now()


@pytest.fixture
def prometheus(now):
    return source(now - HOUR)


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


def page_of(monitoring_source) -> str:
    return reverse("statusboard:source", args=[monitoring_source.slug])


def test_token_is_rotated_without_a_gap(office, prometheus):
    add = reverse("statusboard:source-token", args=[prometheus.slug])
    first = office.post(add, {"revoke_others": "1"}).context["token"]
    answer = office.post(add)
    second = answer.context["token"]
    assert "The older token still works." in text_of(answer)
    for token in (first, second):
        assert authenticate_source(slug="prometheus", token=token) == prometheus.pk
    assert "2 valid" in text_of(office.get(page_of(prometheus)))

    page = text_of(office.post(page_of(prometheus), {"do": "revoke-older"}, follow=True))

    assert "Revoked 1 older token. The newest one counts." in page
    assert "Revoke older tokens…" not in page
    assert authenticate_source(slug="prometheus", token=first) is None
    assert authenticate_source(slug="prometheus", token=second) == prometheus.pk
    event = Event.objects.get(kind="source.tokens_revoked")
    assert event.data == {"count": 1}
    office.post(page_of(prometheus), {"do": "revoke-older"})
    assert Event.objects.filter(kind="source.tokens_revoked").count() == 1


def test_payload_is_tried_and_not_stored(office, prometheus, shifter, now):
    service("dcache", now - HOUR, source=prometheus)
    samweb = service("samweb", now - HOUR, source=prometheus)
    add_rule(source=prometheus, matchers={"job": "sam"}, service=samweb, by=shifter, at=now)
    add_rule(source=prometheus, matchers={"job": "noise"}, service=None, by=shifter, at=now)
    body = message(
        alert(now, key="1", service="dcache"),
        alert(now, key="2", severity="warning", job="sam"),
        alert(now, key="3", job="noise"),
        alert(now - HOUR, now, key="4", service="dcache"),
        alert(now, key="5", job="<b>unknown</b>"),
    )
    data = {"do": "test", "payload": body.decode()}
    page = text_of(office.post(page_of(prometheus), data))
    result = page.partition('id="test"')[2]
    assert "show <b>dcache</b> as" in result
    assert "show <b>samweb</b> as" in result
    assert "ignore it, by a rule" in result
    assert "end the incident of <b>dcache</b>" in result
    assert "list it as an unmapped alert" in result
    assert "<b>unknown</b>" not in result
    assert not RawPayload.objects.exists()
    assert not UnmappedAlert.objects.exists()
    assert not Incident.objects.exists()


def test_source_that_reports_a_service_of_no_source_says_so(office, prometheus, now):
    service("samweb", now - HOUR)
    body = message(alert(now, key="1", service="samweb"))
    hint = "is not the source chosen for it"
    page = text_of(office.post(page_of(prometheus), {"do": "test", "payload": body.decode()}))
    assert hint in page
    assert "Also reports" not in page

    post(prometheus, now, alert(now, key="1", service="samweb"))

    page = text_of(office.get(page_of(prometheus)))
    assert "Also reports" in page
    assert "without alerts, the state is unknown instead of up" in page
    Service.objects.update(
        source=prometheus, monitoring=Monitoring.FEED, monitored_since=now - HOUR
    )
    page = text_of(office.post(page_of(prometheus), {"do": "test", "payload": body.decode()}))
    assert "Also reports" not in page
    assert hint not in page


def test_payload_that_cannot_be_read_is_explained(office, prometheus):
    page = text_of(office.post(page_of(prometheus), {"do": "test", "payload": "no JSON"}))
    assert "cannot be read" in page
    answer = office.post(page_of(prometheus), {"do": "test", "payload": ""})
    assert answer.status_code == 400
    assert "Paste a payload to try." in text_of(answer)


def test_long_lists_are_cut(prometheus, now):
    alerts = [alert(now, key=str(number), service="x") for number in range(150)]
    trial = try_payload(source=prometheus, body=message(*alerts))
    assert (len(trial.reports), trial.left_out) == (100, 50)


def test_fetch_is_made_by_a_worker_and_its_answer_shown(office, now, settings, monkeypatch):
    settings.FEED_HOSTS = ["alertmanager.example"]
    fetched = source(now - HOUR, slug="fetched", pull_url="https://alertmanager.example")
    cache.delete(trials._key(fetched.pk))
    page = office.get(page_of(fetched))
    assert "Fetch now" in text_of(page)
    page = text_of(office.post(page_of(fetched), {"do": "fetch"}, follow=True))
    assert "Fetching …" in page
    assert 'hx-trigger="every 2s"' in page

    monkeypatch.setattr(trials, "fetch", lambda **_: b"[]")
    try_fetch(source_id=fetched.pk)
    page = text_of(office.get(page_of(fetched)))
    assert "It can be read, but has no alerts." in page
    assert "It is a complete list" in page
    assert not RawPayload.objects.exists()

    def refuse(**_):
        raise PullFailed("It answers 401 Unauthorized")

    monkeypatch.setattr(trials, "fetch", refuse)
    office.post(page_of(fetched), {"do": "fetch"})
    try_fetch(source_id=fetched.pk)
    page = text_of(office.get(page_of(fetched)))
    assert "It answers 401 Unauthorized" in page
    fetched.refresh_from_db()
    assert fetched.pull_error == ""


def test_fetch_without_a_worker_ends(office, prometheus, now, settings):
    settings.FEED_HOSTS = ["alertmanager.example"]
    fetched = source(now - HOUR, slug="fetched", pull_url="https://alertmanager.example")
    trials._keep(fetched.pk, {"asked_at": now - HOUR})
    assert "No worker fetched it within 60 s." in text_of(office.get(page_of(fetched)))


def test_page_of_a_source_opens_while_redis_is_down(office, now, settings, monkeypatch):
    def fail(*args, **options):
        raise ConnectionError("Redis is down")

    settings.FEED_HOSTS = ["alertmanager.example"]
    fetched = source(now - HOUR, slug="fetched", pull_url="https://alertmanager.example")
    for method in ("get", "set"):
        monkeypatch.setattr(cache, method, fail)
    page = text_of(office.post(page_of(fetched), {"do": "fetch"}, follow=True))
    assert "It cannot be fetched while Redis is down." in page
    assert "Fetch now" in page


def test_first_admin_without_a_role_connects_monitoring(client, db):
    User.objects.create_superuser("root", password="correct horse battery")
    client.force_login(User.objects.get(username="root"))
    assert client.get(reverse("statusboard:source-new")).status_code == 200


def test_page_is_for_the_opg(client, liaison, prometheus):
    client.force_login(liaison)
    assert client.get(page_of(prometheus)).status_code == 403
    assert client.post(page_of(prometheus), {"do": "revoke-older"}).status_code == 403
