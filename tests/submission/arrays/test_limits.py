"""The most jobs at once: who changes it, that it is told,
and that what was planned before keeps it too.
"""

import pytest

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.models import Event
from apps.datasets.models import InputFile
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.limits import set_limit, split_large_arrays
from apps.submission.domain.arrays.plan import lock_request, plan_next, plan_retry
from apps.submission.domain.arrays.submissions import in_flight, read_ranges
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.models import Assignment, Submission
from tests.factories.requests import AT
from tests.submission.test_keep_up import HOUR, detector, end, files_of, keep_up

__all__ = ["detector", "keep_up"]  # fixtures
FILES = list("abcdefghij")


def turn(assignment, at=AT):
    """Do what the portal does in a turn, and return what was sent."""
    plan_next(
        assignment=Assignment.objects.select_related("request", "cluster").get(pk=assignment.pk),
        at=at,
    )
    split_large_arrays(cluster=assignment.cluster, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def limit(assignment, by, most, reason="Storage is nearly full.", **more):
    return set_limit(
        request=assignment.request, most_in_flight=most, by=by, at=AT, reason=reason, **more
    )


def test_lowered_it_sends_nothing_more_until_less_is_in_flight(
    keep_up, detector, end_jobs, shifter
):
    assignment = keep_up("reco", most_in_flight=4)
    detector(r1=FILES)
    first = turn(assignment)
    assert (first.tasks, turn(assignment)) == (4, None), "another four are planned, and wait"
    limit(assignment, shifter, 2)
    assert turn(assignment) is None
    end(first, end_jobs, AT, tasks=[0, 1])
    assert turn(assignment) is None, "two are in flight, and two is the limit"
    end(first, end_jobs, AT, tasks=[2, 3])
    seen, running = [], turn(assignment)
    while running is not None:
        assert in_flight(Submission.objects.all()) <= 2
        assert files_of(running) == [FILES[index] for index in read_ranges(running.indices)]
        seen += read_ranges(running.indices)
        end(running, end_jobs, AT)
        running = turn(assignment, AT + HOUR * len(seen))
    assert seen == [4, 5, 6, 7, 8, 9]
    assert InputFile.objects.count() == 10


def test_raised_it_sends_more_at_once_from_the_next_turn(keep_up, detector, shifter):
    assignment = keep_up("reco", most_in_flight=2)
    detector(r1=FILES)
    assert turn(assignment).tasks == 2
    assert turn(assignment) is None
    limit(assignment, shifter, 5)
    assert [turn(assignment).indices, turn(assignment)] == ["2-3", None]
    assert in_flight(Submission.objects.all()) == 4


def test_what_was_planned_before_is_cut_and_sent_once(make, cluster, approver, shifter, end_jobs):
    assignment = choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)
    first = turn(assignment)
    end(first, end_jobs, AT, failed={0, 1, 3})
    retry_failed(request=assignment.request, position=0, by=approver, at=AT)
    limit(assignment, shifter, 2)
    sent = []
    for _ in range(8):
        if one := turn(assignment):
            sent.append(one)
            end(one, end_jobs, AT)
    jobs = {position: [] for position in (0, 1)}
    for one in Submission.objects.filter(retry_of=None).order_by("number"):
        jobs[one.position] += range(one.first, one.first + one.tasks)
    assert jobs == {0: list(range(6)), 1: list(range(6))}
    assert [(one.indices, one.retry_of) for one in Submission.objects.exclude(retry_of=None)] == [
        ("0-1", first),
        ("3", first),
    ]
    assert all(one.tasks <= 2 for one in sent)
    assert len({one.script for one in sent}) == len(sent)
    event = Event.objects.get(kind="submission.cut")
    assert event.reason == "No more than 2 jobs at once."


def test_every_part_of_a_split_retry_has_its_changed_resources(
    make, cluster, approver, shifter, end_jobs
):
    assignment = choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)
    first = turn(assignment)
    end(first, end_jobs, AT, failed={0, 1, 3})
    retry = plan_retry(
        submission=first,
        request=lock_request(assignment.request),
        indices=[0, 1, 3],
        by=shifter,
        at=AT,
        reason="More.",
        changes=ResourceChanges(memory_bytes=7 * 1024**3),
    )
    limit(assignment, shifter, 2)
    assert turn(assignment) == retry
    parts = Submission.objects.filter(retry_of=first).order_by("number")
    assert [part.indices for part in parts] == ["0-1", "3"]
    for part in parts:
        assert part.changes == {"memory_bytes": 7 * 1024**3}
        assert part.asked["memory_bytes"] == 7 * 1024**3


def test_while_a_part_waits_nothing_more_is_cut(keep_up, detector, end_jobs, shifter, approver):
    assignment = keep_up("reco", most_in_flight=4)
    detector(r1=FILES)
    first = turn(assignment)
    turn(assignment)
    limit(assignment, shifter, 1)
    assert [turn(assignment) for _ in range(5)] == [None] * 5
    assert [one.tasks for one in Submission.objects.order_by("number")] == [4, 1, 3]
    make_move(verb=Verb.HOLD, request=assignment.request, by=approver, at=AT, reason="Wait.")
    end(first, end_jobs, AT)
    assert (turn(assignment), Submission.objects.count()) == (None, 3)


def test_it_is_told_with_its_reason(keep_up, shifter, browse, liaison):
    assignment = keep_up("reco")
    limit(assignment, shifter, 1200, was=3)
    event = Event.objects.get(kind="submission.limit_set")
    assert (event.old, event.new, event.reason, event.actor) == (
        "3",
        "1,200",
        "Storage is nearly full.",
        str(shifter),
    )
    page = browse(liaison).get(f"/requests/{assignment.request.key}/").content.decode()
    assert "changed the limit of concurrent jobs: 3 → 1,200" in page
    assert "Storage is nearly full." in page


def test_who_may_not_and_what_is_wrong(keep_up, make, liaison, shifter):
    assignment = keep_up("reco")
    with pytest.raises(NotAllowed):
        limit(assignment, liaison, 5)
    for most, reason, field in (
        (5, " ", "reason"),
        (0, "x", "most_in_flight"),
        (3, "x", "most_in_flight"),
    ):
        with pytest.raises(InvalidFields) as caught:
            limit(assignment, shifter, most, reason)
        assert list(caught.value.problems) == [field]
    with pytest.raises(InvalidFields, match="need a limit"):
        limit(assignment, shifter, None)
    with pytest.raises(StaleState, match="meanwhile to 3"):
        limit(assignment, shifter, 5, was=4)
    with pytest.raises(InvalidTransition, match="has no cluster"):
        set_limit(request=make("queued"), most_in_flight=5, by=shifter, at=AT, reason="x")
    assert not Event.objects.filter(kind="submission.limit_set").exists()
    assert Assignment.objects.get(pk=assignment.pk).most_in_flight == 3


def test_an_operator_changes_it_by_page_and_api(keep_up, shifter, liaison, browse):
    assignment = keep_up("reco")
    key, client = assignment.request.key, browse(shifter)
    page = client.get(f"/submissions/{key}/").content.decode()
    assert "Change limit" in page
    assert 'name="was" value="3"' in page
    sent = {"most_in_flight": 7, "was": 3, "reason": "There is room again."}
    assert (
        "Job limit changed"
        in client.post(f"/submissions/{key}/limit/", sent, follow=True).content.decode()
    )
    assert (
        "Nothing was overwritten"
        in client.post(f"/submissions/{key}/limit/", sent, follow=True).content.decode()
    )
    assert client.post(f"/submissions/{key}/limit/", {"most_in_flight": 9}).status_code == 400
    answer = client.post(
        f"/api/v1/submissions/{key}/limit/",
        {"most_in_flight": 2, "reason": "x"},
        content_type="application/json",
    )
    assert (answer.status_code, Assignment.objects.get(pk=assignment.pk).most_in_flight) == (200, 2)
    other = browse(liaison)
    assert "Change limit" not in other.get(f"/submissions/{key}/").content.decode()
    assert other.post(f"/submissions/{key}/limit/", sent).status_code == 403
