"""Holds: who places and lifts them, what they cover, and where they are shown."""

from datetime import timedelta

import pytest
from django.urls import reverse

from apps.accounts.models import Experiment
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.production.domain.holds import hold_of, holds_over, lift_hold, place_hold
from apps.production.domain.priority.ranks import queue_ranks
from apps.production.models import Hold
from tests.factories.people import person
from tests.factories.requests import AT, request_in


@pytest.fixture
def running(nova, liaison, approver):
    return request_in("running", by=liaison, experiment=nova, approver=approver)


@pytest.fixture
def foreign(dune, other_liaison, approver):
    return request_in("queued", by=other_liaison, experiment=dune, approver=approver)


def test_each_level_holds_what_is_below_it_and_nothing_else(running, foreign, nova, shifter):
    first, second = running.stages.all()
    assert hold_of(running, first) is None
    stage = place_hold(by=shifter, at=AT, reason="Wrong seeds.", stage=first)
    assert hold_of(running, first).reason == "Wrong seeds."
    assert hold_of(running, second) is hold_of(running) is None
    wide = place_hold(by=shifter, at=AT, reason="Farm is full.", experiment=nova)
    assert hold_of(running, second).level == hold_of(running, first).level == "experiment"
    assert hold_of(foreign, foreign.stages.first()) is None
    place_hold(by=shifter, at=AT, reason="Power cut.")
    assert hold_of(foreign, foreign.stages.first()).level == "global"
    assert [held.level for held in holds_over(running)] == ["global", "experiment", "stage"]
    for hold in (stage, wide, Hold.objects.get(experiment=None, stage=None)):
        lift_hold(hold=hold, by=shifter, at=AT)
    assert holds_over(running) == [] == holds_over(foreign)


def test_held_state_is_the_hold_of_a_request(nova, liaison, approver):
    held = request_in("on_hold", by=liaison, experiment=nova, approver=approver)
    hold = hold_of(held, held.stages.first())
    assert (hold.level, hold.reason, hold.by) == ("request", "for the freeze", approver.username)


def test_only_the_opg_holds(running, nova, liaison, admin, shifter):
    for by in (liaison, admin):
        with pytest.raises(NotAllowed):
            place_hold(by=by, at=AT, reason="x", stage=running.stages.first())
    of_nova = person("nova-shifter", ("shifter", nova))
    hold = place_hold(by=of_nova, at=AT, reason="x", experiment=nova)
    with pytest.raises(NotAllowed):
        place_hold(by=of_nova, at=AT, reason="x")
    with pytest.raises(NotAllowed):
        lift_hold(hold=hold, by=liaison, at=AT)


def test_second_of_two_is_told(running, nova, shifter, approver):
    hold = place_hold(by=shifter, at=AT, reason="x", experiment=nova)
    with pytest.raises(InvalidTransition, match="already on hold"):
        place_hold(by=approver, at=AT, reason="y", experiment=nova)
    lift_hold(hold=Hold.objects.get(), by=approver, at=AT)
    with pytest.raises(InvalidTransition, match="already lifted"):
        lift_hold(hold=hold, by=shifter, at=AT)
    place_hold(by=shifter, at=AT, reason="again", experiment=nova)
    assert Hold.objects.count() == 2
    kinds = (
        Event.objects.filter(kind__startswith="hold.").order_by("pk").values_list("kind", flat=True)
    )
    assert list(kinds) == ["hold.placed", "hold.lifted", "hold.placed"]


def test_reason_and_a_request_under_way_are_needed(nova, liaison, approver, shifter):
    with pytest.raises(InvalidFields):
        place_hold(by=shifter, at=AT, reason="  ")
    draft = request_in("draft", by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidTransition):
        place_hold(by=shifter, at=AT, reason="x", stage=draft.stages.first())


def test_queue_keeps_its_order(nova, liaison, approver, shifter):
    for _ in range(3):
        request_in("queued", by=liaison, experiment=nova, approver=approver)
    before = queue_ranks()
    hold = place_hold(by=shifter, at=AT, reason="x", experiment=nova)
    assert queue_ranks() == before
    lift_hold(hold=hold, by=shifter, at=AT + timedelta(hours=1))
    assert queue_ranks() == before


def test_banner_is_seen_by_those_it_concerns(
    running, foreign, nova, shifter, liaison, other_liaison, browse
):
    place_hold(by=shifter, at=AT, reason="<b>full</b>", experiment=nova)
    for url in (running.get_absolute_url(), reverse("production:queue"), reverse("portal:home")):
        assert "&lt;b&gt;full" in browse(liaison).get(url).content.decode(), url
    for url in (foreign.get_absolute_url(), reverse("production:queue"), reverse("portal:home")):
        assert "&lt;b&gt;full" not in browse(other_liaison).get(url).content.decode(), url


def test_page_places_and_lifts(running, shifter, liaison, browse):
    page, client = reverse("production:holds"), browse(shifter)
    data = {"request": running.key, "stage": 2, "reason": "Too many failures."}
    assert client.post(page, data).status_code == 302
    assert client.post(page, data).status_code == 400
    assert client.post(page, {**data, "stage": 9}).status_code == 400
    assert client.post(page, {"stage": "1", "reason": "half a name"}).status_code == 400
    assert [hold.stage.position for hold in Hold.objects.all()] == [1]
    assert "Too many failures." in browse(liaison).get(page).content.decode()
    assert browse(liaison).post(page, data).status_code == 403
    assert (
        client.post(reverse("production:hold-lift", args=[Hold.objects.get().pk])).status_code
        == 302
    )
    assert Hold.objects.get().lifted_by == shifter


def test_api_places_and_lifts(running, shifter, liaison, browse):
    url, client = reverse("api:hold-list"), browse(shifter)
    made = client.post(
        url, {"request": running.key, "stage": 1, "reason": "x"}, content_type="application/json"
    )
    assert (made.status_code, made.json()["level"]) == (201, "stage")
    refused = browse(liaison).post(
        url, {"experiment": "NOVA", "reason": "x"}, content_type="application/json"
    )
    assert refused.status_code == 403
    assert (
        client.post(
            url, {"request": "NOVA-9", "reason": "x"}, content_type="application/json"
        ).status_code
        == 400
    )
    assert [row["request"] for row in browse(liaison).get(url).json()["results"]] == [running.key]
    assert (
        client.post(
            reverse("api:hold-lift", args=[made.json()["id"]]), content_type="application/json"
        ).status_code
        == 200
    )
    assert client.get(url).json()["results"] == []


def test_page_shows_some_at_a_time_the_latest_first(running, shifter, browse):
    experiments = Experiment.objects.bulk_create(
        Experiment(key=f"E{n}", name=f"E{n}") for n in range(51)
    )
    Hold.objects.bulk_create(
        Hold(
            reason=f"Wrong seeds {n}.",
            by=shifter,
            at=AT + timedelta(minutes=n),
            experiment=experiment,
        )
        for n, experiment in enumerate(experiments)
    )
    first = browse(shifter).get("/requests/holds/")
    reasons = [hold.reason for hold, _, _ in first.context["rows"]]
    assert (first.context["count"], len(reasons), reasons[0]) == (51, 50, "Wrong seeds 50.")
    last = browse(shifter).get(f"/requests/holds/{first.context['page'].next_query}")
    assert [hold.reason for hold, _, _ in last.context["rows"]] == ["Wrong seeds 0."]
    assert "Newest" in last.content.decode()


def test_page_lists_requests_on_hold_beside_the_holds(nova, liaison, approver, shifter, browse):
    held = request_in("on_hold", by=liaison, experiment=nova, approver=approver)
    page = browse(shifter).get(reverse("production:holds")).content.decode()
    assert f'href="{held.get_absolute_url()}"' in page.partition("Requests on hold")[2]
