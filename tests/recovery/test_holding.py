"""Rules that hold a stage: once, until a person has answered."""

from datetime import timedelta

import pytest

from apps.core.enums import Group
from apps.core.models import Event
from apps.notifications.models import Notification
from apps.production.domain.approvals.reminders import remind_of_holds
from apps.production.domain.holds import lift_hold
from apps.production.models import Hold
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.questions import grouped_questions
from apps.recovery.domain.rules.lifecycle import (
    change_rule,
    create_rule,
    definition_of,
    move_rule,
    set_mode,
)
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import Submission
from tests.factories.requests import AT
from tests.factories.verdicts import judge
from tests.notifications.told import deliver
from tests.pages import text_of
from tests.recovery.conftest import LATER
from tests.recovery.test_questions import answer
from tests.submission.conftest import end_jobs  # noqa: F401

DEFINITION = {"condition": {"verdicts": ["code"]}, "action": {"kind": "hold"}}
MINUTE = timedelta(minutes=1)


@pytest.fixture
def stopping(db, approver):
    """An active rule that holds the stage of jobs that fail by their code."""
    made = create_rule(name="Broken release", definition=DEFINITION, by=approver, at=AT)
    move_rule(rule=made, before=RecoveryRule.objects.first(), by=approver)
    set_mode(rule=made, mode=Mode.ACTIVE, by=approver, at=AT, reason="Test.")
    made.refresh_from_db()
    return made


@pytest.fixture
def ended(assignment, stopping, send, end_jobs):  # noqa: F811
    """An array of which four jobs failed, without a verdict."""
    first = send()
    end_jobs(first, failed={0, 1, 2, 3}, at=LATER)
    dispatch.refresh_progress(cluster=assignment.cluster, at=LATER)
    return first


@pytest.fixture
def held(ended):
    """The same after the verdicts on two jobs, for which the stage is on hold."""
    fail_by_code(ended, {0, 1}, LATER)
    return ended


def fail_by_code(submission, indices, at):
    judge(submission, dict.fromkeys(indices, "code"), at=at)
    enrol_failures(at=at)
    decide_due(at=at)


def test_stage_is_held_once_with_one_question(client, shifter, held):
    assert set(Decision.objects.values_list("arm", flat=True)) == {"question"}
    hold = Hold.objects.get()
    assert (hold.stage.position, hold.by, hold.author) == (0, None, "opsportal")
    assert hold.reason == "Recovery rule “Broken release” asks a person to look at its failed jobs."
    event = Event.objects.get(kind="hold.placed")
    assert (event.actor, event.data["people"]) == ("opsportal", ["opg-one", "shift-one"])
    (question,) = grouped_questions(shifter)
    assert question["jobs"] == 2
    client.force_login(shifter)
    assert "opsportal" in text_of(client.get("/requests/holds/"))
    shown = text_of(answer(client, shifter, Decision.objects.latest("pk")))
    assert "The stage has been on" in shown
    assert "Lift the hold on the stage, too" in shown


def test_answer_lifts_the_hold_and_the_retries_start(held, client, shifter, release):
    answer(
        client, shifter, Decision.objects.latest("pk"), do="retry", reason="Mended.", lift_hold="on"
    )
    hold = Hold.objects.get()
    assert hold.lifted_by == shifter
    release(at=LATER)
    assert Submission.objects.exclude(retry_of=None).get().indices == "0-1"


def test_jobs_stay_failed_and_the_stage_goes_on(held, client, shifter):
    answer(
        client, shifter, Decision.objects.latest("pk"), do="leave", reason="Known.", lift_hold="on"
    )
    assert Hold.objects.get().lifted_by == shifter
    assert set(Decision.objects.values_list("arm", flat=True)) == {"person"}


def test_hold_that_is_not_lifted_stays(held, client, shifter):
    answer(client, shifter, Decision.objects.latest("pk"), do="retry", reason="Later.")
    assert Hold.objects.get().lifted_at is None


def test_answered_version_holds_the_stage_no_more_and_a_new_one_does(
    held, stopping, approver, shifter
):
    lift_hold(hold=Hold.objects.get(), by=shifter, at=LATER)
    fail_by_code(held, {2}, LATER + MINUTE)
    assert Decision.objects.filter(arm="question").count() == 3
    assert Hold.objects.filter(lifted_at=None).count() == 0

    changed = {**DEFINITION, "limits": {"attempts": 2}}
    change_rule(rule=stopping, definition=changed, by=approver, at=LATER, reason="Less.", base=1)
    stopping.refresh_from_db()
    set_mode(rule=stopping, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Again.")
    fail_by_code(held, {3}, LATER + 2 * MINUTE)
    assert Hold.objects.filter(lifted_at=None).count() == 1


def test_stage_that_a_person_holds_is_held_by_the_rule_after_that(assignment, ended, shifter):
    stage = assignment.request.stages.get(position=0)
    theirs = Hold.objects.create(stage=stage, reason="Mine.", by=shifter, at=AT)
    fail_by_code(ended, {0, 1}, LATER)
    assert Hold.objects.get() == theirs
    lift_hold(hold=theirs, by=shifter, at=LATER)
    fail_by_code(ended, {3}, LATER + MINUTE)
    assert Hold.objects.get(lifted_at=None).by is None


def test_passive_rule_holds_nothing(stopping, approver, ended):
    set_mode(rule=stopping, mode=Mode.PASSIVE, by=approver, at=LATER, reason="Test.")
    fail_by_code(ended, {0}, LATER)
    assert Decision.objects.get().arm == "passive"
    assert not Hold.objects.exists()


def test_rule_says_what_it_does(client, shifter, stopping):
    assert definition_of(stopping).sentence.endswith("hold its stage and ask a person.")
    client.force_login(shifter)
    shown = text_of(client.get(stopping.get_absolute_url()))
    assert "Does it help?" not in shown
    assert "core-hours a day" not in shown


def test_people_who_can_lift_the_hold_are_told_and_reminded(approver, shifter, held):
    deliver()
    notifications = Notification.objects.filter(event__kind="hold.placed")
    groups = dict(notifications.values_list("user__username", "group"))
    assert groups[shifter.username] == Group.TURN
    assert groups[approver.username] == Group.TURN
    assert remind_of_holds(at=LATER + timedelta(days=60)) == 1
    reminder = Event.objects.get(kind="hold.reminder")
    assert reminder.data["people"] == [approver.username, shifter.username]
