"""The health page tells those who run the portal what is wrong with it;
the system check tells of plugins.
"""

import re
from datetime import timedelta
from html import unescape
from importlib.metadata import EntryPoint

import pytest
from django.core.management import call_command
from django.utils import timezone

from apps.core.domain import plugins
from apps.core.domain.events import publish
from apps.core.domain.health import beat_capture, beat_heart
from apps.core.domain.outbox import EVENTS
from apps.core.domain.plugins import Registry
from apps.core.domain.secrets.masking import Masker
from apps.core.models import Delivery, Heartbeat, Work
from apps.jobs.models import Collection
from apps.portal.pages.doctor.processes import check_captures
from apps.portal.pages.health import page as health
from apps.portal.pages.health.queues import QUEUES
from apps.portal.web import warm_up
from apps.statusboard.models import MonitoringSource, RawPayload
from tests.factories import clusters
from tests.factories.statusboard import source
from tests.pages import text_of


def page_of(client, user) -> str:
    client.force_login(user)
    response = client.get("/health/")
    assert response.status_code == 200
    return text_of(response)


def test_superuser_without_a_role_sees_it_and_a_link_to_it(client, db, django_user_model):
    first = django_user_model.objects.create_superuser("first", password="x")
    assert "Health" in page_of(client, first)
    assert client.get("/health/storage/").status_code == 200
    assert client.get("/metrics").status_code == 200
    assert 'href="/health/"' in client.get("/accounts/settings/").content.decode()


def test_others_without_a_role_do_not(client, db, django_user_model):
    client.force_login(django_user_model.objects.create_user("second", is_staff=True))
    for path in ("/health/", "/health/storage/", "/metrics"):
        assert client.get(path).status_code == 403


@pytest.fixture
def broken(monkeypatch):
    """A kind of plugins in which one is broken and one repeats a name."""
    third_party = [
        EntryPoint("path", "other:Path", "x"),
        EntryPoint("lost", "no_such_module:Thing", "x"),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: third_party)
    monkeypatch.setattr(plugins, "REGISTRIES", [])
    monkeypatch.setattr(
        health, "PLUGINS", (Registry(group="test.kind", builtins={"path": "pathlib:Path"}),)
    )


def test_every_kind_of_plugin_is_judged():
    assert {id(each) for each in health.PLUGINS} == {id(each) for each in plugins.REGISTRIES}


@pytest.mark.parametrize(
    ("key", "is_named"), [("the portal's", False), ("another", True), (None, False)]
)
def test_capture_with_another_masking_key_is_named(client, shifter, settings, key, is_named):
    """One of an earlier version, which sends no id of its key, is not."""
    settings.MASKING_KEY = "the portal's"
    detail = {}
    if key:
        detail["masking_key_id"] = Masker(names="", key=key.encode()).key_id
    beat_heart(name="capture farm on a", at=timezone.now(), detail=detail)

    assert ("its MASKING_KEY is not the portal's" in unescape(page_of(client, shifter))) == is_named
    findings = {finding.check: finding for finding in check_captures(timezone.now())}
    fix = findings["report of capture farm on a"].fix
    assert fix.startswith("Copy the portal's MASKING_KEY") == is_named


def test_page_shows_what_capture_says_of_itself(client, shifter):
    detail = {"captured": 12, "waiting": 3, "unreadable": {"<b>job.5": "not a regular file"}}
    detail |= {
        "behind": 7,
        "lag_seconds": 90.0,
        "portal_error": "database away",
        "refused": 432,
        "why_refused": "<i>odd",
    }
    beat_heart(name="capture farm", at=timezone.now(), detail=detail)
    page = page_of(client, shifter)
    for text in (
        "capture farm",
        "7 jobs in the journal, oldest 1 min old",
        "the portal rejects 432 jobs, which stay in the journal: &lt;i&gt;odd",
        "hand-over: database away",
        "&lt;b&gt;job.5: not a regular",
    ):
        assert text in page


def test_answer_names_what_is_wrong_worst_first(client, shifter):
    beat_heart(name="capture farm", at=timezone.now(), detail={"behind": 7, "waiting": 7})
    farm = clusters.cluster("farm", "slurm")
    unreachable_since = {"collected_until": timezone.now(), "last_error": "no route"}
    Collection.objects.update_or_create(cluster=farm, defaults=unreachable_since)
    client.force_login(shifter)
    response = client.get("/health/")
    troubles = [(trouble.state, trouble.text) for trouble in response.context["troubles"]]
    unreachable = ("down", "Accounting of farm: no route")
    behind = ("degraded", "capture farm is behind: 7 jobs to hand over.")
    assert {unreachable, behind} <= set(troubles)
    assert troubles.index(unreachable) < troubles.index(behind)
    page = text_of(response)
    assert f"{len(troubles)} things need a look" in page
    assert page.index("Accounting of farm: no route") < page.index("<h2>Capture</h2>")
    assert '<a href="#accounting">Details</a>' in page


def test_answer_names_monitoring_that_is_silent_or_not_understood(client, shifter):
    now = timezone.now()
    source(now - timedelta(days=2), slug="silent", name="Grafana")
    heard = source(now, slug="odd", name="Nagios")
    payload = RawPayload(source=heard, received_at=now, notes="list “alerts” is missing")
    payload.body = b"{}"
    payload.save()
    source(now, slug="fine", name="Zabbix")
    heard_until = now + timedelta(minutes=9)
    MonitoringSource.objects.exclude(slug="silent").update(covered_until=heard_until)
    page = page_of(client, shifter)
    assert "Monitoring source Grafana sends nothing: the states of its services" in page
    assert "Monitoring source Nagios, payload not read: list “alerts” is missing" in page
    assert "Monitoring source Zabbix" not in page
    assert '<a href="#monitoring">Details</a>' in page


def test_answer_without_troubles_is_that_all_is_well(client, shifter, monkeypatch):
    monkeypatch.setattr(health, "troubles_of", lambda page: [])
    page = page_of(client, shifter)
    assert "All is well" in page
    assert "need a look" not in page


def test_page_takes_any_heartbeat(client, shifter):
    for name, detail in {
        "capture a": [1],
        "capture b": {"behind": [1], "host": 7, "unreadable": {"x": None}},
    }.items():
        Heartbeat.objects.create(name=name, at=timezone.now(), detail=detail)
    assert "capture b" in page_of(client, shifter)


def test_page_names_the_host_of_a_capture_elsewhere(client, shifter):
    beat_capture(cluster="farm", host="scheduler-1", at=timezone.now(), detail={"missed": 3})
    page = page_of(client, shifter)
    assert "capture farm on scheduler-1" in page
    assert "3 jobs were deleted before they could be read" in page


def test_page_shows_what_is_expected_and_was_never_heard(client, shifter):
    page = page_of(client, shifter)
    assert "beat" in page
    assert "no heartbeat yet" in page


def test_page_shows_deliveries_that_fail_and_no_others(client, shifter, nova):
    event = publish(kind="experiment.created", target=nova, by="test", at=timezone.now())
    lost = {"event": event, "due_at": timezone.now(), "attempts": 2, "last_error": "KeyError: 'x'"}
    Delivery.objects.create(subscriber="test.fails", **lost)
    Delivery.objects.create(subscriber="test.done", delivered_at=timezone.now(), **lost)
    page = page_of(client, shifter)
    assert "test.fails" in page
    assert "KeyError: &#x27;x&#x27;" in page
    assert "test.done" not in page


def test_page_shows_every_queue(client, shifter, nova):
    event = publish(kind="experiment.created", target=nova, by="test", at=timezone.now())
    Delivery.objects.all().delete()
    overdue = timezone.now() - timedelta(minutes=7, seconds=30)
    Delivery.objects.create(event=event, subscriber="test.late", due_at=overdue)
    page = page_of(client, shifter)
    for queue in QUEUES:
        assert queue.title in page
    row = page.partition(EVENTS.title)[2].partition("</tr>")[0]
    assert re.findall(r">([^<>]+)</td>", row) == ["1", "7 min", "0"]


def test_overdue_work_is_reported_in_the_units_of_its_table(client, shifter, nova):
    event = publish(kind="experiment.created", target=nova, by="test", at=timezone.now())
    Delivery.objects.all().delete()
    overdue = timezone.now() - timedelta(days=4, minutes=7)
    Delivery.objects.create(event=event, subscriber="test.late", due_at=overdue)
    page = page_of(client, shifter)
    assert f"{EVENTS.title}: overdue for 4 days." in page
    row = page.rpartition(EVENTS.title)[2].partition("</tr>")[0]
    assert ">4 days</td>" in row


def test_every_model_of_work_has_a_queue():
    models = {queue.model for queue in QUEUES}
    assert models == set(Work.__subclasses__())
    assert len({queue.name for queue in QUEUES}) == len(QUEUES)


def test_page_shows_a_cluster_that_cannot_be_asked(client, shifter, db):
    cluster = clusters.cluster("alps", "slurm")
    at = timezone.now() - timedelta(hours=2)
    Collection.objects.update_or_create(
        cluster=cluster, defaults={"collected_until": at, "last_error": "sacct: connection refused"}
    )
    page = page_of(client, shifter)
    assert "unreachable" in page
    assert "sacct: connection refused" in page
    assert "never read" in page
    Collection.objects.update(last_success_at=at)
    assert "never read" not in page_of(client, shifter)


def test_page_and_check_tell_of_broken_and_repeated_plugins(client, shifter, broken, capsys):
    page = page_of(client, shifter)
    assert "has the same name as pathlib:Path" in page
    assert "ModuleNotFoundError" in page
    call_command("check")
    told = capsys.readouterr().err
    assert told.count("opsportal.W001") == 2


def test_page_names_plugins_that_work_only_in_their_fold(client, shifter):
    page = page_of(client, shifter)
    card = page[page.index("<h2>Plugins</h2>") :]
    shown, _, folded = card.partition("<details")
    assert "opsportal." not in shown
    assert "opsportal." in folded.partition("</details>")[0]


def test_check_is_silent_when_all_plugins_work():
    assert health.check_plugins() == []


def test_settings_lead_the_opg_to_the_page(client, shifter, liaison):
    for user, leads in ((shifter, True), (liaison, False)):
        client.force_login(user)
        assert ('href="/health/"' in client.get("/accounts/settings/").content.decode()) is leads


@pytest.mark.parametrize(
    ("trusted", "demo", "warned"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_missing_trust_in_the_proxy_is_shown_at_start_on_the_page_and_by_the_check(
    client, shifter, settings, caplog, capsys, trusted, demo, warned
):
    settings.SILENCED_SYSTEM_CHECKS = ["async.E001"]  # tests in a browser allow it
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if trusted else None
    settings.DEMO = demo
    assert ("TRUST_PROXY is not set" in page_of(client, shifter)) is warned
    warm_up.load_ahead()
    assert [
        record.levelname for record in caplog.records if "TRUST_PROXY is not set" in record.message
    ] == (["WARNING"] * warned)
    call_command("check", deploy=True)
    assert ("(opsportal.W001) TRUST_PROXY is not set" in capsys.readouterr().err) is warned
    call_command("check")
    assert "W001" not in capsys.readouterr().err
