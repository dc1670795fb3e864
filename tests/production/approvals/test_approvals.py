"""Groups that must sign, in any order; whose signature is missing; delegation while away;
the inbox; reminders.
"""

from datetime import date, timedelta

import pytest
from django.db import IntegrityError, transaction

from apps.core.domain.event_kinds import kind_named
from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.models import Event
from apps.production.domain.approvals.delegations import delegate, revoke_delegation
from apps.production.domain.approvals.inbox import inbox_items, waiting_for
from apps.production.domain.approvals.reminders import remind_of_waiting
from apps.production.domain.approvals.requirements import approval_of
from apps.production.domain.approvals.waits import WAIT_KINDS, urgency_key
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    check_request,
    moves_for,
    submit_request,
    withdraw_signature,
)
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import AttentionKind, RequestState, Verb
from apps.production.models import ApprovalRule, Attention, Delegation, Request, Signature
from tests.factories import approvals
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, request_moved_to, stage
from tests.pages import text_of

WEEK = timedelta(days=7)


@pytest.fixture
def convener(nova):
    return person("convener", ("shifter", nova))


@pytest.fixture
def physics(nova, convener):
    return approvals.group("Physics of NOvA", convener, experiment=nova)


@pytest.fixture
def opg(db):
    return approvals.group("OPG", role="approver")


@pytest.fixture
def rule(nova, physics, opg):
    return approvals.rule(physics, opg, experiment=nova, remind_after_days=2)


@pytest.fixture
def waiting(nova, liaison, approver):
    return request_moved_to("awaiting_approval", by=liaison, experiment=nova, approver=approver)


def approve(request, by, at=AT, **more):
    return approve_request(request=Request.objects.get(pk=request.pk), by=by, at=at, **more)


def away(by, to_user, **more):
    return delegate(
        by=by, to_user=to_user, **{"from_at": AT, "until_at": AT + WEEK, "at": AT} | more
    )


def test_without_a_rule_one_signature_approves(waiting, approver):
    assert approve(waiting, approver).state == "queued"
    signature = Signature.objects.get()
    assert (signature.by, signature.group, signature.content["title"]) == (
        approver,
        None,
        content().title,
    )


@pytest.mark.parametrize("order", [("convener", "approver"), ("approver", "convener")])
def test_groups_sign_in_any_order(order, rule, waiting, approver, convener):
    people = {"approver": approver, "convener": convener}
    first = approve(waiting, people[order[0]], reason="fine")
    assert (first.state, first.approved_by) == ("awaiting_approval", None)
    assert events_of(first).last().kind == "request.sign"
    last = approve(waiting, people[order[1]])
    assert (last.state, last.approved_by) == ("queued", people[order[1]])
    assert {s.group_name for s in Signature.objects.all()} == {"OPG", "Physics of NOvA"}


def test_who_is_of_no_group_cannot_sign_but_an_approver_can_still_refuse(
    nova, physics, waiting, approver, convener
):
    approvals.rule(physics, experiment=nova)
    with pytest.raises(NotAllowed, match="Physics of NOvA"):
        approve(waiting, approver)
    assert {m.verb for m in moves_for(approver, waiting)} >= {Verb.REJECT, Verb.REQUEST_CHANGES}
    assert Verb.APPROVE not in {m.verb for m in moves_for(approver, waiting)}
    assert Verb.APPROVE in {m.verb for m in moves_for(convener, waiting)}
    assert (
        MOVE_FUNCTIONS[Verb.REJECT](request=waiting, by=convener, at=AT, reason="no").state
        == "rejected"
    )


def test_second_of_a_group_is_told_who_signed(rule, waiting, approver, second_approver):
    approve(waiting, approver)
    with pytest.raises(
        InvalidTransition, match=r"opg-one signed for OPG. Missing: Physics of NOvA"
    ):
        approve(waiting, second_approver)
    with pytest.raises(StaleState, match="changed by opg-one in the meantime"):
        approve_request(request=waiting, by=second_approver, at=AT)
    assert Signature.objects.count() == 1


def test_group_can_be_named_and_must_be_one_that_signs(rule, nova, waiting, approver):
    with pytest.raises(InvalidFields):
        approve(waiting, approver, group="Nobody")
    with pytest.raises(NotAllowed):
        approve(waiting, approver, group="Physics of NOvA")
    assert approve(waiting, approver, group="OPG").state == "awaiting_approval"


def test_rules_of_other_types_and_experiments_and_disabled_ones_do_not_count(
    dune, physics, opg, waiting, approver
):
    approvals.rule(physics, experiment=dune)
    approvals.rule(physics, enabled=False)
    other = person("dune-group", ("liaison", dune))
    foreign = approvals.group("DUNE", other, experiment=dune)
    approvals.rule(opg, foreign)
    assert [slot.name for slot in approval_of(waiting, approver, AT).slots] == ["OPG"]


def test_page_names_whose_signature_is_missing_and_who_can_give_it(
    rule, waiting, approver, convener, browse
):
    approve(waiting, approver)
    page = browse(convener).get(f"/requests/{waiting.key}/").content.decode()
    assert "1 missing" in page
    assert "can be signed by convener" in page
    assert "Review and approve…" in page
    assert (
        "Review and approve…"
        not in browse(approver).get(f"/requests/{waiting.key}/").content.decode()
    )
    answer = browse(convener).post(f"/requests/{waiting.key}/approve/", {"reason": ""}, follow=True)
    assert "is approved as normal, 1st of 1 in the queue" in answer.content.decode()


def test_requester_signs_neither_as_member_nor_by_delegation_nor_through_another(
    nova, rule, physics, both, approver
):
    obj = request_moved_to("awaiting_approval", by=both, experiment=nova, approver=approver)
    physics.members.add(both)
    away(approver, both)
    with pytest.raises(NotAllowed):
        approve(obj, both)
    stand_in = person("stand-in", ("shifter", None))
    away(both, stand_in)
    with pytest.raises(NotAllowed):
        approve(obj, stand_in)


def test_database_refuses_a_signature_of_the_requester(waiting, liaison, approver):
    plain = {
        "request": waiting,
        "at": AT,
        "version": 1,
        "content": {},
        "made_by": liaison,
        "sent_by": liaison,
    }
    for people in ({"by": liaison}, {"by": approver, "for_user": liaison}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Signature.objects.create(**plain, **people)


def test_group_sees_what_changed_since_others_signed_before_there_was_a_rule(
    nova, physics, liaison, approver, convener, browse
):
    signed = request_moved_to("queued", by=liaison, experiment=nova, approver=approver)
    approvals.rule(physics, experiment=nova)
    heavier = content(stages=(stage("generation", jobs=8000), stage("simulation")))
    save_draft(request=signed, content=heavier, version=signed.version, by=liaison, at=AT)
    waiting = check_request(request=signed, at=AT)

    slot = approval_of(waiting, convener, AT).slots[0]

    assert (slot.name, slot.earlier.by) == ("Physics of NOvA", approver)
    assert [(c["path"], c["old"], c["new"]) for c in slot.changes] == [
        ("stages.0.jobs", "4,000", "8,000")
    ]
    assert (
        "1 change since opg-one signed"
        in browse(convener).get(f"/requests/{waiting.key}/").content.decode()
    )


def test_what_others_wait_for_comes_before_drafts(nova, liaison, approver):
    """A draft waits for its author alone, whatever its deadline."""
    people = {"by": liaison, "experiment": nova, "approver": approver}
    late = request_moved_to("queued", deadline=date(2027, 2, 1), **people)
    Attention.objects.create(request=late, kind=AttentionKind.LATE, since=AT, words="late")
    draft = request_moved_to("draft", deadline=date(2027, 1, 1), **people)
    assert list(waiting_for(liaison, AT)) == [late, draft]


def test_stand_in_signs_in_the_own_name_while_it_lasts(waiting, approver, shifter):
    given = away(approver, shifter)
    with pytest.raises(NotAllowed):
        approve(waiting, shifter, at=AT - timedelta(seconds=1))
    with pytest.raises(NotAllowed):
        approve(waiting, shifter, at=AT + WEEK)
    assert list(waiting_for(shifter, AT)) == [waiting]
    assert inbox_items([waiting], shifter, AT)[0].for_users == ("opg-one",)
    assert approve(waiting, shifter).approved_by == shifter
    assert Signature.objects.get().for_user == approver
    assert events_of(waiting).get(kind="request.approve").data["for"] == ["opg-one"]
    assert Delegation.objects.get() == given


def test_what_was_revoked_or_is_of_another_group_gives_no_right(
    rule, physics, waiting, approver, shifter, convener
):
    given = away(approver, shifter)
    revoke_delegation(delegation=given, by=shifter, at=AT)
    for by, more in ((approver, {"group": physics}), (convener, {"role": "approver"})):
        with pytest.raises(InvalidFields):
            away(by, shifter, **more)
    away(approver, shifter, group=approvals.group("Others", approver))
    with pytest.raises(NotAllowed):
        approve(waiting, shifter)
    with pytest.raises(NotAllowed):
        revoke_delegation(delegation=given, by=convener, at=AT)
    away(convener, shifter, group=physics)
    assert approve(waiting, shifter).signatures.get().group == physics


def test_stand_in_passes_nothing_on_and_sees_no_more_than_before(waiting, approver, shifter, dune):
    other, last = person("dune-one", ("liaison", dune)), person("last", ("shifter", None))
    away(approver, other)
    away(approver, shifter)
    with pytest.raises(NotAllowed):
        away(shifter, last)
    for by in (other, last):
        with pytest.raises(NotAllowed):
            approve(waiting, by)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"to_user": None}, "to_user"),
        ({"until_at": AT - WEEK}, "until_at"),
        ({"until_at": AT + 100 * WEEK}, "until_at"),
        ({"from_at": AT - 2 * WEEK, "until_at": AT - WEEK}, "until_at"),
    ],
)
def test_delegation_that_makes_no_sense_is_refused(wrong, field, approver, shifter):
    with pytest.raises(InvalidFields) as error:
        delegate(
            by=approver, at=AT, **{"to_user": shifter, "from_at": AT, "until_at": AT + WEEK} | wrong
        )
    assert set(error.value.problems) == {field}


def test_own_signature_is_withdrawn_while_others_are_missing(
    rule, waiting, approver, second_approver, convener
):
    approve(waiting, approver)
    signature, current = Signature.objects.get(), Request.objects.get(pk=waiting.pk)
    with pytest.raises(NotAllowed):
        withdraw_signature(
            request=current, signature=signature.pk, by=second_approver, at=AT, reason="x"
        )
    with pytest.raises(InvalidFields):
        withdraw_signature(request=current, signature=signature.pk, by=approver, at=AT, reason=" ")
    withdraw_signature(
        request=current, signature=signature.pk, by=approver, at=AT, reason="a mistake"
    )
    assert approve(waiting, convener).state == "awaiting_approval"
    assert approve(waiting, second_approver).state == "queued"
    with pytest.raises(InvalidTransition, match="can no longer be withdrawn"):
        withdraw_signature(
            request=Request.objects.get(), signature=signature.pk, by=approver, at=AT, reason="late"
        )


def test_signature_of_who_submits_next_holds_no_more(nova, rule, waiting, both, convener, approver):
    approve(waiting, both)
    back = MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=Request.objects.get(), by=approver, at=AT, reason="why so many?"
    )
    submit_request(request=back, by=both, at=AT)
    check_request(request=back, at=AT)
    assert not Signature.objects.filter(withdrawn_at=None).exists()
    assert approve(waiting, convener).state == "awaiting_approval"
    assert approve(waiting, approver).state == "queued"


def test_signature_stays_while_nothing_material_changes(rule, waiting, liaison, convener, approver):
    approve(waiting, convener)
    back = MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=Request.objects.get(), by=approver, at=AT, reason="why?"
    )
    save_draft(
        request=back, content=content(purpose="More"), version=back.version, by=liaison, at=AT
    )
    assert Signature.objects.filter(withdrawn_at=None).count() == 1
    heavier = content(purpose="More", stages=(stage(jobs=5),))
    save_draft(request=back, content=heavier, version=back.version, by=liaison, at=AT)
    assert not Signature.objects.filter(withdrawn_at=None).exists()


def test_without_the_missing_group_any_signer_completes(
    rule, physics, waiting, approver, second_approver
):
    approve(waiting, approver)
    rule.groups.remove(physics)
    assert Request.objects.get() in waiting_for(second_approver, AT)
    assert approve(waiting, second_approver).state == "queued"
    assert Signature.objects.get().by == approver


def test_inbox_says_what_why_and_since_when(rule, waiting, convener, liaison, browse):
    page = browse(convener).get("/requests/inbox/").content.decode()
    assert waiting.key in page
    assert "Signature of Physics of NOvA missing" in page
    assert (
        "No requests are waiting for you"
        in browse(liaison).get("/requests/inbox/").content.decode()
    )
    turn = inbox_items([waiting], convener, AT)[0]
    assert turn.since == events_of(waiting).get(kind="request.pass").at


def test_inbox_groups_requests_by_what_to_do(nova, liaison, approver, browse):
    to_sign = [
        request_moved_to("awaiting_approval", by=liaison, experiment=nova, approver=approver)
        for _ in range(2)
    ]
    stuck = request_moved_to("running", by=liaison, experiment=nova, approver=approver)
    Attention.objects.create(request=stuck, kind="late", since=AT, words="late")
    Attention.objects.create(request=stuck, kind="stuck", since=AT, words="2 failed jobs")
    page = browse(approver).get("/requests/inbox/")
    groups = page.context["groups"]
    assert [group.heading for group in groups] == ["To sign", "Stuck"]
    assert [item.request for item in groups[0].items] == to_sign
    [to_sign_part] = groups[0].parts
    by_whom = f"Submitted by {liaison}"
    assert to_sign_part.rows == [(item, by_whom) for item in groups[0].items]
    assert text_of(page).count(f'<td class="wide">{by_whom}</td>') == 2
    [(_, reasons)] = groups[1].parts[0].rows
    assert reasons == "Stuck: 2 failed jobs. Late: late", "one item has its reasons in its row"
    assert page.content.decode().count("Signature of an approver missing") == 1
    assert [item.request for item in groups[1].items] == [stuck]
    assert groups[1].todo == "Retry its failed jobs or continue without them"
    assert page.content.decode().count("Open the desk") == 1
    assert "Open the desk" not in browse(liaison).get("/requests/inbox/").content.decode()


def test_inbox_has_no_column_of_reasons_where_none_has_one(nova, liaison, browse):
    draft(liaison, nova)
    page = text_of(browse(liaison).get("/requests/inbox/"))
    assert ">Since</th>" in page
    assert ">Reason</th>" not in page


@pytest.mark.parametrize("kind", list(AttentionKind))
def test_each_reason_for_attention_is_complete(kind):
    assert WAIT_KINDS[kind].roles
    assert kind_named(WAIT_KINDS[kind].event).predicate


def test_lateness_is_the_least_urgent_wait_of_a_request():
    waits = [AttentionKind.LATE, RequestState.ON_HOLD, AttentionKind.STUCK]
    assert sorted(waits, key=urgency_key) == waits[::-1]


def test_inbox_asks_no_more_for_more_requests(
    rule, nova, liaison, approver, convener, shifter, browse, django_assert_max_num_queries
):
    client = browse(approver)
    away(convener, approver)
    request_moved_to("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    client.get("/requests/inbox/")
    with django_assert_max_num_queries(40) as few:
        client.get("/requests/inbox/")
    for _ in range(4):
        request_moved_to("awaiting_approval", by=liaison, experiment=nova, approver=approver)
        away(convener, approver)
    with django_assert_max_num_queries(len(few)):
        assert client.get("/requests/inbox/").content.decode().count("NOVA-000") >= 5


def test_handing_over_and_taking_back_on_the_page(approver, shifter, browse):
    client = browse(approver)
    wrong = client.post(
        "/requests/inbox/hand-over/", {"to_user": "nobody", "until_at": "2026-11-25T10:00"}
    )
    assert wrong.status_code == 400
    assert "No user with this name" in wrong.content.decode()
    good = {"to_user": shifter.username, "until_at": "2026-11-25T10:00", "what": "approver"}
    assert (
        "signs for you"
        in client.post("/requests/inbox/hand-over/", good, follow=True).content.decode()
    )
    given = Delegation.objects.get()
    assert (given.role, given.from_at) == ("approver", AT)
    assert (
        browse(person("stranger"))
        .post(f"/requests/inbox/delegations/{given.pk}/revoke/")
        .status_code
        == 404
    )
    client.post(f"/requests/inbox/delegations/{given.pk}/revoke/")
    assert Delegation.objects.get().revoked_at == AT


def test_reminder_comes_once_for_each_wait(rule, waiting, approver, convener, liaison):
    arrived = events_of(waiting).get(kind="request.pass").at
    assert remind_of_waiting(at=arrived + timedelta(days=2, seconds=-1)) == 0
    assert remind_of_waiting(at=arrived + timedelta(days=2)) == 1
    assert remind_of_waiting(at=arrived + timedelta(days=9)) == 0
    told = Event.objects.get(kind="request.reminder")
    assert told.data["people"] == ["convener", "opg-one"]
    assert told.data["groups"] == ["OPG", "Physics of NOvA"]
    back = MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](
        request=waiting, by=approver, at=AT + WEEK, reason="why?"
    )
    assert remind_of_waiting(at=AT + 2 * WEEK) == 1
    assert Event.objects.filter(kind="request.reminder").last().data["people"] == ["nova-liaison"]
    submit_request(request=back, by=liaison, at=AT + 2 * WEEK)
    check_request(request=back, at=AT + 2 * WEEK)
    assert remind_of_waiting(at=AT + 3 * WEEK) == 1


def test_rule_of_no_days_never_reminds(rule, waiting):
    ApprovalRule.objects.update(remind_after_days=0)
    assert remind_of_waiting(at=AT + 50 * WEEK) == 0


def test_api_signs_withdraws_and_lists(rule, waiting, approver, convener, api):
    url = f"/api/v1/requests/{waiting.key}/"
    client = api(approver)
    assert (
        client.post(url + "approve/", {"group": "OPG"}, format="json").json()["state"]
        == "awaiting_approval"
    )
    slots = {slot["group"]: slot for slot in client.get(url + "signatures/").json()}
    assert slots["OPG"]["signature"]["by"] == "opg-one"
    assert slots["Physics of NOvA"]["people"] == ["convener"]
    again = client.post(url + "approve/", {}, format="json")
    assert again.status_code == 409
    taken = {"signature": slots["OPG"]["signature"]["id"], "reason": "a mistake"}
    assert client.post(url + "withdraw-signature/", taken, format="json").status_code == 200
    assert [turn["request"] for turn in api(convener).get("/api/v1/inbox/").json()] == [waiting.key]


def test_api_hands_over_and_takes_back(waiting, approver, shifter, api):
    sent = {"to_user": shifter.username, "until_at": (AT + WEEK).isoformat(), "role": "approver"}
    made = api(approver).post("/api/v1/delegations/", sent, format="json")
    assert made.status_code == 201
    assert [turn["for_users"] for turn in api(shifter).get("/api/v1/inbox/").json()] == [
        ["opg-one"]
    ]
    gone = api(shifter).post(f"/api/v1/delegations/{made.json()['id']}/revoke/")
    assert gone.json()["revoked_at"]
    assert api(shifter).get("/api/v1/inbox/").json() == []
    refused = api(approver).post(
        "/api/v1/delegations/", {**sent, "to_user": "opg-one"}, format="json"
    )
    assert set(refused.json()) == {"to_user"}
