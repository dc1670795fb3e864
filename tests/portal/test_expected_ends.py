"""Every page, mail and API answer shows the same expected end and slack of a request."""

import re
from datetime import timedelta
from itertools import product

import pytest
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apps.core.models import Event
from apps.production.domain.checks.facts import facts_for
from apps.production.domain.content.stages import content_of
from apps.production.domain.desk.desk import read_desk
from apps.production.domain.desk.sheet import read_sheet
from apps.production.domain.forecast import forecast_of
from apps.production.domain.priority.listing import queue_rows
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.domain.priority.what_if import if_level, if_moved
from apps.production.domain.slack import is_late_on, late_reason, slack_of, slack_until
from apps.production.models import Attention, QueueEntry, Request, Stage
from apps.progress.domain.needs import note_attention
from apps.progress.domain.stored_forecasts import keep_forecasts
from apps.progress.domain.weekly_report import weekly_report_of
from tests.factories.history import history
from tests.factories.queue import set_pace
from tests.factories.requests import S, draft, request_in, stage

CHAIN = (stage(jobs=1000),)
DAYS = st.one_of(st.none(), st.integers(-2, 40))
#: An example visits a dozen pages, so failing ones are not shrunk.
SLOW = settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def words_of(slack, *, days_left) -> str:
    """Return the slack as a request's page writes it."""
    if slack is None:
        return ""
    if not slack.days:
        return "on time"
    days = f"{abs(slack.days)} day{'' if abs(slack.days) == 1 else 's'}"
    if not slack.is_late:
        return f"{days} early"
    if slack.days == days_left:
        return f"Overdue by {days}"
    if days_left < 0:
        return f"Overdue, expected {days} late"
    return f"Expected {days} late"


def text_of(client, url: str) -> str:
    """Return the text of a page, without tags."""
    text = re.sub(r"<[^>]*>", " ", client.get(url).content.decode())
    return re.sub(r"\s+", " ", text)


@pytest.fixture
def requests(nova, liaison, approver):
    """Three queued requests and one that awaits approval, with past jobs of their stage."""
    history(draft(liaison, nova, stages=CHAIN))

    def make(state):
        return request_in(state, by=liaison, experiment=nova, approver=approver, stages=CHAIN)

    return [make(S.QUEUED), make(S.QUEUED), make(S.QUEUED), make(S.AWAITING_APPROVAL)]


@SLOW
@given(
    deadlines=st.lists(DAYS, min_size=4, max_size=4),
    classes=st.lists(st.sampled_from(["", "low", "high", "urgent"]), min_size=3, max_size=3),
    requested=st.sampled_from(["low", "normal", "urgent"]),
    starts=st.sampled_from([0, 5, 30]),
)
def test_all_places_agree(
    requests, nova, liaison, approver, browse, deadlines, classes, requested, starts
):
    at, today = timezone.now(), timezone.localdate()
    with transaction.atomic():
        for request, days in zip(requests, deadlines, strict=True):
            deadline = None if days is None else today + timedelta(days=days)
            Request.objects.filter(pk=request.pk).update(deadline=deadline)
        for request, name in zip(requests, classes, strict=False):
            Request.objects.filter(pk=request.pk).update(priority_class=name)
        Request.objects.filter(pk=requests[3].pk).update(requested_priority=requested)
        rescore_all(at=at)
        set_pace(5000, days=starts)
        keep_forecasts(at=at)
        note_attention(at=at)

        queued = list(ranked_requests().select_related("experiment", "queue_entry"))
        lines = {line.request.pk: line for line in queue_rows(user=approver, at=at).rows}
        api = {
            row["key"]: row for row in browse(liaison).get("/api/v1/requests/").json()["results"]
        }
        late_in_report = {row["request"] for row in _late_in_report(nova, at)}
        for rank, request in enumerate(queued, start=1):
            forecast = forecast_of(request)
            slack = slack_of(request.deadline, forecast, today=today)
            assert forecast.priority_class == (request.priority_class or "normal")
            assert forecast.assumption == ("" if starts else "if it started today")
            assert not forecast.start or forecast.start <= forecast.end

            assert lines[request.pk].slack == slack
            assert api[request.key]["slack_days"] == (slack and slack.days)
            assert api[request.key]["expected_end_assumption"] == forecast.assumption
            page = text_of(browse(liaison), request.get_absolute_url())
            assert f"expected {forecast.end.likely:%-d %b %Y}" in page
            days_left = (request.deadline - today).days if request.deadline else 0
            assert words_of(slack, days_left=days_left) in page
            estimate = facts_for(
                content_of(request), experiment=nova, at=at, request=request
            ).estimate
            assert (estimate.begins, estimate.finish) == (forecast.start, forecast.end)
            _check_late(request, slack, forecast, late_in_report)

            # The previews start from what is stored: a change that changes nothing shows nothing.
            assert if_moved(request, to_rank=rank, at=at) == []
            assert if_level(request, priority_class=None, priority=None, at=at) == []
            for shift in if_moved(request, to_rank=1, at=at):
                assert not shift.start_then or shift.start_then <= shift.end_then
        _check_unapproved(Request.objects.get(pk=requests[3].pk), approver, browse, at)
        transaction.set_rollback(True)


def _late_in_report(experiment, at):
    monday = timezone.localdate(at) - timedelta(days=timezone.localdate(at).weekday())
    return weekly_report_of(experiment, monday=monday, at=at)["requests"]["late"]


def _check_late(request, slack, forecast, late_in_report):
    """The list, the inbox and mails call it late if and only if its slack is negative."""
    is_late = slack is not None and slack.is_late
    attention = Attention.objects.filter(request=request, kind="late").first()
    assert (attention is not None, request.key in late_in_report) == (is_late, is_late)
    if attention is not None and slack.end and slack.end > request.deadline:
        mail = (
            Event.objects.filter(kind="request.late", target_id=str(request.pk)).latest("id").reason
        )
        assert f"{forecast.end.likely:%-d %b %Y}" in mail
        assert f"{slack.days_late:,} day" in mail


def _check_unapproved(request, approver, browse, at):
    """The desk, its open sheet, the request's page,
    the checks and the API assume its approval in one class.
    """
    row = read_desk(approver, at=at).rows[0]
    assert row.request == request
    sheet = read_sheet(row, user=approver, at=at)
    forecast = sheet.prospects[request.requested_priority].forecast
    assert row.slack == slack_of(request.deadline, forecast, today=timezone.localdate(at))
    assert forecast.assumption.startswith("if approved now")
    estimate = facts_for(
        content_of(request), experiment=request.experiment, at=at, request=request
    ).estimate
    for shown in (row.estimate, sheet.row.estimate, estimate):
        assert (shown.begins, shown.finish) == (forecast.start, forecast.end)
        assert (shown.priority_class, shown.assumption) == (
            request.requested_priority,
            forecast.assumption,
        )
    expected = (
        f"Expected {forecast.end.likely:%-d %b %Y} in class {request.requested_priority}, "
        f"{forecast.assumption}."
    )
    page = text_of(browse(approver), request.get_absolute_url())
    assert expected in page
    is_late = request.deadline is not None and forecast.end.likely > request.deadline
    assert ("That is after its deadline." in page) == is_late


def test_lists_show_the_end_of_a_request_without_approval_as_its_page_does(
    nova, liaison, approver, browse
):
    history(draft(liaison, nova))
    people = {"by": liaison, "experiment": nova, "approver": approver}
    returned = request_in(S.CHANGES_REQUESTED, **people, stages=(stage("generation"),))
    too_short = (stage("generation", wall_seconds=600),)
    endless = request_in(S.CHANGES_REQUESTED, **people, stages=too_short)

    summary = text_of(browse(liaison), returned.get_absolute_url())
    [end] = re.findall(r"Expected (\d+ \w+ \d{4}) in class normal, if approved now", summary)
    reason = "nearly no job of generation would end within its time limit"
    summary = text_of(browse(liaison), endless.get_absolute_url())
    assert f"Expected end unknown: {reason}." in summary

    for address, start in (("/", 'id="own"'), (reverse("production:request-list"), "<tbody>")):
        html = browse(liaison).get(address).content.decode().partition(start)[2]
        rows = {}
        for request in (returned, endless):
            _, _, row = html.partition(f'href="{request.get_absolute_url()}"')
            rows[request.pk] = row.partition("</tr>")[0]
        assert f">{end}</span>" in rows[returned.pk]
        assert "if approved now" in rows[returned.pk]
        assert f'<span title="{reason}">unknown</span>' in rows[endless.pk]


@given(deadline=DAYS, start=DAYS, end=DAYS)
def test_slack_is_whole_days_and_negative_only_after_the_deadline(deadline, start, end):
    today = timezone.localdate()
    day = lambda days: None if days is None else today + timedelta(days=days)  # noqa: E731
    slack = slack_until(day(deadline), day(end), today=today, start=day(start))
    begins_late = deadline is not None and start is not None and start > deadline
    if deadline is None or (end is None and deadline >= 0 and not begins_late):
        assert slack is None
        return
    latest = end
    if end is None:
        latest = start if begins_late else 0
    assert slack.days == deadline - max(latest, 0)
    assert slack.is_late == (slack.level == "over") == (slack.days_late > 0)
    if slack.is_late:
        assert late_reason(slack, day(deadline), today=today)


def test_database_finds_the_late_ones(requests):
    request, today = requests[0], timezone.localdate()
    offsets = (None, -1, 0, 1, 2)
    for days in product(offsets, repeat=3):
        deadline, start, end = (
            None if offset is None else today + timedelta(days=offset) for offset in days
        )
        changes = {"deadline": deadline, "expected_start": start, "expected_end": end}
        Request.objects.filter(pk=request.pk).update(forecast_at=timezone.now(), **changes)
        request.refresh_from_db()
        slack = slack_of(deadline, forecast_of(request), today=today)
        late = Request.objects.filter(is_late_on(today), pk=request.pk)
        assert late.exists() == (slack is not None and slack.is_late), days


def test_start_after_the_deadline_is_late_everywhere(requests, approver, liaison, nova, browse):
    """The end of a request is unknown, but it starts after its deadline."""
    at, today = timezone.now(), timezone.localdate()
    set_pace(5000, days=10)
    QueueEntry.objects.update(core_seconds=3 * 5000 * 3600)
    last = ranked_requests().last()
    QueueEntry.objects.filter(request=last).update(days=None, days_low=None, days_high=None)
    Request.objects.filter(pk=last.pk).update(deadline=today + timedelta(days=1))
    keep_forecasts(at=at)
    note_attention(at=at)
    last.refresh_from_db()
    assert last.expected_end is None
    late_days = (last.expected_start - last.deadline).days
    assert late_days > 0

    reason = Attention.objects.get(request=last, kind="late").words
    assert f"expected to start on {last.expected_start:%-d %b %Y}" in reason
    rows = browse(liaison).get("/api/v1/requests/").json()["results"]
    assert {row["key"]: row["slack_days"] for row in rows}[last.key] == -late_days
    assert last.key in {row["request"] for row in _late_in_report(nova, at)}
    assert f"≥ {late_days} d late" in text_of(browse(approver), "/requests/queue/")
    days = f"{late_days} day{'s' if late_days > 1 else ''}"
    page = text_of(browse(liaison), last.get_absolute_url())
    assert f"Starts {days} after its deadline" in page
    late_ones = text_of(browse(liaison), "/requests/?attention=late")
    assert last.key in late_ones
    assert f"starts {last.expected_start:%-d %b %Y}" in late_ones


def test_request_due_today_is_not_late_today(requests, approver, liaison, browse):
    at, today = timezone.now(), timezone.localdate()
    set_pace(5000)
    keep_forecasts(at=at)
    request = Request.objects.get(pk=requests[0].pk)
    Request.objects.filter(pk=request.pk).update(deadline=request.expected_end - timedelta(days=1))
    note_attention(at=at)
    assert Attention.objects.filter(request=request, kind="late").exists()
    Request.objects.filter(pk=request.pk).update(deadline=request.expected_end)
    note_attention(at=at)
    assert not Attention.objects.filter(request=request, kind="late").exists()

    Request.objects.update(deadline=today + timedelta(days=9))
    Request.objects.filter(pk=requests[3].pk).update(deadline=today)
    assert "overdue" not in text_of(browse(approver), "/requests/inbox/")
    Request.objects.filter(pk=requests[3].pk).update(deadline=today - timedelta(days=1))
    assert "overdue" in text_of(browse(approver), "/requests/inbox/")


def test_stages_of_a_request_with_an_expected_end_are_not_unknown(requests, liaison, browse):
    set_pace(5000)
    keep_forecasts(at=timezone.now())
    text = text_of(browse(liaison), f"{requests[0].get_absolute_url()}")
    assert "expected" in text
    stages = text.partition("Expected end")[2].partition("Files, events")[0]
    requests[0].refresh_from_db()
    assert f"{requests[0].expected_end:%-d %b %Y}" in stages

    Stage.objects.create(request=requests[0], position=1, name="reco", jobs=1000)
    assert "not by stage yet" in text_of(browse(liaison), requests[0].get_absolute_url())
