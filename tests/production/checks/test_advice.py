from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from apps.production.domain.advice import (
    AdviceReason,
    SubmitAdvice,
    request_advice,
    services_of_stage,
    submit_advice,
)
from apps.production.domain.content.stages import content_of
from apps.production.web.forms.request import typed
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.enums import State, WindowEffect
from apps.statusboard.models import Service
from tests.factories import requests
from tests.factories.statusboard import service
from tests.pages import text_of

HOUR = timedelta(hours=1)


@pytest.fixture
def samweb(at, nova, liaison):
    made = service("samweb", at - 90 * HOUR)
    requests.draft(liaison, nova, stages=(requests.stage("reco", services=("samweb",)),))
    return made


def told(user, at, hours: float = 0, stage: str = "reco"):
    advice = submit_advice(
        user=user, at=at, length=hours * HOUR, services=services_of_stage(stage, user)
    )
    return advice.submit, advice.until, [reason.submit for reason in advice.reasons]


def test_a_job_waits_for_maintenance_that_it_would_meet(at, samweb, shifter, liaison):
    assert told(liaison, at, 12) == ("yes", None, [])
    times = {"starts_at": at + 10 * HOUR, "ends_at": at + 14 * HOUR}
    schedule_window(services=[samweb], title="Move", by=shifter, at=at, **times)
    schedule_window(
        services=[samweb], title="Look", by=shifter, at=at, effect=WindowEffect.AT_RISK, **times
    )
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


def test_a_request_waits_by_the_time_limit_of_the_stage_that_needs_the_service(
    at, samweb, shifter, liaison, nova
):
    service("dcache", at - 90 * HOUR)
    times = {"starts_at": at + 10 * HOUR, "ends_at": at + 14 * HOUR}
    schedule_window(services=[samweb], title="Move", by=shifter, at=at, **times)
    for own, other, submit in ((12, 1, "wait"), (9, 12, "yes"), (10**12, 0, "wait")):
        stages = (
            requests.stage("reco", services=("samweb", "\0"), wall_seconds=own * 3600),
            requests.stage("gen", services=("dcache",), wall_seconds=other * 3600),
        )
        written = requests.content(stages=stages)
        assert (
            request_advice(content=written, experiment=nova, user=liaison, at=at).submit == submit
        )


def test_form_and_page_of_a_request_give_the_advice(samweb, shifter, liaison, nova, browse):
    now = timezone.now()
    stages = (requests.stage("reco", services=("samweb",)),)
    made = requests.draft(liaison, nova, stages=stages)
    addresses = (f"{made.get_absolute_url()}edit/?check=1", made.get_absolute_url())
    advice = "You can submit the request. Its jobs wait until samweb is up"

    def shown() -> list[int]:
        texts = []
        for address in addresses:
            texts.append(" ".join(text_of(browse(liaison).get(address)).split()))
        assert not any("Submit no jobs now" in text for text in texts)
        return [text.count(advice) for text in texts]

    assert shown() == [0, 0]
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=now)
    assert shown() == [1, 1]
    panel = browse(liaison).post(
        reverse("production:check-typed", args=[made.key]),
        dict(typed(content_of(made), version=1).lists()),
    )
    assert advice in " ".join(text_of(panel).split())


def test_page_of_a_running_request_advises_on_its_jobs_alone(
    samweb, shifter, liaison, approver, nova, browse
):
    stages = (requests.stage("reco", services=("samweb",)),)
    running = requests.request_in(
        "running", by=liaison, experiment=nova, approver=approver, stages=stages
    )
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=timezone.now())
    page = text_of(browse(liaison).get(running.get_absolute_url()))
    assert "Submit no jobs now" in page
    assert "You can submit the request" not in page


@pytest.mark.parametrize(
    ("state", "advice"), [("queued", "Its jobs wait until samweb is up"), ("data_quality", "")]
)
def test_page_tells_nobody_to_submit_no_jobs_while_there_are_none_to_submit(
    samweb, shifter, liaison, approver, nova, browse, state, advice
):
    stages = (requests.stage("reco", services=("samweb",)),)
    made = requests.request_in(state, by=liaison, experiment=nova, approver=approver, stages=stages)
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=timezone.now())
    page = " ".join(text_of(browse(liaison).get(made.get_absolute_url())).split())
    assert "Submit no jobs now" not in page
    assert "You can submit the request" not in page
    assert ("Its jobs wait" in page) == bool(advice)
    assert advice in page


@pytest.mark.parametrize(
    ("reasons", "waits_for"),
    [
        ([], ""),
        (["yes"], ""),
        (["no"], "service 0 is up"),
        (["no", "no", "wait", "yes"], "service 0 and service 1 are up"),
        (["no", None], ""),
    ],
)
def test_jobs_wait_for_services_unless_an_announcement_stops_them_too(reasons, waits_for):
    rows = []
    for number, submit in enumerate(reasons):
        needed = Service(slug=f"s{number}", name=f"service {number}") if submit else None
        rows.append(AdviceReason(submit or "no", "Because.", None, needed))
    assert SubmitAdvice("no", None, rows).waits_for == waits_for


def test_announcement_for_one_experiment_stops_only_its_jobs(
    at, samweb, shifter, liaison, other_liaison, nova, dune
):
    post_announcement(title="Stop", by=shifter, at=at, experiments=[dune], do_not_submit=True)
    for user in (shifter, liaison, other_liaison):
        written = requests.content()
        assert request_advice(content=written, experiment=nova, user=user, at=at).submit == "yes"
        assert request_advice(content=written, experiment=dune, user=user, at=at).submit == "no"
