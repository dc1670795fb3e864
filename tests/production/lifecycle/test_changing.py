"""What may be changed in which state: what stays signed, what is checked and signed again,
and what is refused.
"""

from dataclasses import replace
from datetime import date

import pytest
from django.db import transaction

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.approvals.requirements import approval_of
from apps.production.domain.content.changes import may_change, review_changes
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import approve_request, check_request, make_move
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import ARGUMENT_EDITABLE, CHANGEABLE, EDITABLE, RequestState
from apps.production.models import Request, Signature
from apps.production.web.forms.request import typed
from tests.factories.requests import AT, content, request_in, stage
from tests.factories.workflows import workflow

DECLARED = """
title: Skim with a knob
arguments:
  - {name: knob, editable_in: [queued, running, on_hold]}
stages:
  stage:
    title: Stage
    arguments:
      - name
      - release
      - configuration
      - {name: jobs, editable_in: [running]}
      - {name: memory_bytes}
      - events
      - wall_seconds
      - output_dataset
      - services
      - {name: target, editable_in: [on_hold]}
"""

LIGHT = {
    "title": "Other",
    "purpose": "Other",
    "priority_reason": "Other",
    "deadline": date(2026, 12, 24),
}
HEAVY = {
    "stages": (stage("generation"),),
    "requested_priority": "low",
    "deadline": date(2026, 12, 1),
}


def save(request, by, **changes):
    new = replace(content_of(Request.objects.get(pk=request.pk)), **changes)
    return save_draft(request=request, content=new, version=request.version, by=by, at=AT)


@pytest.fixture
def knob(db):
    return workflow("knob", DECLARED)


@pytest.mark.parametrize("state", RequestState.values)
def test_light_change_keeps_state_and_signatures(state, nova, liaison, approver):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    signed, edits = (
        Signature.objects.filter(withdrawn_at=None).count(),
        events_of(obj).filter(kind="request.edited"),
    )
    for count, (name, value) in enumerate(LIGHT.items(), start=1):
        if state in EDITABLE or state in CHANGEABLE:
            obj = save(obj, liaison, **{name: value})
            assert (obj.state, Signature.objects.filter(withdrawn_at=None).count()) == (
                state,
                signed,
            )
            assert (edits.count(), events_of(obj).last().kind) == (count, "request.edited")
        else:
            with pytest.raises(InvalidTransition, match="can no longer be edited"):
                save(obj, liaison, **{name: value})


@pytest.mark.parametrize("change", HEAVY)
@pytest.mark.parametrize("state", CHANGEABLE)
def test_material_change_goes_back_to_be_checked_and_signed(state, change, nova, liaison, approver):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    saved = save(obj, liaison, **{change: HEAVY[change]})
    stored = Request.objects.get(pk=obj.pk)
    assert (saved.state, stored.state) == ("submitted", "submitted")
    assert (stored.approved_at, stored.approved_by, stored.submitted_by) == (None, None, liaison)
    assert not Signature.objects.filter(withdrawn_at=None).exists()
    event = events_of(obj).last()
    assert (event.kind, event.old, event.new) == ("request.change", state, "submitted")
    assert event.data["changes"]
    check_request(request=stored, at=AT)
    assert approve_request(request=stored, by=approver, at=AT).state == "queued"


@pytest.mark.parametrize("role", ["other_liaison", "approver", "shifter", "admin"])
@pytest.mark.parametrize("state", sorted(ARGUMENT_EDITABLE))
def test_nobody_but_a_liaison_changes(state, role, nova, liaison, approver, request):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    with pytest.raises(NotAllowed):
        save(obj, request.getfixturevalue(role), title="Mine")


def test_approver_sees_what_changed_since_the_signature(
    nova, liaison, approver, second_approver, browse
):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    save(obj, liaison, stages=(stage("generation", jobs=17), stage("simulation")))
    check_request(request=obj, at=AT)
    slot = approval_of(Request.objects.get(), second_approver, AT).slots[0]
    assert (slot.signature, slot.earlier.by) == (None, approver)
    assert [(c["path"], c["old"], c["new"]) for c in slot.changes] == [
        ("stages.0.jobs", "4,000", "17")
    ]
    page = browse(second_approver).get(f"/requests/{obj.key}/").content.decode()
    assert "1 change since opg-one signed" in page
    assert "4,000 → 17" in page


def test_change_that_leaves_it_incomplete_is_refused_and_nothing_is_written(
    nova, liaison, approver
):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    for wrong in ({"title": ""}, {"stages": (stage(jobs=None),)}, {"deadline": date(2020, 1, 1)}):
        with pytest.raises(InvalidFields):
            save(obj, liaison, **wrong)
        obj = Request.objects.get(pk=obj.pk)
    assert (obj.state, content_of(obj)) == (
        "queued",
        replace(content(), workflow=content_of(obj).workflow),
    )
    assert Signature.objects.filter(withdrawn_at=None).count() == 1


def test_change_by_one_who_signed_needs_another_signer(nova, liaison, both, approver):
    obj = request_in("queued", by=liaison, experiment=nova, approver=both)
    save(obj, both, stages=(stage("generation"),))
    check_request(request=obj, at=AT)
    with pytest.raises(NotAllowed, match="You created, edited or submitted"):
        approve_request(request=obj, by=both, at=AT)
    assert approve_request(request=obj, by=approver, at=AT).approved_by == approver


def test_change_of_what_was_read_before_a_move_is_stale(nova, liaison, approver):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    seen = Request.objects.get(pk=obj.pk)
    make_move(verb="start", request=obj, by=approver, at=AT)
    with pytest.raises(StaleState, match="changed by opg-one in the meantime"):
        save(seen, liaison, title="Late")


def knobbed(knob, **changes):
    one = stage("generation", arguments={"target": "a"})
    return {"workflow": knob, "arguments": {"knob": "1"}, "stages": (one,)} | changes


@pytest.mark.parametrize(
    ("state", "allowed"),
    [("queued", "knob"), ("running", "knob jobs"), ("on_hold", "knob target"), ("testing", "")],
)
def test_arguments_are_changed_where_the_type_says_so(
    state, allowed, knob, nova, liaison, approver
):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver, **knobbed(knob))
    changes = {
        "knob": {"arguments": {"knob": "2"}},
        "jobs": {"stages": (stage("generation", jobs=9, arguments={"target": "a"}),)},
        "target": {"stages": (stage("generation", arguments={"target": "b"}),)},
        "memory_bytes": {
            "stages": (stage("generation", memory_bytes=9_000_000, arguments={"target": "a"}),)
        },
    }
    for name, change in changes.items():
        fresh = Request.objects.get(pk=obj.pk)
        old = content_of(fresh)
        judged = review_changes(state, old, replace(old, **change))
        assert len(judged.changes) == 1
        light = not judged.material and not judged.refused
        assert light == (name in allowed.split()), name
        if light:
            with transaction.atomic():
                assert save(fresh, liaison, **change).state == state
                transaction.set_rollback(True)
        elif state not in CHANGEABLE:
            with pytest.raises((InvalidFields, InvalidTransition)):
                save(fresh, liaison, **change)
    assert Signature.objects.filter(withdrawn_at=None).count() == 1


def test_form_of_a_signed_request_says_what_a_change_means(nova, liaison, approver, browse):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    client, url = browse(liaison), f"/requests/{obj.key}/edit/"
    page = client.get(url)
    assert "Save changes" in page.content.decode()
    assert "is checked and signed again" in page.content.decode()
    written = typed(content_of(obj), version=obj.version)
    data = {**dict(written.lists()), "do": "save", "title": "Another title"}
    answer = client.post(url, data, follow=True)
    assert "Its signatures stay valid" in answer.content.decode()
    again = data | {"version": Request.objects.get().version, "stages-0-jobs": "12"}
    answer = client.post(url, again, follow=True)
    assert "needs new signatures" in answer.content.decode()
    assert Request.objects.get().state == "submitted"


def test_api_changes_a_queued_request(nova, liaison, approver, api):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    url = f"/api/v1/requests/{obj.key}/"
    light = api(liaison).patch(url, {"version": obj.version, "title": "Other"}, format="json")
    assert (light.status_code, light.json()["state"]) == (200, "queued")
    heavy = {"version": light.json()["version"], "requested_priority": "low"}
    assert api(liaison).patch(url, heavy, format="json").json()["state"] == "submitted"


def test_form_is_offered_only_where_something_may_be_changed(nova, knob, liaison, approver, browse):
    plain = request_in("running", by=liaison, experiment=nova, approver=approver)
    assert not may_change("running", content_of(plain))
    assert "Edit</a>" not in browse(liaison).get(f"/requests/{plain.key}/").content.decode()
    obj = request_in("running", by=liaison, experiment=nova, approver=approver, **knobbed(knob))
    assert "Edit</a>" in browse(liaison).get(f"/requests/{obj.key}/").content.decode()
    page = browse(liaison).get(f"/requests/{obj.key}/edit/").content.decode()
    assert "that the workflow type declares as editable" in page
