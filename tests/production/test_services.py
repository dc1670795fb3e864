"""Drafts, the queue and the records that services leave;
the matrix of moves is in `test_transitions`.
"""

from dataclasses import replace
from datetime import date, timedelta

import pytest
from django.db import IntegrityError, transaction

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.approvals.inbox import waiting_for
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    set_priority,
    submit_request,
)
from apps.production.domain.priority.listing import queue_history, queue_rows
from apps.production.domain.priority.ranks import queue_ranks, startable_requests
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.enums import Verb
from apps.production.models import Request
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, request_in, stage


@pytest.fixture
def approved(nova, liaison, approver):
    def make(**changes):
        return request_in("queued", by=liaison, experiment=nova, approver=approver, **changes)

    return make


def test_keys_count_within_each_experiment(nova, dune, liaison, other_liaison):
    made = [
        create_draft(experiment=experiment, content=content(), by=by, at=AT)
        for by, experiment in [(liaison, nova), (other_liaison, dune), (liaison, nova)]
    ]
    assert [request.key for request in made] == ["NOVA-0001", "DUNE-0001", "NOVA-0002"]


def test_failed_draft_gives_its_number_back(nova, liaison):
    with pytest.raises(InvalidFields):
        create_draft(experiment=nova, content=content(title="x" * 300), by=liaison, at=AT)
    assert create_draft(experiment=nova, content=content(), by=liaison, at=AT).key == "NOVA-0001"


def test_draft_holds_what_was_written(nova, liaison, samweb):
    written = content(
        stages=(stage("a", services=("samweb",)), stage("b", events=None, memory_bytes=None))
    )
    made = create_draft(experiment=nova, content=written, by=liaison, at=AT)
    assert content_of(Request.objects.get(pk=made.pk)) == written


def test_services_of_all_stages_are_one_query(nova, liaison, samweb, django_assert_num_queries):
    stages = tuple(stage(name, services=("samweb",)) for name in "abcd")
    made = Request.objects.select_related("workflow__type").get(
        pk=draft(liaison, nova, stages=stages).pk
    )
    with django_assert_num_queries(2):
        assert content_of(made).stages == stages


@pytest.mark.parametrize("role", ["other_liaison", "approver", "shifter", "admin"])
def test_only_a_liaison_of_the_experiment_writes(role, nova, liaison, request):
    by = request.getfixturevalue(role)
    with pytest.raises(NotAllowed):
        create_draft(experiment=nova, content=content(), by=by, at=AT)
    made = draft(liaison, nova)
    with pytest.raises(NotAllowed):
        save_draft(request=made, content=content(title="x"), version=1, by=by, at=AT)


@pytest.mark.parametrize(
    "state", ["submitted", "testing", "running", "rejected", "cancelled", "done"]
)
def test_request_past_writing_cannot_be_saved(state, nova, liaison, approver):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidTransition, match="can no longer be edited"):
        save_draft(request=obj, content=content(title="x"), version=obj.version, by=liaison, at=AT)


def test_save_replaces_adds_and_drops_stages(nova, liaison, samweb):
    made = draft(liaison, nova)
    for chain in [
        (stage("simulation"), stage("generation", services=("samweb",)), stage("merge")),
        (stage("merge"),),
        (),
    ]:
        save_draft(
            request=made, content=content(stages=chain), version=made.version, by=liaison, at=AT
        )
        assert content_of(Request.objects.get(pk=made.pk)).stages == chain
    assert made.version == 4


def test_save_without_a_change_leaves_no_trace(nova, liaison):
    made = draft(liaison, nova)
    save_draft(request=made, content=content(), version=1, by=liaison, at=AT)
    assert (Request.objects.get().version, events_of(made).count()) == (1, 1)


def test_second_of_two_editors_overwrites_nothing(nova, liaison):
    other = person("nova-two", ("liaison", nova))
    made = draft(liaison, nova)
    first, second = Request.objects.get(pk=made.pk), Request.objects.get(pk=made.pk)
    save_draft(request=first, content=content(title="First"), version=1, by=other, at=AT)
    with pytest.raises(StaleState, match="NOVA-0001 was changed by nova-two in the meantime"):
        save_draft(request=second, content=content(title="Second"), version=1, by=liaison, at=AT)
    assert Request.objects.get().title == "First"


def test_version_seen_must_be_the_current_one(nova, liaison, approver):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    with pytest.raises(StaleState):
        approve_request(request=obj, by=approver, at=AT, version=obj.version - 1)


def test_incomplete_draft_is_not_submitted_and_all_is_said(nova, liaison):
    made = draft(liaison, nova, title="", purpose="", stages=(stage(events=None, jobs=None),))
    with pytest.raises(InvalidFields) as error:
        submit_request(request=made, by=liaison, at=AT)
    assert set(error.value.problems) == {"title", "purpose", "stages.0.events", "stages.0.jobs"}
    assert Request.objects.get().state == "draft"


def test_deadline_that_passed_meanwhile_keeps_it_from_being_submitted_again(
    nova, liaison, approver
):
    obj = request_in("changes_requested", by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidFields):
        submit_request(request=obj, by=liaison, at=AT + timedelta(days=60))


def test_last_submitter_cannot_approve_what_another_made(nova, liaison, both, approver):
    made = draft(liaison, nova)
    submit_request(request=made, by=both, at=AT)
    with pytest.raises(NotAllowed, match="Another member of the OPG must decide"):
        approve_request(request=made, by=both, at=AT)
    with pytest.raises(NotAllowed):
        set_priority(request=made, priority=9, by=both, at=AT, reason="mine")


@pytest.mark.parametrize("field", ["created_by", "submitted_by"])
def test_database_refuses_an_approver_who_is_the_requester(field, nova, liaison, approved):
    obj = approved()
    with (
        pytest.raises(IntegrityError, match=r"request_approver_is_not_(requester|editor)"),
        transaction.atomic(),
    ):
        Request.objects.filter(pk=obj.pk).update(approved_by=getattr(obj, field))


@pytest.mark.parametrize(
    "changes",
    [
        {"approved_at": None},
        {"state": "draft"},
        {"closed_at": AT},
        {"state": "lost"},
        {"priority": 10},
    ],
)
def test_database_refuses_what_no_service_writes(changes, approved):
    obj = approved()
    with pytest.raises(IntegrityError), transaction.atomic():
        Request.objects.filter(pk=obj.pk).update(**changes)


@pytest.mark.parametrize("reason", ["", "   ", "x" * 2001, "a\0b"])
def test_reason_must_be_one(reason, nova, liaison, approver):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidFields) as error:
        MOVE_FUNCTIONS[Verb.REJECT](request=obj, by=approver, at=AT, reason=reason)
    assert set(error.value.problems) == {"reason"}


def test_queue_is_ranked_by_class_number_and_deadline(approved, approver):
    late, early, high, low = (
        approved(),
        approved(deadline=date(2026, 12, 1)),
        approved(deadline=date(2027, 1, 1)),
        approved(),
    )
    set_priority(
        request=high, priority=7, priority_class="high", by=approver, at=AT, reason="first"
    )
    set_priority(request=low, priority_class="low", by=approver, at=AT, reason="last")
    assert list(startable_requests()) == [high, early, late, low]


def test_priority_event_tells_level_and_rank_before_and_after(approved, approver):
    approved()
    obj = approved()
    set_priority(request=obj, priority=7, by=approver, at=AT, reason="freeze")
    set_priority(request=obj, priority_class="high", by=approver, at=AT, reason="still")
    told = [
        (e.old, e.new, e.reason, e.data) for e in events_of(obj).filter(kind="request.priority_set")
    ]
    assert told == [
        ("", "7", "freeze", {"rank_old": 2, "rank_new": 1}),
        ("7", "high 7", "still", {"rank_old": 1, "rank_new": 1}),
    ]


def test_entering_and_leaving_the_queue_is_told(approved, approver):
    approved()
    obj = approved()
    MOVE_FUNCTIONS[Verb.START](request=obj, by=approver, at=AT)
    ranks = [e.data for e in events_of(obj) if "rank_old" in e.data]
    assert ranks == [{"rank_old": None, "rank_new": 2}, {"rank_old": 2, "rank_new": None}]


def test_ranks_count_all_experiments_but_rows_are_ones_own(
    dune, other_liaison, approver, approved, liaison
):
    request_in(
        "queued", by=other_liaison, experiment=dune, approver=approver, deadline=date(2026, 11, 30)
    )
    approved()
    part = queue_rows(user=liaison, at=AT)
    assert [(row.rank, row.request.key) for row in part.rows] == [(2, "NOVA-0001")]
    assert (part.total, part.visible) == (2, 1)


def test_queue_goes_on_after_a_rank(approved, approver):
    made = [approved(deadline=date(2026, 12, day)) for day in (1, 2, 3)]
    first = queue_rows(user=approver, at=AT, size=2)
    rest = queue_rows(user=approver, at=AT, size=2, after=first.next_after)
    assert [row.request for part in (first, rest) for row in part.rows] == made
    assert rest.next_after is None


def test_waiting_for_is_what_each_can_do_next(nova, liaison, approver, both, shifter):
    own = draft(liaison, nova)
    changes = request_in("changes_requested", by=liaison, experiment=nova, approver=approver)
    theirs = request_in("awaiting_approval", by=both, experiment=nova, approver=approver)
    request_in("queued", by=liaison, experiment=nova, approver=approver)
    assert set(waiting_for(liaison)) == {own, changes}
    assert set(waiting_for(approver)) == {theirs}
    assert set(waiting_for(both)) == {changes}
    assert set(waiting_for(shifter)) == set()


def test_approver_of_one_experiment_decides_there_alone(
    nova, dune, liaison, other_liaison, approver
):
    local = person("nova-approver", ("approver", nova))
    mine = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    other = request_in("awaiting_approval", by=other_liaison, experiment=dune, approver=approver)
    assert list(waiting_for(local)) == [mine]
    with pytest.raises(NotAllowed):
        approve_request(request=other, by=local, at=AT)
    assert approve_request(request=mine, by=local, at=AT).state == "queued"


def test_queue_without_requests_is_empty(approver):
    assert queue_ranks() == {}
    assert queue_rows(user=approver, at=AT).rows == []


def test_hundred_stages_are_saved(nova, liaison):
    chain = tuple(replace(stage(f"s{i}"), output_dataset=f"d{i}") for i in range(100))
    made = draft(liaison, nova, stages=chain)
    assert submit_request(request=made, by=liaison, at=AT).stages.count() == 100


def test_history_of_the_queue_shows_ones_own_experiments(
    nova, dune, liaison, other_liaison, approver, approved
):
    theirs = request_in("queued", by=other_liaison, experiment=dune, approver=approver)
    mine = approved()
    for obj in (theirs, mine):
        set_priority(request=obj, priority=3, by=approver, at=AT, reason="freeze")
    # Of others' requests nothing but that ranks changed is told.
    assert [(told.target, told.reason) for told in queue_history(user=liaison)] == [
        ("NOVA-0001", "freeze"),
        ("", ""),
    ]
    assert [told.target for told in queue_history(user=approver)] == ["NOVA-0001", "DUNE-0001"]
