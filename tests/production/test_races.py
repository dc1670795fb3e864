"""Two people at the same moment, in real transactions of their own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from apps.core.errors import InvalidTransition, StaleState
from apps.core.selectors import events_of
from apps.production import services
from apps.production.enums import PORTAL, Verb
from apps.production.models import Request
from tests.production.written import AT, content, draft, request_in

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls):
    """Run all at the same moment, each on its own connection; return what each gave or raised."""
    barrier = Barrier(len(calls))

    def run(call):
        try:
            barrier.wait(timeout=10)
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
def test_of_two_approvers_one_wins_and_the_other_is_told(attempt, nova, liaison, approver, second_approver):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    first, second = Request.objects.get(pk=obj.pk), Request.objects.get(pk=obj.pk)
    results = at_once(
        lambda: services.approve_request(request=first, by=approver, at=AT),
        lambda: services.SERVICES[Verb.REJECT](request=second, by=second_approver, at=AT, reason="no"),
    )
    stored = Request.objects.get(pk=obj.pk)
    last = events_of(obj).exclude(actor=PORTAL).last()
    assert refusals(results) == [
        f"NOVA-0001 was changed by {last.actor} meanwhile: it is now “{stored.state}”. Nothing was overwritten."
    ]
    assert stored.state in {"queued", "rejected"}
    assert events_of(obj).exclude(actor=PORTAL).count() == 3


def test_of_two_editors_one_wins_and_nothing_is_overwritten(nova, liaison):
    obj = draft(liaison, nova)
    copies = [Request.objects.get(pk=obj.pk) for _ in range(2)]

    def save(copy, title):
        return lambda: services.save_draft(request=copy, content=content(title=title), version=1, by=liaison, at=AT)

    results = at_once(save(copies[0], "First"), save(copies[1], "Second"))
    assert len(refusals(results)) == 1
    winner = next(result for result in results if not isinstance(result, Exception))
    assert Request.objects.get().title == winner.title


def test_submission_never_carries_an_edit_that_came_between(nova, liaison):
    obj = draft(liaison, nova)
    editor, submitter = Request.objects.get(pk=obj.pk), Request.objects.get(pk=obj.pk)
    results = at_once(
        lambda: services.save_draft(request=editor, content=content(title=""), version=1, by=liaison, at=AT),
        lambda: services.submit_request(request=submitter, by=liaison, at=AT),
    )
    assert len(refusals(results)) == 1
    stored = Request.objects.get()
    assert (stored.state, stored.title) in {("draft", ""), ("submitted", content().title)}


def test_drafts_made_at_once_have_keys_without_gap_or_double(nova, liaison):
    made = at_once(*[lambda: draft(liaison, nova) for _ in range(5)])
    assert sorted(request.key for request in made) == [f"NOVA-{number:04d}" for number in range(1, 6)]
