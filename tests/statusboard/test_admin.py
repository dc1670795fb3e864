"""The board in the back office: what would break it is refused there."""

import json
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.statusboard.models import LabelRule, MonitoringSource, RawPayload, Service
from tests.factories.statusboard import post, service, source, states, watchdog
from tests.pages import text_of


@pytest.fixture
def back_office(client, admin):
    client.force_login(admin)
    return client


@pytest.mark.parametrize(
    "matchers", ["[1]", '"job"', "3", '{"job": 1}', '{"job": null}', '{"job": ["a"]}']
)
def test_rule_whose_labels_are_no_texts_is_refused(back_office, at, matchers):
    data = {"source": source(at).pk, "matchers": matchers, "service": "", "state": ""}
    page = back_office.post("/admin/statusboard/labelrule/add/", data)
    assert b"Enter labels and text values" in page.content
    assert not LabelRule.objects.exists()


def test_rule_is_made(back_office, at):
    data = {
        "source": source(at).pk,
        "matchers": json.dumps({"job": "samweb"}),
        "service": "",
        "state": "",
    }
    assert back_office.post("/admin/statusboard/labelrule/add/", data).status_code == 302
    assert str(LabelRule.objects.get()) == "job=samweb"


def test_sources_lead_admins_to_their_settings_and_ask_before_a_token_is_replaced(
    back_office, client, shifter, at
):
    monitoring_source = source(at)
    address = f"/admin/statusboard/monitoringsource/{monitoring_source.pk}/change/"
    page_of_source = reverse("statusboard:source", args=[monitoring_source.slug])
    assert f'href="{page_of_source}"' in back_office.get("/services/monitoring/sources/").text
    page = back_office.get(page_of_source).text
    assert f'href="{address}"' in page
    assert "Replace all tokens by a new one? The source can send nothing until it has it." in page
    settings = back_office.get(address).text
    assert f'href="{page_of_source}"' in settings
    form = back_office.get("/services/monitoring/sources/new/").text
    for label in ("Name in links", "Format", "Fetch from", "Silent after", "Alerts end after"):
        assert label in settings
        assert label in form
    client.force_login(shifter)
    assert address not in client.get(page_of_source).text


def test_service_cannot_be_a_part_of_one_of_its_parts(back_office, at):
    top = service("storage", at)
    part = service("tape", at, parent=top)
    data = {"slug": "storage", "name": "storage", "monitoring": "none", "parent": part.pk}
    page = back_office.post(f"/admin/statusboard/service/{top.pk}/change/", data)
    assert b"A service cannot be a component of itself" in page.content
    top.refresh_from_db()
    assert top.parent is None


def test_watch_that_begins_later_makes_what_was_before_unknown(back_office, at):
    prometheus = source(at)
    samweb = service("samweb", at, source=prometheus)
    post(prometheus, at, watchdog(at))
    later = at + timedelta(minutes=5)
    local = timezone.localtime(later)
    data = {
        "name": "prometheus",
        "feed": "alertmanager",
        "monitored_since_0": f"{local:%Y-%m-%d}",
        "monitored_since_1": f"{local:%H:%M:%S}",
        "heartbeat_timeout_seconds": "15 min",
        "lease_seconds": "1 h",
    }
    assert (
        back_office.post(
            f"/admin/statusboard/monitoringsource/{prometheus.pk}/change/", data
        ).status_code
        == 302
    )
    assert MonitoringSource.objects.get().monitored_since == later
    assert states(samweb, at) == [("unknown", None), ("up", 5), ("unknown", 15)]


def test_list_of_payloads_does_not_load_their_bodies(
    back_office, at, django_assert_max_num_queries
):
    post(source(at), at, watchdog(at))
    with django_assert_max_num_queries(20) as queries:
        assert back_office.get("/admin/statusboard/rawpayload/").status_code == 200
    assert not any(
        '"statusboard_rawpayload"."body"' in query["sql"] for query in queries.captured_queries
    )
    page = back_office.get(f"/admin/statusboard/rawpayload/{RawPayload.objects.get().pk}/change/")
    assert b"Watchdog" in page.content


def test_monitored_service_without_source_or_time_is_told_at_the_field(back_office):
    values = {"name": "Tape", "slug": "tape", "monitoring": "feed"}
    page = text_of(back_office.post("/admin/statusboard/service/add/", values))
    assert "Choose the source whose alerts report this service." in page
    assert "Enter the date and time since when it is monitored." in page
    assert "Constraint" not in page
    assert not Service.objects.filter(slug="tape").exists()


def test_monitored_service_with_a_wrong_time_gets_one_message_for_it(back_office):
    values = {"name": "Tape", "slug": "tape", "monitoring": "manual"}
    values |= {"monitored_since_0": "yesterday", "monitored_since_1": "10:00"}
    page = text_of(back_office.post("/admin/statusboard/service/add/", values))
    assert "Enter a date such as" in page
    assert "since when it is monitored" not in page
    assert "Constraint" not in page


def test_several_services_are_chosen_by_check_boxes(client, admin, at):
    service("dcache", at)
    client.force_login(admin)
    for address in (
        reverse("admin:statusboard_service_add"),
        reverse("statusboard:schedule-window"),
        reverse("statusboard:post-announcement"),
    ):
        page = client.get(address).text
        assert 'type="checkbox" name="' in page
        assert "multiple" not in page
