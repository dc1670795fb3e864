"""The end counts from the expected start of a request that waits; where that is not known,
the page says so.
"""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.production.domain.checks.facts import facts_for
from apps.production.domain.checks.report import run_checks
from apps.production.domain.content.stages import content_of
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.priority.listing import start_of
from apps.production.enums import Verb
from apps.production.models import QueueState, Request
from tests.factories.history import history
from tests.factories.queue import set_pace
from tests.factories.requests import S, draft, request_in, stage

NOT_COUNTED = "Waiting time is not included"
CHAIN = (stage("generation"),)


@pytest.fixture
def waiting(nova, liaison, approver):
    """The third in the queue, with past jobs of its stage;
    clusters do the work of one in ten days.
    """
    first, _, third = (
        request_in(S.QUEUED, by=liaison, experiment=nova, approver=approver, stages=CHAIN)
        for _ in range(3)
    )
    history(first)
    set_pace(3048)
    return Request.objects.get(pk=third.pk)


def shown(day) -> str:
    return f"{day:%-d %b %Y}"


def page_of(obj, client) -> str:
    return client.get(obj.get_absolute_url()).content.decode()


def test_page_of_one_in_the_queue_says_when_it_begins_and_ends(waiting, liaison, browse):
    early, likely, late = start_of(waiting, at=timezone.now()).days
    days = estimate_for(content_of(waiting), waiting.experiment, timezone.now()).days
    text = page_of(waiting, browse(liaison))
    assert (likely - timezone.localdate()).days == pytest.approx(21, abs=3)
    begin, end = re.search(
        r"<dt>Expected start</dt><dd>(.*?)</dd>\s*<dt>Expected finish</dt><dd>(.*?)</dd>", text
    ).groups()
    assert begin == f"{shown(likely)} ({shown(early)} to {shown(late)})"
    likely_end, first, last = (
        likely + timedelta(days.mid),
        early + timedelta(days.low),
        late + timedelta(days.high),
    )
    assert end == f"{shown(likely_end)} ({shown(first)} to {shown(last)})"
    assert "Finish if started today" not in text
    assert NOT_COUNTED not in text


def test_page_of_a_draft_shows_start_and_end_if_it_were_approved_now(waiting, liaison, browse):
    text = page_of(draft(liaison, waiting.experiment, stages=CHAIN), browse(liaison))
    assert "Start and finish in class normal, if approved now." in text
    assert "<dt>Expected start</dt>" in text
    assert NOT_COUNTED not in text


@pytest.mark.parametrize("why", ["held", "too few days"])
def test_page_says_that_the_wait_is_not_counted_where_no_start_is_known(
    why, waiting, liaison, approver, browse
):
    obj = waiting
    if why == "held":
        MOVE_FUNCTIONS[Verb.HOLD](request=obj, by=approver, at=timezone.now(), reason="Wait.")
    else:
        QueueState.objects.update(work_by_day=[1.0] * 4)
    text = page_of(obj, browse(liaison))
    assert "<dt>Finish if started today</dt>" in text
    assert NOT_COUNTED in text
    assert "<dt>Expected start</dt>" not in text


def test_one_that_has_begun_tells_neither(waiting, liaison, approver, browse):
    MOVE_FUNCTIONS[Verb.START](request=waiting, by=approver, at=timezone.now())
    text = page_of(waiting, browse(liaison))
    assert "Based on 100 past jobs" in text
    assert not any(
        words in text
        for words in (NOT_COUNTED, "<dt>Expected start</dt>", "Finish if started today")
    )


def test_checks_and_api_count_the_wait_of_one_in_the_queue(waiting, liaison, browse):
    start, at = start_of(waiting, at=timezone.now()), timezone.now()
    known = facts_for(
        content_of(waiting), experiment=waiting.experiment, at=at, request=waiting
    ).estimate
    assert known.begins == start.days
    answer = (
        browse(liaison)
        .post(f"/api/v1/requests/{waiting.key}/check/", {}, content_type="application/json")
        .json()
    )
    assert answer["estimate"]["begins"] == [day.isoformat() for day in start.days]
    assert answer["estimate"]["finish"] == [day.isoformat() for day in known.finish]
    assert known.finish.early > start.days.early


def test_deadline_that_the_wait_alone_makes_unreachable_is_told(waiting):
    at = timezone.now()
    begins = start_of(waiting, at=at).days
    late = replace(content_of(waiting), deadline=begins.early)
    told = {
        run_check.rule: run_check.message
        for run_check in run_checks(
            late, facts_for(late, experiment=waiting.experiment, at=at, request=waiting)
        )
    }
    assert (
        f"starting about {shown(begins.likely)}. It will miss the deadline."
        in told["deadline_reachable"]
    )
    alone = facts_for(late, experiment=waiting.experiment, at=at)
    assert (alone.estimate.priority_class, alone.estimate.assumption) == (
        "normal",
        "if approved now",
    )
