"""What a change of the queue would do is what it does once it is saved,
and trying it out writes nothing.
"""

from datetime import timedelta

import pytest
from django.urls import reverse

from apps.core.models import Event
from apps.portal.pages.request.page import request_page
from apps.production.domain.lifecycle.moves import set_priority
from apps.production.domain.priority import manual_moves, shares
from apps.production.domain.priority.listing import queue_rows
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.domain.priority.shown_forecasts import shown_forecasts
from apps.production.domain.priority.what_if import if_level, if_moved
from apps.production.models import Request, ShareUse
from apps.progress.domain.stored_forecasts import keep_queue_forecasts
from tests.factories.history import history
from tests.factories.queue import set_pace
from tests.factories.requests import AT, draft, request_in

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(queued, nova, dune, liaison, other_liaison, approver):
    """Three requests of NOvA and one of DUNE with past jobs, at a pace of one start a day."""
    for by, experiment in ((liaison, nova), (other_liaison, dune)):
        past = draft(by, experiment)
        for name in ("generation", "simulation"):
            history(past, name=name, configuration=f"{name}.fcl")
    made = [queued() for _ in range(3)]
    made.append(request_in("queued", by=other_liaison, experiment=dune, approver=approver))
    set_pace(5000)
    keep_queue_forecasts(at=AT + HOUR)
    return made


def stored():
    ranks = {
        pk: rank for rank, pk in enumerate(ranked_requests().values_list("pk", flat=True), start=1)
    }
    return {
        request.pk: (ranks[request.pk], request.expected_end)
        for request in Request.objects.filter(pk__in=ranks)
    }


def told(before, shifts):
    return before | {shift.request.pk: (shift.then, shift.end_then) for shift in shifts}


def check(before, shifts):
    """The change that is now saved did what was told, and nothing else."""
    keep_queue_forecasts(at=AT + HOUR)
    assert stored() == told(before, shifts)
    assert stored() != before


def test_level_does_what_was_told(queue, approver):
    before, events = stored(), Event.objects.count()
    last = list(ranked_requests())[-1]
    shifts = if_level(last, priority_class="urgent", priority=None, at=AT + HOUR)
    assert (shifts[0].request, shifts[0].then, len(shifts)) == (last, 1, 4)
    assert (stored(), Event.objects.count()) == (before, events)
    set_priority(
        request=Request.objects.get(pk=last.pk),
        by=approver,
        at=AT + HOUR,
        reason="x",
        priority_class="urgent",
    )
    check(before, shifts)


def test_move_does_what_was_told(queue, approver):
    before, first = stored(), ranked_requests()[0]
    shifts = if_moved(first, to_rank=3, at=AT + HOUR)
    manual_moves.move_in_queue(request=first, to_rank=3, by=approver, at=AT + HOUR, reason="x")
    check(before, shifts)


def test_shares_do_what_was_told(queue, dune, approver):
    for experiment, used in ((queue[0].experiment, 9), (dune, 1)):
        ShareUse.objects.create(experiment=experiment, core_seconds=used, days=30, as_of=AT)
    shares.rescore_entries(at=AT + HOUR)
    set_pace(5000)
    keep_queue_forecasts(at=AT + HOUR)
    before, (_, shifts) = stored(), shares.what_if_shares({dune.pk: 1}, at=AT + HOUR)
    shares.set_shares(weights={dune.pk: 1}, by=approver, at=AT + HOUR, reason="x")
    set_pace(5000)
    check(before, shifts)


def test_page_previews_and_saves(queue, approver, liaison, browse):
    last = list(ranked_requests())[-1]
    address = reverse("production:queue-priority", args=[last.key])
    sent = {"priority_class": "high", "priority": "7", "version": last.version}
    page = browse(approver).post(address, sent | {"do": "preview"})
    assert (page.status_code, "Nothing is saved yet." in page.text) == (200, True)
    assert "4th <span" in page.text
    assert not Event.objects.filter(kind="request.priority_set").exists()
    assert browse(approver).post(address, sent).status_code == 400  # no reason
    saved = browse(approver).post(address, sent | {"reason": "freeze"}, follow=True)
    assert f"The priority of {last.key} is now high 7." in saved.text
    address = reverse("production:queue-priority", args=[queue[0].key])
    assert browse(liaison).post(address, sent | {"do": "preview"}).status_code == 403


def test_dates_of_the_queue_follow_a_move_before_the_forecasts_are_stored_again(queue, approver):
    last = list(ranked_requests())[-1]
    moved_at = AT + HOUR + timedelta(minutes=1)
    set_priority(
        request=last, by=approver, at=moved_at, reason="x", priority_class="urgent", priority=None
    )
    rows = queue_rows(user=approver, at=moved_at).rows
    assert rows[0].request == last
    starts = [row.start.likely for row in rows]
    assert starts == sorted(starts)
    assert len(set(starts)) == len(starts)
    behind = rows[1].request
    [forecast] = shown_forecasts([Request.objects.get(pk=behind.pk)], at=moved_at)
    assert forecast.start == rows[1].start.days
    shown = request_page(request=Request.objects.get(pk=behind.pk), user=approver, at=moved_at)
    assert shown.summary.schedule.forecast.end == shown.plan.estimate.ends == forecast.end
    assert shown.plan.queue_row.slack == shown.summary.schedule.slack == rows[1].slack
    assert Request.objects.get(pk=behind.pk).expected_start != forecast.start.likely
    keep_queue_forecasts(at=moved_at)
    stored_again = queue_rows(user=approver, at=moved_at).rows
    assert [(row.start, row.slack) for row in rows] == [
        (row.start, row.slack) for row in stored_again
    ]
