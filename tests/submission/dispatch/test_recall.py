"""Jobs that were sent end with their request, and wait in the scheduler's queue while it is
held.
"""

from datetime import timedelta

import pytest

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.production.domain.holds import lift_hold, place_hold
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.submission.domain.arrays.assignment import cancel_sent, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.recall import recall_sent
from tests.factories.requests import AT

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def sent(make, cluster, approver):
    request = make("running")
    assignment = choose_cluster(request=request, cluster=cluster, by=approver, at=AT)
    plan_next(assignment=assignment, at=AT)
    submission = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    submission.request.refresh_from_db()
    return submission


def kinds() -> list[str]:
    found = (
        Event.objects.filter(kind__startswith="submission.")
        .order_by("pk")
        .values_list("kind", flat=True)
    )
    return [
        kind for kind in found if kind.endswith(("cancelled", "held", "released", "cancel_asked"))
    ]


def test_jobs_of_a_cancelled_request_are_ended_once(sent, cluster, fake, liaison):
    assert recall_sent(cluster=cluster, at=LATER) == 0
    make_move(verb=Verb.CANCEL, request=sent.request, by=liaison, at=AT, reason="Not needed.")
    fake.mode("down")
    assert recall_sent(cluster=cluster, at=LATER) == 0, "it is tried again"
    fake.mode("ok")
    assert recall_sent(cluster=cluster, at=LATER) == 1
    assert recall_sent(cluster=cluster, at=LATER) == 0
    assert fake.told() == ["scancel --quiet 100"]
    assert kinds() == ["submission.cancelled"]


def test_an_operator_ends_jobs_of_a_request_that_goes_on(
    sent, cluster, fake, shifter, liaison, end_jobs
):
    with pytest.raises(NotAllowed):
        cancel_sent(request=sent.request, by=liaison, at=AT, reason="x")
    with pytest.raises(InvalidFields):
        cancel_sent(request=sent.request, by=shifter, at=AT, reason=" ")
    assert cancel_sent(request=sent.request, by=shifter, at=AT, reason="Wrong partition.") == 4
    with pytest.raises(InvalidTransition):
        cancel_sent(request=sent.request, by=shifter, at=AT, reason="Again.")
    recall_sent(cluster=cluster, at=LATER)
    assert fake.told() == ["scancel --quiet 100"]
    assert kinds() == ["submission.cancel_asked", "submission.cancelled"]
    end_jobs(sent, failed={0, 1, 2, 3}, state="cancelled")
    dispatch.refresh_progress(cluster=cluster, at=LATER)
    sent.refresh_from_db()
    assert sent.failed_indices == "0-3", "they can be sent again"


@pytest.mark.parametrize("level", ["request", "everything", "stage"])
def test_what_waits_is_held_in_the_queue_and_released(sent, cluster, fake, approver, level):
    request = sent.request
    if level == "request":
        make_move(verb=Verb.HOLD, request=request, by=approver, at=AT, reason="Wait.")
    else:
        stage = request.stages.first() if level == "stage" else None
        hold = place_hold(by=approver, at=AT, reason="Wait.", stage=stage)
    recall_sent(cluster=cluster, at=LATER)
    recall_sent(cluster=cluster, at=LATER)
    if level == "request":
        make_move(verb=Verb.RELEASE, request=request, by=approver, at=LATER)
    else:
        lift_hold(hold=hold, by=approver, at=LATER)
    recall_sent(cluster=cluster, at=LATER)
    recall_sent(cluster=cluster, at=LATER)
    assert fake.told() == ["scontrol hold 100", "scontrol release 100"]
    assert kinds() == ["submission.held", "submission.released"]


def test_jobs_that_ended_are_left_alone(sent, cluster, fake, liaison, end_jobs):
    end_jobs(sent)
    dispatch.refresh_progress(cluster=cluster, at=LATER)
    make_move(verb=Verb.CANCEL, request=sent.request, by=liaison, at=AT, reason="Not needed.")
    assert recall_sent(cluster=cluster, at=LATER) == 0
    assert fake.told() == []
