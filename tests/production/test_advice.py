from datetime import timedelta

import pytest
from rest_framework.test import APIClient

from apps.production.domain.advice import services_of_stage, submit_advice
from apps.statusboard.domain.announcements import post_announcement
from apps.statusboard.domain.incidents import open_incident
from apps.statusboard.domain.windows import schedule_window
from apps.statusboard.enums import Effect, State
from tests.factories import requests
from tests.factories.statusboard import service

HOUR = timedelta(hours=1)


@pytest.fixture
def samweb(at, nova, liaison):
    made = service("samweb", at - 90 * HOUR)
    requests.draft(liaison, nova, stages=(requests.stage("reco", services=("samweb",)),))
    return made


def told(user, at, hours: float = 0, stage: str = "reco"):
    advice = submit_advice(user=user, at=at, length=hours * HOUR, services=services_of_stage(stage, user))
    return advice.submit, advice.until, [reason.submit for reason in advice.reasons]


def test_a_job_waits_for_maintenance_that_it_would_meet(at, samweb, shifter, liaison):
    assert told(liaison, at, 12) == ("yes", None, [])
    times = {"starts_at": at + 10 * HOUR, "ends_at": at + 14 * HOUR}
    schedule_window(services=[samweb], title="Move", by=shifter, at=at, **times)
    schedule_window(services=[samweb], title="Look", by=shifter, at=at, effect=Effect.AT_RISK, **times)
    assert told(liaison, at, 10) == ("yes", None, [])
    assert told(liaison, at, 12) == ("wait", at + 14 * HOUR, ["wait", "yes"])
    assert told(liaison, at + 11 * HOUR) == ("wait", at + 14 * HOUR, ["wait"])
    assert told(liaison, at, 12, stage="gen") == ("yes", None, [])


def test_degraded_is_told_down_and_an_announcement_forbid(at, samweb, shifter, liaison, client):
    slow = open_incident(service=samweb, state=State.DEGRADED, title="slow", by=shifter, at=at)
    assert told(liaison, at) == ("yes", None, ["yes"])
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=at + HOUR)
    assert told(liaison, at + HOUR) == ("no", None, ["no"])
    post_announcement(title="Stop", by=shifter, at=at, ends_at=at + 2 * HOUR, do_not_submit=True)
    assert told(liaison, at, stage="gen") == ("no", at + 2 * HOUR, ["no"])
    api = APIClient()
    api.force_authenticate(liaison)
    assert api.get("/api/v1/advice/", {"stage": "reco", "length": "x"}).status_code == 400
    answer = api.get("/api/v1/advice/", {"stage": "reco", "length": 12}).json()
    assert answer.keys() == {"submit", "until", "reasons"}
    assert slow.is_open
