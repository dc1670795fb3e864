"""An incident that is really two outages is divided in time."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.core.errors import InvalidFields, NotAllowed, StaleState
from apps.core.models import Event
from apps.statusboard.domain.incidents.corrections import divide_incident, merge_incident
from apps.statusboard.domain.incidents.incidents import open_incident, update_incident
from apps.statusboard.domain.incidents.notes import post_update
from apps.statusboard.enums import State
from apps.statusboard.models import Incident
from tests.factories.statusboard import alert, post, service, source, states

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def samweb(db, at):
    return service("samweb", at - 30 * 24 * HOUR, source=source(at - HOUR))


@pytest.fixture
def outage(samweb, at):
    """samweb down since `at`, by an alert that was told half a minute later."""
    post(samweb.source, at + MINUTE / 2, alert(at, service="samweb"))
    return Incident.objects.get()


def divide(incident, start, by, ended, resumed=None, **more):
    given = {"by": by, "at": start + HOUR, "reason": "The log.", "ended_at": start + ended * MINUTE}
    if resumed is not None:
        given["resumed_at"] = start + resumed * MINUTE
    return divide_incident(incident=incident, **{**given, **more})


def test_split_incident_divides_times_states_and_updates(samweb, outage, at, shifter):
    post_update(incident=outage, text="We look.", by=shifter, at=at + 5 * MINUTE)
    update_incident(
        incident=outage,
        state=State.DEGRADED,
        title="slow",
        by=shifter,
        at=at + 50 * MINUTE,
        reason="Slow only.",
    )
    post_update(incident=outage, text="Again.", by=shifter, at=at + 51 * MINUTE)
    second = divide(outage, at, shifter, 20, 40)
    first = Incident.objects.get(pk=outage.pk)
    assert (first.started_at, first.ended_at, first.resolution) == (at, at + 20 * MINUTE, "manual")
    assert (second.started_at, second.is_open, second.state, first.state) == (
        at + 40 * MINUTE,
        True,
        "degraded",
        "down",
    )
    assert [[note.text for note in part.notes.all()] for part in (first, second)] == [
        ["We look."],
        ["Again."],
    ]
    # Nothing was heard from the source in the gap.
    assert states(samweb, at)[:4] == [
        ("down", 0.0),
        ("unknown", 20.0),
        ("down", 40.0),
        ("degraded", 50.0),
    ]
    for one, kind in ((first, "incident.divided"), (second, "incident.split")):
        assert Event.objects.filter(target_id=str(one.pk)).latest("pk").kind == kind

    post(samweb.source, at + 2 * HOUR, alert(at, service="samweb"))
    post(samweb.source, at + 3 * HOUR, alert(at, at + 3 * HOUR, service="samweb"))
    second.refresh_from_db()
    assert (Incident.objects.count(), second.ended_at, second.resolution) == (
        2,
        at + 3 * HOUR,
        "resolved",
    )
    assert Incident.objects.get(pk=outage.pk).ended_at == at + 20 * MINUTE

    third = divide(second, at, shifter, 60, at=at + 4 * HOUR)  # without a gap, and a second time
    assert (third.started_at, third.ended_at) == (at + HOUR, at + 3 * HOUR)
    assert third.resolution == "resolved"


def test_state_before_the_first_report_is_kept_by_both_parts(samweb, outage, at, shifter):
    second = divide(outage, at, shifter, 0.2)
    assert [list(part.changes.values_list("state", flat=True)) for part in (outage, second)] == [
        ["down"],
        ["down"] * 2,
    ]
    assert states(samweb, at)[0] == ("down", 0.0)


def test_alerts_of_an_incident_go_to_the_part_in_which_they_started(samweb, outage, at, shifter):
    def merged(start: float, **more) -> Incident:
        made = open_incident(
            service=samweb,
            state=State.DOWN,
            title="x",
            by=shifter,
            at=at + HOUR,
            started_at=at + start * MINUTE,
        )
        Incident.objects.filter(pk=made.pk).update(**more)
        merge_incident(incident=made, into=outage, by=shifter, at=at + HOUR)
        return made

    over = {"resolution": "manual", "ended_at": at + 10 * MINUTE}
    early, late, across = merged(5, **over), merged(45), merged(15)
    with pytest.raises(InvalidFields):
        divide(outage, at, shifter, 20, 40)
    Incident.objects.filter(pk=across.pk).update(merged_into=None)
    second = divide(outage, at, shifter, 20, 40)
    assert [Incident.objects.get(pk=part.pk).merged_into_id for part in (early, late)] == [
        outage.pk,
        second.pk,
    ]
    with pytest.raises(StaleState):
        divide(early, at, shifter, 7)


@pytest.mark.parametrize(
    ("ended", "resumed", "reason", "field"),
    [
        (0, None, "x", "ended_at"),
        (60, None, "x", "ended_at"),
        (20, 10, "x", "resumed_at"),
        (20, 60, "x", "resumed_at"),
        (20, 40, " ", "reason"),
    ],
)
def test_times_are_within_the_incident_and_have_a_reason(
    outage, at, shifter, ended, resumed, reason, field
):
    with pytest.raises(InvalidFields) as refused:
        divide(outage, at, shifter, ended, resumed, reason=reason)
    assert list(refused.value.problems) == [field]
    assert Incident.objects.count() == 1


def test_only_those_who_run_the_board_divide(outage, at, liaison):
    with pytest.raises(NotAllowed):
        divide(outage, at, liaison, 20)


def test_page_and_api_divide(outage, at, client, shifter):
    client.force_login(shifter)
    assert "Divide in two" in client.get(outage.get_absolute_url()).content.decode()
    ended = {"ended_at": (at + 20 * MINUTE).isoformat(), "reason": "The log."}
    answer = client.post(
        f"/api/v1/incidents/{outage.pk}/divide/", ended, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
    second = Incident.objects.exclude(pk=outage.pk).get()
    assert answer.json()["id"] == second.pk
    later = {
        "ended_at": f"{timezone.localtime(at + 50 * MINUTE):%Y-%m-%dT%H:%M}",
        "resumed_at": "",
        "reason": "The log.",
    }
    page = client.post(f"{second.get_absolute_url()}divide/", later)
    assert (page.status_code, Incident.objects.count()) == (302, 3)
