"""A started request returns to the queue as long as no scheduler can have a job of it."""

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition
from apps.datasets.models import FileTotals, InputFile
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.production.models import Request
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.returns import withdraw_planned
from apps.submission.domain.dispatch.start import start_next
from apps.submission.enums import SubmissionState
from apps.submission.models import StageScouts, Submission
from tests.factories.requests import AT


@pytest.fixture
def begin(cluster, approver):
    """Return a function that starts a queued request and plans its first array."""

    def start(request: Request) -> Submission:
        assignment = assign_request(
            request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START
        )
        planned = plan_next(assignment=assignment, at=AT)
        assert planned is not None
        return planned

    return start


def take_back(request: Request, approver) -> Request:
    request.refresh_from_db()
    return make_move(
        verb=Verb.RETURN_TO_QUEUE, request=request, by=approver, at=AT, reason="Too early."
    )


def test_planned_jobs_are_discarded_with_their_files(begin, reading, approver):
    request = begin(reading()).request
    assert InputFile.objects.filter(stage__request=request).exists()

    take_back(request, approver)

    assert request.state == "queued"
    assert not request.submissions.exists()
    assert not InputFile.objects.filter(stage__request=request).exists()
    assert not FileTotals.objects.filter(stage__request=request).exists()
    event = events_of(request).filter(kind="request.return_to_queue").get()
    assert event.data["withdrawn_jobs"] == 4


def test_next_start_plans_the_request_as_it_is_then(begin, reading, approver, catalogue):
    request = begin(reading()).request
    take_back(request, approver)
    catalogue("other_1.root", "other_2.root", "other_3.root", "other_4.root")

    submission = begin(request)

    assert submission.number == 1
    names = InputFile.objects.filter(stage__request=request).values_list("name", flat=True)
    assert sorted(names) == ["other_1.root", "other_2.root", "other_3.root", "other_4.root"]


@pytest.mark.parametrize(
    "values",
    [
        {"state": SubmissionState.SENDING, "attempts": 1},
        {"state": SubmissionState.UNKNOWN, "attempts": 1},
        {"state": SubmissionState.FAILED},
        {"state": SubmissionState.PLANNED, "attempts": 1},
    ],
)
def test_jobs_that_a_scheduler_may_have_stay(begin, make, approver, values):
    submission = begin(make("queued"))
    Submission.objects.filter(pk=submission.pk).update(**values)

    with pytest.raises(InvalidTransition, match="or tried to"):
        take_back(submission.request, approver)

    assert Submission.objects.filter(pk=submission.pk).exists()


def test_array_claimed_after_the_check_is_not_discarded(begin, make, cluster):
    submission = begin(make("queued"))
    dispatch.claim_next(cluster=cluster, at=AT)

    with pytest.raises(InvalidTransition, match="submitted jobs"):
        withdraw_planned(request=submission.request, at=AT)

    assert Submission.objects.get().state == SubmissionState.SENDING


def test_input_files_that_were_given_up_stay(begin, reading, approver):
    request = begin(reading()).request
    InputFile.objects.filter(stage__request=request).update(state="given_up")

    with pytest.raises(InvalidTransition, match="input files were processed or given up"):
        take_back(request, approver)


def test_scouts_start_over(begin, make, cluster, approver):
    cluster.submission = cluster.submission | {"scouts": 1}
    cluster.save()
    request = begin(make("queued")).request
    assert StageScouts.objects.filter(request=request).exists()
    take_back(request, approver)
    assert not StageScouts.objects.filter(request=request).exists()


def test_cluster_does_not_start_a_returned_request_again(begin, make, cluster, approver):
    cluster.submission = cluster.submission | {"automatic": True}
    cluster.save()
    request = begin(make("queued")).request
    take_back(request, approver)

    assert start_next(cluster=cluster, at=AT) is None
    request.refresh_from_db()
    assert request.state == "queued"
