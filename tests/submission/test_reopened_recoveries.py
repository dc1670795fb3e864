"""A rejected recovery gives its files back; reopened, it has them again if nothing else has."""

from collections import Counter

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition
from apps.datasets.models import InputFile
from apps.production.domain.lifecycle.moves import (
    check_request,
    make_move,
    reopen_request,
    submit_request,
)
from apps.production.enums import Verb
from apps.production.models import Request
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.files import list_files, start_ledger
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.files.decisions import give_up, take_back
from apps.submission.domain.files.recovery import (
    give_files_back,
    give_settled_files_back,
    request_missing,
)
from apps.submission.domain.retries.by_stage import retry_failed
from tests.factories import requests
from tests.factories.requests import AT
from tests.submission.arrays.test_files import HOUR, send, states
from tests.submission.test_files_pages import with_failures  # noqa: F401 fixtures

NAMES = [f"raw_{number}.root" for number in range(3, 8)]


@pytest.fixture
def original(with_failures):  # noqa: F811
    return with_failures


@pytest.fixture
def reject(liaison, approver):
    """Return a function that rejects a recovery, which then gives its files back."""

    def submit_and_reject(recovery):
        submit_request(request=recovery, by=liaison, at=AT)
        check_request(request=recovery, at=AT)
        make_move(verb=Verb.REJECT, request=recovery, by=approver, at=AT, reason="no")
        give_files_back(recovery=recovery, at=AT)
        return recovery

    return submit_and_reject


@pytest.fixture
def rejected(reject, liaison, original):
    return reject(request_missing(request=original, position=0, by=liaison, at=AT))


def counts(request, position=0):
    return dict(Counter(states(request, position).values()))


def reopen(recovery, by):
    current = Request.objects.get(pk=recovery.pk)
    return reopen_request(request=current, by=by, at=AT, reason="By mistake.")


def test_a_reopened_recovery_has_its_files_again(
    rejected,
    original,
    liaison,
    approver,
):
    assert counts(original) == {"done": 5, "failed": 5}
    assert reopen(rejected, approver).state == "submitted"
    assert counts(original) == {"done": 5, "given_up": 5}
    reason = InputFile.objects.get(name="raw_3.root").reason
    assert reason == f"Requested in {rejected.key}."
    event = events_of(original).last()
    assert (event.kind, event.data["files"]) == ("submission.files_given_up", 5)
    assert (event.actor, event.reason) == (approver.username, f"{rejected.key} was reopened.")

    how = {"request": original, "position": 0, "by": liaison, "at": AT, "reason": ""}
    with pytest.raises(InvalidFields, match=rf"raw_3\.root is processed by {rejected.key}"):
        take_back(**how, names=["raw_3.root"])
    reopened = Request.objects.get(pk=rejected.pk)
    check_request(request=reopened, at=AT)
    assert reopened.state == "awaiting_approval"
    assert [file.name for file in list_files(reopened.stages.get())] == NAMES


def test_a_rejection_that_is_processed_late_gives_nothing_back(
    rejected,
    original,
    approver,
):
    stale = Request.objects.get(pk=rejected.pk)
    reopen(rejected, approver)
    assert give_files_back(recovery=stale, at=AT) == 0
    assert give_settled_files_back(at=AT) == 0
    assert counts(original) == {"done": 5, "given_up": 5}


def test_once_rejected_again_it_gives_them_back_again(
    rejected,
    original,
    approver,
):
    reopened = reopen(rejected, approver)
    check_request(request=reopened, at=AT)
    make_move(verb=Verb.REJECT, request=reopened, by=approver, at=AT, reason="no, after all")
    assert give_settled_files_back(at=AT) == 5
    assert counts(original) == {"done": 5, "failed": 5}


@pytest.mark.parametrize("completes", [False, True])
def test_it_stays_rejected_if_the_original_processes_its_files(
    rejected,
    original,
    approver,
    end_jobs,
    completes,
):
    retry_failed(request=original, position=0, by=approver, at=AT + HOUR)
    assert counts(original) == {"done": 5, "taken": 5}
    if completes:
        array = send(original.assignment, AT + HOUR)
        end_jobs(array, at=AT + 2 * HOUR)
        dispatch.refresh_progress(cluster=array.cluster, at=AT + 2 * HOUR)
        assert counts(original) == {"done": 10}
    before = counts(original)
    with pytest.raises(InvalidTransition, match=r"NOVA-0001 took back its files .* raw_3\.root"):
        reopen(rejected, approver)
    assert Request.objects.get(pk=rejected.pk).state == "rejected"
    assert counts(original) == before


def test_it_stays_rejected_while_another_recovery_has_its_files(
    rejected,
    original,
    liaison,
    approver,
):
    other = request_missing(request=original, position=0, by=liaison, at=AT)
    with pytest.raises(InvalidTransition, match=f"{other.key} processes its files"):
        reopen(rejected, approver)
    assert Request.objects.get(pk=rejected.pk).state == "rejected"
    make_move(verb=Verb.CANCEL, request=other, by=liaison, at=AT, reason="Not needed.")
    assert reopen(rejected, approver).state == "submitted"


def test_only_the_stage_that_it_recovers_and_later_ones_count(
    reject,
    reading,
    cluster,
    end_jobs,
    liaison,
    approver,
):
    stages = []
    for name in ("reco", "again"):
        stages.append(
            requests.stage(
                name, jobs=4, events=None, input_dataset="raw", output_dataset=f"nova.{name}"
            )
        )
    request = reading(stages=tuple(stages))
    assignment = assign_request(
        request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START
    )
    for hours, failed in ((1, ()), (2, {1, 2})):
        array = send(assignment, AT + hours * HOUR)
        end_jobs(array, at=AT + hours * HOUR, failed=set(failed))
        dispatch.refresh_progress(cluster=cluster, at=AT + hours * HOUR)
    made = reject(request_missing(request=request, position=1, by=liaison, at=AT))
    assert (counts(request, 0), counts(request, 1)) == ({"done": 10}, {"done": 5, "failed": 5})
    assert reopen(made, approver).state == "submitted"
    assert (counts(request, 0), counts(request, 1)) == ({"done": 10}, {"done": 5, "given_up": 5})


def test_files_that_a_user_gave_up_meanwhile_are_no_obstacle(
    rejected,
    original,
    liaison,
    approver,
):
    how = {"request": original, "position": 0, "by": liaison, "at": AT}
    give_up(**how, names=["raw_3.root"], reason="Broken.")
    assert reopen(rejected, approver).state == "submitted"
    assert counts(original) == {"done": 5, "given_up": 5}
    assert InputFile.objects.get(name="raw_3.root").reason == "Broken."


def test_files_that_its_own_jobs_have_read_are_no_obstacle(
    reject,
    original,
    liaison,
    approver,
):
    made = request_missing(request=original, position=0, by=liaison, at=AT)
    stage = made.stages.get()
    start_ledger(stage, list_files(stage), at=AT)
    InputFile.objects.filter(stage=stage, name=NAMES[0]).update(state="done")
    reject(made)
    assert counts(original) == {"done": 5, "failed": 4, "given_up": 1}
    assert reopen(made, approver).state == "submitted"
    assert counts(original) == {"done": 5, "given_up": 5}


def test_the_page_says_why_it_stays_rejected(
    rejected,
    original,
    liaison,
    approver,
    browse,
):
    other = request_missing(request=original, position=0, by=liaison, at=AT)
    url = f"/requests/{rejected.key}/reopen/"
    page = browse(approver).post(url, {"reason": "By mistake."}, follow=True).content.decode()
    assert f"{rejected.key} cannot be reopened: {other.key} processes its files" in page
    assert Request.objects.get(pk=rejected.pk).state == "rejected"
