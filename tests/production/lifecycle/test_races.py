"""Two people at the same moment, in real transactions of their own."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest
from django.db import connection

from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition, StaleState
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, approve_request, submit_request
from apps.production.domain.priority.listing import queue_state
from apps.production.domain.priority.manual_moves import move_in_queue
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.enums import PORTAL, Verb
from apps.production.models import Request
from tests.factories.requests import AT, content, draft, request_in

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls):
    """Run all at the same moment, each on its own connection; return what each gave or raised."""
    barrier = Barrier(len(calls))

    def run(call):
        try:
            barrier.wait(timeout=60)
            return call()
        except (StaleState, InvalidTransition) as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def refusals(results) -> list[str]:
    return [str(result) for result in results if isinstance(result, Exception)]


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_approvers_one_wins_and_the_other_is_told(
    attempt, nova, liaison, approver, second_approver
):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    first, second = Request.objects.get(pk=obj.pk), Request.objects.get(pk=obj.pk)
    results = at_once(
        lambda: approve_request(request=first, by=approver, at=AT),
        lambda: MOVE_FUNCTIONS[Verb.REJECT](request=second, by=second_approver, at=AT, reason="no"),
    )
    stored = Request.objects.get(pk=obj.pk)
    last = events_of(obj).exclude(actor=PORTAL).last()
    assert refusals(results) == [
        (
            f"NOVA-0001 was changed by {last.actor} in the meantime and is now “{stored.state}”. "
            "Your change was not saved."
        )
    ]
    assert stored.state in {"queued", "rejected"}
    assert events_of(obj).exclude(actor=PORTAL).count() == 3


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_that_reopen_at_once_one_does(attempt, nova, liaison, approver, second_approver):
    obj = request_in("rejected", by=liaison, experiment=nova, approver=approver)
    copies = [Request.objects.get(pk=obj.pk) for _ in range(2)]
    results = at_once(
        *[
            partial(MOVE_FUNCTIONS[Verb.REOPEN], request=copy, by=by, at=AT, reason="By mistake.")
            for copy, by in zip(copies, (approver, second_approver), strict=True)
        ]
    )
    event = events_of(obj).filter(kind="request.reopen").get()
    assert refusals(results) == [
        (
            f"NOVA-0001 was changed by {event.actor} in the meantime and is now “submitted”. "
            "Your change was not saved."
        )
    ]


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_signatures_at_once_one_is_given_and_one_refused(
    attempt, nova, liaison, approver, second_approver
):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    copies = [Request.objects.get(pk=obj.pk) for _ in range(2)]
    people = (approver, second_approver)
    results = at_once(
        *[
            partial(approve_request, request=copy, by=who, at=AT)
            for copy, who in zip(copies, people, strict=True)
        ]
    )
    stored = Request.objects.get(pk=obj.pk)
    assert refusals(results) == [
        (
            f"NOVA-0001 was changed by {stored.approved_by} in the meantime and is now “queued”. "
            "Your change was not saved."
        )
    ]
    assert [signature.by for signature in stored.signatures.all()] == [stored.approved_by]
    assert [event.kind for event in events_of(obj)].count("request.approve") == 1


@pytest.mark.parametrize("attempt", range(3))
def test_of_approval_and_cancellation_one_wins(attempt, nova, liaison, approver):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    first, second = Request.objects.get(pk=obj.pk), Request.objects.get(pk=obj.pk)
    results = at_once(
        lambda: approve_request(request=first, by=approver, at=AT),
        lambda: MOVE_FUNCTIONS[Verb.CANCEL](request=second, by=liaison, at=AT, reason="not needed"),
    )
    stored = Request.objects.get(pk=obj.pk)
    winner = {"queued": approver, "cancelled": liaison}[stored.state]
    assert refusals(results) == [
        (
            f"NOVA-0001 was changed by {winner} in the meantime and is now “{stored.state}”. Your "
            "change was not saved."
        )
    ]
    made = {event.kind for event in events_of(obj)}
    assert len(made & {"request.approve", "request.cancel"}) == 1
    assert stored.signatures.count() == (stored.state == "queued")


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_reorderings_at_once_one_is_made(attempt, nova, liaison, approver, second_approver):
    queued = [
        request_in("queued", by=liaison, experiment=nova, approver=approver) for _ in range(3)
    ]
    before, version = [request.key for request in ranked_requests()], queue_state().version
    last, middle = Request.objects.get(key=before[2]), Request.objects.get(key=before[1])
    move = partial(move_in_queue, to_rank=1, at=AT, reason="freeze", version=version)
    results = at_once(
        partial(move, request=last, by=approver, seen_rank=3),
        partial(move, request=middle, by=second_approver, seen_rank=2),
    )
    won = last if results[0] == 3 else middle
    by, rank = (approver, 3) if won == last else (second_approver, 2)
    what = f"{won} was moved from rank {rank} to 1"
    assert refusals(results) == [
        f"{by} changed the queue in the meantime: {what}. Your change was not made."
    ]
    assert [request.key for request in ranked_requests()] == [
        won.key,
        *[key for key in before if key != won.key],
    ]
    assert (
        sum(event.kind == "request.moved" for request in queued for event in events_of(request))
        == 1
    )


def test_of_two_editors_one_wins_and_nothing_is_overwritten(nova, liaison):
    obj = draft(liaison, nova)
    copies = [Request.objects.get(pk=obj.pk) for _ in range(2)]

    def save(copy, title):
        return lambda: save_draft(
            request=copy, content=content(title=title), version=1, by=liaison, at=AT
        )

    results = at_once(save(copies[0], "First"), save(copies[1], "Second"))
    assert refusals(results) == [
        (
            "NOVA-0001 was changed by nova-liaison in the meantime and is now “draft”. Your "
            "change was not saved."
        )
    ]
    winner = next(result for result in results if not isinstance(result, Exception))
    stored = Request.objects.get()
    assert (stored.title, stored.version) == (winner.title, 2)


def test_submission_never_carries_an_edit_that_came_between(nova, liaison):
    obj = draft(liaison, nova)
    editor, submitter = Request.objects.get(pk=obj.pk), Request.objects.get(pk=obj.pk)
    results = at_once(
        lambda: save_draft(request=editor, content=content(title=""), version=1, by=liaison, at=AT),
        lambda: submit_request(request=submitter, by=liaison, at=AT),
    )
    assert len(refusals(results)) == 1
    stored = Request.objects.get()
    assert (stored.state, stored.title) in {("draft", ""), ("submitted", content().title)}


def test_drafts_made_at_once_have_keys_without_gap_or_double(nova, liaison):
    made = at_once(
        *[lambda: create_draft(experiment=nova, content=content(), by=liaison, at=AT)] * 5
    )
    assert sorted(request.key for request in made) == [
        f"NOVA-{number:04d}" for number in range(1, 6)
    ]
