"""What pages say about retries of rules that wait."""

import re
from datetime import timedelta

import pytest

from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.models import Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.recovery.domain.decisions.carry_out import act_on_due
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.models import Decision
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from tests.factories import statusboard
from tests.factories.verdicts import failure_group
from tests.pages import text_of
from tests.recovery.conftest import LATER


@pytest.fixture
def read(client, shifter, monkeypatch):
    """Return a function that reads a page half an hour after the failures."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: LATER + timedelta(minutes=30))
    client.force_login(shifter)

    def reading(address):
        text = re.sub("<[^>]*>", "", text_of(client.get(address)))
        return " ".join(text.split())

    return reading


def test_page_says_what_retries_of_rules_wait_for(read, shifter, rule, fail, send):
    rule("Service problem", control_percent=0)
    fail(send(), {0})
    enrol_failures(at=LATER)
    Verdict.objects.update(group=failure_group(at=LATER))
    decide_due(at=LATER)
    assert "cannot start" not in read("/recovery/"), "the retry is not due yet"

    act_on_due(at=LATER + timedelta(minutes=20))
    assert Decision.objects.get().batch is not None
    assert "cannot start" not in read("/recovery/"), "no service is down"

    samweb = statusboard.service("samweb", LATER - timedelta(days=3))
    outage = open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=LATER)
    Verdict.objects.update(service="samweb")
    shown = read("/recovery/")
    assert "1 batch of retries by rules cannot start. Waiting for samweb (down since" in shown

    close_incident(incident=outage, by=shifter, at=LATER, reason="It answers.")
    assert "cannot start" not in read("/recovery/")


def test_list_of_failures_says_what_is_retried_already(read, rule, fail, send):
    rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    Verdict.objects.update(group=failure_group(at=LATER))
    mark_dirty({hour_of(verdict.ended_at) for verdict in Verdict.objects.all()})
    recount_dirty_hours()
    assert "will be retried by recovery rules" not in read("/failures/")

    decide_due(at=LATER)
    planned = "2 will be retried by recovery rules."
    assert planned in read("/failures/")

    act_on_due(at=LATER + timedelta(minutes=20))
    assert "2 in batches of retries." in read("/failures/")
