"""The approver's desk: what it shows of each request, one step to approve with a priority,
several at once.
"""

import re
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from html import unescape

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, StaleState
from apps.production.domain.content.stages import content_of
from apps.production.domain.desk.desk import bulk_approval, read_desk
from apps.production.domain.desk.sheet import read_sheet
from apps.production.domain.discussion import write_comment
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    check_request,
    submit_request,
)
from apps.production.domain.priority.listing import starts_in_queue
from apps.production.domain.priority.ranks import queue_ranks
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.requests.returns import notes_on_fields
from apps.production.enums import Verb
from apps.production.models import QueueEntry, Request
from apps.production.web.forms.moves import ApprovalForm
from apps.progress.domain.stored_forecasts import keep_queue_forecasts
from apps.statusboard.domain.incidents.incidents import open_incident
from tests.factories.history import history
from tests.factories.people import person
from tests.factories.queue import set_pace
from tests.factories.requests import AT, LATER, draft, request_in, request_moved_to, stage
from tests.factories.statusboard import service

DESK = "/requests/inbox/desk/"


@pytest.fixture
def waiting(nova, liaison, approver):
    """Make requests that await approval."""

    def make(**changes):
        return request_in(
            "awaiting_approval", by=liaison, experiment=nova, approver=approver, **changes
        )

    return make


def now(request):
    return Request.objects.get(pk=request.pk)


def test_row_has_size_and_slack_of_the_estimate(waiting, nova, liaison, approver):
    history(draft(liaison, nova))
    one = waiting(stages=(stage(jobs=1000),), deadline=(AT + timedelta(days=12)).date())
    row = read_desk(approver, at=AT).rows[0]
    assert row.request == one
    assert row.estimate.core_seconds.mid == pytest.approx(1000 * 9000)
    assert (row.slack.days, row.slack.level) == (pytest.approx(12 - row.estimate.days.mid), "tight")
    assert read_desk(liaison, at=AT).rows == []


def test_sheet_shows_what_changed_since_the_review_and_comments_on_fields(
    waiting, liaison, approver
):
    one = waiting()
    write_comment(
        request=one, text="Needs 6 GB.", by=approver, at=LATER, path="stages.1.memory_bytes"
    )
    sheet = read_sheet(read_desk(approver, at=LATER).rows[0], user=approver, at=LATER)
    assert (sheet.changes.reviewed, sheet.commented) == (None, ["Stage 2 simulation › Memory"])
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](request=one, by=approver, at=LATER, reason="See memory.")
    written = content_of(one)
    more = replace(written.stages[1], memory_bytes=6_000_000_000)
    again = replace(written, deadline=date(2026, 12, 20), stages=(written.stages[0], more))
    one = save_draft(request=one, content=again, by=liaison, at=LATER, version=one.version)
    submit_request(request=one, by=liaison, at=LATER)
    check_request(request=one, at=LATER)

    row = read_desk(approver, at=LATER).rows[0]
    sheet = read_sheet(row, user=approver, at=LATER)
    assert row.is_resubmitted
    changed = {
        field.path: (field.old, field.text)
        for group in sheet.groups
        for field in group.fields
        if field.is_changed
    }
    assert changed == {
        "deadline": ("2026-12-12", "2026-12-20"),
        "stages.1.memory_bytes": ("4 GB", "6 GB"),
    }


def test_changes_name_the_note_that_they_answer(waiting, liaison, approver, client):
    """A note in the reason of the return, with its field, is answered by a change of this field."""
    request = waiting()
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=request, by=approver, at=LATER, reason="Stage 2 memory: needs 6 GB."
    )
    written = content_of(request)
    more = replace(written.stages[1], memory_bytes=6_000_000_000)
    again = replace(written, deadline=date(2026, 12, 20), stages=(written.stages[0], more))
    request = save_draft(
        request=request, content=again, by=liaison, at=LATER, version=request.version
    )
    submit_request(request=request, by=liaison, at=LATER)
    check_request(request=request, at=LATER)

    sheet = read_sheet(read_desk(approver, at=LATER).rows[0], user=approver, at=LATER)
    answers = {field.path: field.answer for field in sheet.changes.fields}
    assert answers == {"deadline": "", "stages.1.memory_bytes": "needs 6 GB."}
    client.force_login(approver)
    page = client.get(DESK).text
    assert f"Changed since version {sheet.changes.reviewed.version}" in page
    assert "not requested" in page
    assert "your request" in page


def test_return_without_a_field_leaves_open_which_change_answers_it(
    waiting, liaison, approver, client
):
    request = waiting()
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=request, by=approver, at=LATER, reason="More memory."
    )
    written = content_of(request)
    more = replace(written.stages[1], memory_bytes=6_000_000_000)
    again = replace(written, stages=(written.stages[0], more))
    request = save_draft(
        request=request, content=again, by=liaison, at=LATER, version=request.version
    )
    submit_request(request=request, by=liaison, at=LATER)
    check_request(request=request, at=LATER)
    client.force_login(approver)
    page = client.get(DESK).text
    assert "More memory." in page
    assert "not requested" not in page


def test_unusual_value_stands_beside_past_jobs_and_asks_for_a_change(
    waiting, nova, liaison, approver, client
):
    history(draft(liaison, nova))
    waiting(stages=(stage(jobs=10, memory_bytes=900 * 10**9),))
    sheet = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT)
    unusual = next(value for value in sheet.unusual if value.is_memory)
    assert (unusual.label, unusual.text) == ("generation › Memory", "900 GB")
    assert (unusual.value, unusual.most, unusual.times) == (9e11, 3e9, 300)
    assert sheet.unusual_memory

    client.force_login(approver)
    page = client.get(DESK).text
    assert "90 % of past jobs used at most 3 GB; requested 900 GB" in page
    assert "300 ×" in page
    asking = client.get(DESK, {"change": unusual.path})
    assert asking.context["forms"]["changes"]["reason"].value() == unusual.note
    assert dict(notes_on_fields(sheet.row.request, unusual.note)) == {unusual.path: unusual.message}


def test_outages_of_today_are_no_values_to_change(waiting, nova, liaison, approver, client):
    samweb = service("samweb", AT - timedelta(days=1))
    open_incident(service=samweb, state="down", title="503", by=approver, at=AT)
    waiting(stages=(stage(services=("samweb",)), stage(name="reco", services=("samweb",))))
    sheet = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT)
    assert sheet.outages == ["samweb is down."]
    assert not any("is down" in value.message for value in sheet.unusual)

    client.force_login(approver)
    page = unescape(client.get(DESK).text)
    assert re.search(r"Services</b>\s+samweb is down\.", page)


def test_classes_are_chosen_with_their_ends(waiting, nova, liaison, approver, client):
    history(draft(liaison, nova))
    set_pace(5000)
    waiting(
        stages=(stage(jobs=1000),), requested_priority="high", priority_reason="The freeze is near."
    )
    sheet = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT)
    assert [choice.name for choice in sheet.choices] == ["low", "normal", "high", "urgent"]
    assert (sheet.requested.name, sheet.compared.name) == ("high", "normal")
    assert sheet.requested.end == sheet.prospects["high"].forecast.end.likely
    client.force_login(approver)
    page = client.get(DESK).text
    assert page.count('name="priority_class"') == 4
    assert 'name="priority_class" value="high" checked' in page


def test_approval_and_priority_are_one_step(waiting, approver):
    one = waiting(requested_priority="high", priority_reason="Freeze")
    approve_request(request=one, by=approver, at=LATER, version=one.version, priority_class="high")
    assert (one.state, one.level) == ("queued", "high")
    told = {event.kind: event for event in events_of(one)}
    assert told["request.priority_set"].reason == "", "nobody gave one"

    other = waiting(requested_priority="high", priority_reason="Freeze")
    with pytest.raises(InvalidFields):
        approve_request(request=other, by=approver, at=LATER, priority_class="low")
    assert (now(other).state, now(other).level) == ("awaiting_approval", "")
    approve_request(
        request=now(other),
        by=approver,
        at=LATER,
        priority_class="low",
        priority=7,
        reason="It can wait.",
    )
    assert (now(other).state, now(other).level) == ("queued", "low 7")


@pytest.mark.parametrize("level", ["low", "normal", "high", "urgent"])
def test_what_a_class_would_give_is_what_it_gives(waiting, nova, liaison, approver, level):
    history(draft(liaison, nova))
    for _ in range(3):
        approve_request(
            request=waiting(stages=(stage(jobs=1000),)),
            by=approver,
            at=LATER,
            priority_class="normal",
            reason="-",
        )
    set_pace(5000)
    one = waiting(stages=(stage(jobs=1000),), deadline=(LATER + timedelta(days=20)).date())
    row = next(row for row in read_desk(approver, at=LATER).rows if row.request == one)
    prospect = read_sheet(row, user=approver, at=LATER).prospects[level]
    approve_request(
        request=one, by=approver, at=LATER, priority_class=level, reason="So that it starts then."
    )
    set_pace(5000)
    keep_queue_forecasts(at=LATER)
    stored = now(one)
    assert prospect.rank == queue_ranks()[one.pk]
    assert prospect.forecast.end == (
        stored.expected_end_early,
        stored.expected_end,
        stored.expected_end_late,
    )
    assert prospect.forecast.start.likely == stored.expected_start


@pytest.mark.parametrize("level", ["low", "urgent"])
def test_what_a_class_moves_back_is_what_it_moves_back(
    waiting, nova, liaison, approver, client, level
):
    history(draft(liaison, nova))
    for _ in range(3):
        approve_request(
            request=waiting(), by=approver, at=LATER, priority_class="normal", reason="-"
        )
    one = waiting()
    [size] = [row.estimate.size for row in read_desk(approver, at=LATER).rows if row.request == one]
    set_pace(size.core_seconds / 3600 / 2)
    before = starts_in_queue(at=LATER)
    row = next(row for row in read_desk(approver, at=LATER).rows if row.request == one)
    choices = read_sheet(row, user=approver, at=LATER).choices
    [choice] = [choice for choice in choices if choice.name == level]

    approve_request(request=one, by=approver, at=LATER, priority_class=level, reason="So.")
    after = starts_in_queue(at=LATER)
    later = {pk for pk, start in before.items() if after[pk].likely > start.likely}
    assert len(later) == (3 if level == "urgent" else 0)
    assert set(choice.moved_back.pks) == later
    for delayed in choice.moved_back.named:
        pk = delayed.request.pk
        assert (delayed.start_now, delayed.start_then) == (before[pk].likely, after[pk].likely)
        assert abs((delayed.start_then - delayed.start_now).days - 2) <= 1
    assert choice.moved_back.delay_text == ("2 d" if later else "")


def test_desk_names_the_requests_that_move_back(
    waiting, nova, dune, liaison, other_liaison, approver, client
):
    history(draft(liaison, nova))
    queued = partial(request_in, "queued", approver=approver)
    nova_approver = person("nova_approver", ("approver", nova))
    pks = []
    for number in range(5):
        title = f"Queued {number}"
        pks.append(queued(by=liaison, experiment=nova, title=title).pk)
    foreign = queued(by=other_liaison, experiment=dune)
    QueueEntry.objects.update(core_seconds=24 * 3600.0)
    soon = (LATER + timedelta(days=2)).date()
    Request.objects.filter(pk=pks[0]).update(deadline=soon)
    QueueEntry.objects.filter(pk=pks[0]).update(days=1)
    one = waiting(stages=(stage(jobs=1000),))
    two = waiting(stages=(stage(jobs=1000),))
    set_pace(1250)

    client.force_login(nova_approver)
    page = client.get(DESK, {"at": one.key}).text
    _, _, block = page.partition('<div class="moved-back" data-class="urgent">')
    named, folded, rest = block.partition("Show the rest")
    assert "Urgent moves 6 requests back by up to 2 d." in " ".join(named.split())
    assert folded
    assert named.count("Queued") == 3
    assert rest.partition("</details>")[0].count("Queued") == 2
    assert "1 more in the" in rest, "the one of the other experiment is counted, not named"
    assert foreign.key not in block
    assert "1 of them then misses the deadline" in named

    ticked = [f"{request.key}:{request.version}" for request in (one, two)]
    Request.objects.filter(pk__in=[one.pk, two.pk]).update(requested_priority="urgent")
    text = " ".join(client.post(f"{DESK}approve/", {"ticked": ticked}).text.split())
    assert "Together they move 6 requests back by up to 4 d." in text
    assert "Queued 4" in text


def test_delay_of_others_is_unknown_while_the_pace_is(waiting, nova, liaison, approver):
    history(draft(liaison, nova))
    waiting()
    request_in("queued", by=liaison, experiment=nova, approver=approver)
    set_pace(100, days=0)
    choice = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT).choices[-1]
    [delayed] = choice.moved_back.named
    assert (choice.moved_back.delay, choice.moved_back.delay_text) == (None, "")
    assert (delayed.start_now, delayed.start_then) == (None, None)


def test_desk_says_why_the_end_is_unknown_and_when_it_starts(
    waiting, nova, liaison, approver, client
):
    slow = stage("generation", jobs=100, wall_seconds=60)
    history(draft(liaison, nova, stages=(slow,)))
    waiting(stages=(slow,))
    request_in("queued", by=liaison, experiment=nova, approver=approver)
    QueueEntry.objects.update(core_seconds=72 * 3600)
    set_pace(5)
    sheet = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT)
    assert sheet.why_no_end.startswith(
        "Expected end unknown: nearly no job of generation would end"
    )
    client.force_login(approver)
    text = " ".join(client.get(DESK).text.split())
    assert sheet.why_no_end in text
    assert re.search(r"\d\w\w, starts \d+ \w+", text)


def test_desk_says_that_a_request_of_unknown_end_starts_too_late(
    waiting, nova, liaison, approver, client
):
    slow = stage("generation", jobs=100, wall_seconds=60)
    history(draft(liaison, nova, stages=(slow,)))
    late = waiting(stages=(slow,), deadline=(AT + timedelta(days=2)).date())
    request_in("queued", by=liaison, experiment=nova, approver=approver)
    QueueEntry.objects.update(core_seconds=72 * 3600)
    Request.objects.filter(pk=late.pk).update(requested_priority="low")
    set_pace(5)
    choice = read_sheet(read_desk(approver, at=AT).rows[0], user=approver, at=AT).requested
    assert (choice.end, choice.slack.start) == (None, choice.start)
    assert choice.slack.days_late == (choice.start - late.deadline).days
    client.force_login(approver)
    _, _, facts = client.get(DESK).text.partition('<div class="header-facts">')
    facts = " ".join(facts.partition("</section>")[0].split())
    assert f"≥ {choice.slack.days_late} d late" in facts
    assert "start if low · end unknown" in facts


def test_desk_without_requests_has_nothing_to_sign(approver, client):
    client.force_login(approver)
    text = client.get(DESK).text
    assert "Nothing to sign" in text
    assert "0 to sign" not in text


def test_decision_opens_the_next_request(waiting, approver, client):
    first, second, third = (waiting(title=f"Sample {n}") for n in range(3))
    client.force_login(approver)
    form = {"version": second.version, "priority_class": "normal"}
    assert client.post(f"{DESK}{second.key}/approve/", form).url == f"{DESK}?at={third.key}"
    stale = client.post(f"{DESK}{third.key}/approve/", {"version": third.version - 1}, follow=True)
    assert "was changed" in stale.text
    missing = client.post(f"{DESK}{third.key}/request-changes/", {"version": third.version})
    assert (missing.status_code, "Enter a reason." in missing.text) == (400, True)
    assert '<a href="/requests/inbox/" aria-current="page">Your turn</a>' in missing.text
    rejected = client.post(
        f"{DESK}{third.key}/reject/", {"version": third.version, "reason": "Not this year."}
    )
    assert rejected.url == f"{DESK}?at={first.key}"
    assert client.post(f"{DESK}{first.key}/approve/", {"version": first.version}).url == DESK
    assert "Nothing to decide." in client.get(DESK).text
    assert [now(one).state for one in (first, second, third)] == ["queued", "queued", "rejected"]


def test_several_are_named_before_they_are_approved(waiting, approver, client):
    one, two, three = (
        waiting(),
        waiting(requested_priority="high", priority_reason="Freeze"),
        waiting(),
    )
    client.force_login(approver)
    ticked = {
        "ticked": [
            f"{one.key}:{one.version}",
            f"{two.key}:{two.version}",
            f"{three.key}:{three.version - 1}",
        ]
    }
    asked = client.post(f"{DESK}approve/", ticked)
    assert all(each.key in asked.text for each in (one, two, three))
    assert f'<a href="{DESK}">Approver' in asked.text
    # Nothing is known of their end yet, but of their deadline.
    assert asked.text.count("due 12 Dec 2026") == 3
    assert "no deadline" not in asked.text
    assert now(one).state == "awaiting_approval"
    endless = {"ticked": [f"{one.key}:{'9' * 5000}"], "confirmed": "yes"}
    assert "was changed" in client.post(f"{DESK}approve/", endless, follow=True).text
    answer = client.post(f"{DESK}approve/", ticked | {"confirmed": "yes"}, follow=True)
    assert f"{three.key} was changed" in answer.text
    assert [(now(each).state, now(each).level) for each in (one, two, three)] == [
        ("queued", "normal"),
        ("queued", "high"),
        ("awaiting_approval", ""),
    ]


def test_several_are_summed_up_with_their_warnings(
    nova, liaison, approver, client, django_assert_max_num_queries
):
    history(draft(liaison, nova))
    sizes = ({"jobs": 100}, {"jobs": 20, "memory_bytes": 900 * 10**9})
    requests = []
    for number, size in enumerate(sizes):
        stages = (stage(output_dataset=f"nova.mc.{number}", **size),)
        titled = {"title": f"Sample {number}", "stages": stages}
        requests.append(
            request_moved_to(
                "awaiting_approval", by=liaison, experiment=nova, approver=approver, **titled
            )
        )
    desk = read_desk(approver, at=LATER)
    rows = desk.rows
    with django_assert_max_num_queries(2):
        bulk = bulk_approval(rows, desk.queue, user=approver, at=LATER)
    assert (bulk.jobs, bulk.unsized) == (120, 0)
    assert bulk.size.core_seconds == pytest.approx(120 * 9000)
    memory = [message for _, message, _ in bulk.warnings_for(rows[1]) if "3 GB" in message]
    assert len(memory) == 1

    client.force_login(approver)
    ticked = {"ticked": [f"{request.key}:{request.version}" for request in requests]}
    page = client.post(f"{DESK}approve/", ticked).text
    assert "120 jobs · 300 core-hours" in page
    assert memory[0] in page
    assert "will miss the deadline" not in page
    Request.objects.filter(pk=requests[0].pk).update(deadline=AT.date() - timedelta(days=3))
    assert "1 will miss the deadline" in client.post(f"{DESK}approve/", ticked).text


def test_member_of_a_group_signs_without_a_priority(waiting, nova, client):
    from tests.factories import approvals

    convener = person("convener", ("shifter", nova))
    approvals.rule(approvals.group("Physics", convener, experiment=nova), experiment=nova)
    one = waiting()
    client.force_login(convener)
    assert 'name="priority_class"' not in client.get(DESK).text
    client.post(f"{DESK}{one.key}/approve/", {"version": one.version, "priority_class": "urgent"})
    assert (now(one).state, now(one).level) == ("queued", "")


def test_lost_race_is_refused(waiting, approver, second_approver):
    mine = waiting()
    theirs = now(mine)
    approve_request(request=theirs, by=second_approver, at=LATER)
    with pytest.raises(StaleState):
        approve_request(request=mine, by=approver, at=LATER, priority_class="high", reason="Freeze")
    assert now(mine).level == ""


def test_reason_is_called_optional_only_where_no_choice_requires_it():
    labels = {
        sets: ApprovalForm(sets_priority=sets).fields["reason"].label for sets in (True, False)
    }
    assert labels == {True: "Reason", False: "Reason (optional)"}
