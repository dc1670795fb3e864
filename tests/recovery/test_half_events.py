"""Rules that retry jobs with half their events: the script, and what is missing afterwards."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.jobs.models import Job
from apps.production.models import Stage
from apps.progress.domain import progress
from apps.progress.domain.progress import progress_now
from apps.recovery.domain.decisions import choice
from apps.recovery.domain.decisions.carry_out import act_on_due
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.remedies import RequestedResources, remedy_for
from apps.recovery.domain.rules.definition import Action, read_definition
from apps.recovery.domain.rules.lifecycle import create_rule, move_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from apps.submission.domain.arrays import submissions
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.domain.arrays.scripts import events_of_part, make_stage_plan, write_script
from apps.submission.domain.arrays.shortfalls import shortfalls_of
from apps.submission.domain.arrays.submissions import (
    EventsInPart,
    events_in_part,
    stage_submissions_of,
)
from apps.submission.models import Submission
from tests.factories.workflows import workflow
from tests.pages import text_of
from tests.recovery.conftest import LATER
from tests.recovery.test_decide import check_totals, retries
from tests.submission.test_scripts import contents, run

DEFINITION = {
    "condition": {"verdicts": ["resource"]},
    "action": {"kind": "half-events"},
    "limits": {"control_percent": 0, "attempts": 9},
}
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DECLARATION = """
title: Halving
stages:
  stage:
    title: Stage
    arguments: [name, release, configuration, input_dataset, output_dataset, events, jobs, memory_bytes, wall_seconds]
    command: ["/usr/bin/printf", "%s\\\\0", "{job_index}", "{first_event}", "{events_per_job}"]
"""


@pytest.fixture
def printing(db):
    """A workflow type whose jobs get their number of events: 10 of each job of a request."""
    return workflow("halving", DECLARATION)


@pytest.fixture
def halving(db, approver):
    """An active rule that retries jobs that hit a limit with half their events."""
    made = create_rule(name="Half", definition=DEFINITION, by=approver, at=LATER)
    move_rule(rule=made, before=RecoveryRule.objects.first(), by=approver)
    set_mode(rule=made, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Test.")
    made.refresh_from_db()
    return made


def decide_and_act(release, at=LATER):
    enrol_failures(at=at)
    decide_due(at=at)
    act_on_due(at=at)
    release(at=at)


def test_each_retry_has_half_the_events_and_what_is_missing_is_shown(
    client, shifter, assignment, halving, send, fail, release
):
    first = send()
    assert run(first.script, 1) == ["1", "11", "10"]
    fail(first, {1, 2}, "resource")
    decide_and_act(release)
    (half,) = retries()
    assert (half.indices, half.changes) == ("1-2", {"events_part": 2})
    assert run(half.script, 0) == ["1", "11", "5"], "the job and its first event stay"
    assert run(half.script, 1) == ["2", "21", "5"]

    at = LATER + HOUR
    fail(send(at=LATER + MINUTE), {1}, "resource", at=at)
    release(at=at)
    decide_and_act(release, at)
    quarter = retries()[-1]
    assert (quarter.indices, quarter.changes) == ("2", {"events_part": 4})
    assert run(quarter.script, 0) == ["2", "21", "3"]
    fail(send(at=at + MINUTE), set(), at=at + HOUR)

    stage = stage_submissions_of(assignment.request)[0]
    assert (stage.completed, stage.to_retry) == (4, 0)
    assert stage.part == EventsInPart(jobs=2, events_missing=5 + 7)
    shortfall = shortfalls_of(assignment.request, at)[0]
    assert shortfall.events_missing == 20 + 12, "two jobs are not done yet"
    stage_now = progress_now(assignment.request, at=at).stages[0]
    assert stage_now.in_part == stage.part

    client.force_login(shifter)
    key = assignment.request.key
    page = text_of(client.get(f"/submissions/{key}/"))
    assert "12 events missing: 2 jobs completed with a part of their events" in page
    assert "about 12" not in page, "the arrays have finished"
    assert "with 1/4 of their events" in page
    page = text_of(client.get(f"/jobs/progress/{key}/"))
    assert ":</b> 12 events are missing, because 2 jobs completed with a part" in page
    stages = client.get(f"/api/v1/progress/{key}/").json()["stages"]
    assert (stages[0]["jobs_in_part"], stages[0]["events_not_produced"]) == (2, 12)
    decision = Decision.objects.earliest("pk")
    assert "half the events" in text_of(client.get(f"/recovery/jobs/{decision.job_id}/"))
    check_totals()


def test_passive_rule_and_control_group_keep_all_events(
    assignment, halving, send, fail, release, approver, monkeypatch
):
    monkeypatch.setattr(choice, "is_control", lambda **_: True)
    first = send()
    fail(first, {1}, "resource")
    decide_and_act(release)
    assert [retry.changes for retry in retries()] == [{}]
    assert run(retries()[0].script, 0) == ["1", "11", "10"]

    set_mode(rule=halving, mode=Mode.PASSIVE, by=approver, at=LATER)
    fail(send(at=LATER + MINUTE), {0}, "resource", at=LATER + HOUR)
    decide_and_act(release, LATER + HOUR)
    last = Decision.objects.latest("pk")
    assert (last.arm, last.changes, len(retries())) == ("passive", {"events_part": 2}, 1)


def test_later_retries_keep_the_smaller_number(assignment, halving, send, fail, release, shifter):
    fail(send(), {1}, "resource")
    decide_and_act(release)
    again = plan_retry(
        submission=retries()[0],
        request=lock_request(assignment.request),
        indices=[1],
        by=shifter,
        at=LATER,
        reason="By hand.",
    )
    assert again.changes == {"events_part": 2}
    assert run(again.script, 0) == ["1", "11", "5"]


def test_job_with_one_event_is_a_question(assignment, halving, send, fail):
    first = send()
    assignment.request.stages.update(events=6)
    fail(first, {1}, "resource")
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    decision = Decision.objects.get()
    assert (decision.arm, decision.why) == ("question", "It had one event.")


def test_jobs_that_do_not_get_their_number_of_events_are_a_question(
    assignment, halving, send, fail
):
    first = send()
    script = first.script.replace('"$OPSPORTAL_EVENTS_PER_JOB"', "10")
    Submission.objects.filter(pk=first.pk).update(script=script)
    fail(first, {1}, "resource")
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    decision = Decision.objects.get()
    assert decision.arm == "question"
    assert decision.why == "The portal does not set the number of events of these jobs."


def test_jobs_of_no_request_are_a_question():
    remedy = remedy_for(Action(kind="half-events"), Job(), RequestedResources())
    assert remedy.question.startswith("The portal does not set the number of events")


@given(st.integers(1, 10**6), st.integers(0, 12))
def test_parts_get_smaller_and_none_is_empty(events, halvings):
    requested = RequestedResources(events_per_job=events)
    had = events
    for _ in range(halvings):
        remedy = remedy_for(Action(kind="half-events"), Job(), requested)
        if remedy.question:
            assert had == 1
            return
        part = remedy.changes.events_part
        has = events_of_part(events, part)
        assert 1 <= has < had
        requested = RequestedResources(events_per_job=events, events_part=part)
        had = has


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1000), st.integers(1, 50), st.integers(0, 4))
def test_script_and_count_of_missing_events_agree(events, jobs, halvings):
    command = ["/usr/bin/printf", r"%s\0", "{first_event}", "{events_per_job}", "{most_events}"]
    content = contents(command, events=events * jobs, jobs=jobs)
    part = 2**halvings
    script = write_script(
        make_stage_plan(key="NOVA-1", content=content, position=0), events_part=part
    )
    last = jobs - 1
    produced = str(events_of_part(events, part))
    assert run(script, last) == [str(last * events + 1), produced, produced]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 50), st.integers(0, 49), st.integers(1, 4))
def test_count_of_missing_events_is_exact_if_jobs_are_uneven(jobs, surplus, halvings):
    events = 9 * jobs + surplus % jobs
    part = 2**halvings
    command = ["/usr/bin/printf", r"%s\0", "{events_per_job}"]
    content = contents(command, events=events, jobs=jobs)
    plan = make_stage_plan(key="NOVA-1", content=content, position=0)
    stage = Stage(events=events, jobs=jobs)
    for index in {0, surplus % jobs, jobs - 1}:
        whole = run(write_script(plan), index)
        half = run(write_script(plan, events_part=part), index)
        lacking = int(whole[0]) - int(half[0])
        array = Submission(changes={"events_part": part}, first=index, tasks=1, completed=1)
        assert events_in_part(stage, [array]).events_missing == lacking


def test_failed_jobs_of_an_uneven_array_do_not_count():
    stage = Stage(events=29, jobs=3)
    half = {"events_part": 2}
    array = Submission(changes=half, first=0, tasks=3, completed=1, failed_indices="0-1")
    assert events_in_part(stage, [array]).events_missing == 9 - 5
    array = Submission(changes=half, first=0, tasks=3, completed=1, failed_indices="1-2")
    assert events_in_part(stage, [array]).events_missing == 10 - 5


@pytest.mark.parametrize(
    ("events", "array", "is_exact"),
    [
        (30, {"completed": 1}, True),
        (29, {"completed": 1}, False),
        (29, {"completed": 3}, True),
        (29, {"completed": 1, "failed_indices": "0"}, False),
        (29, {"completed": 2, "failed_indices": "0"}, True),
        (29, {"completed": 1, "failed_indices": "2"}, True),
        (29, {"completed": 0}, True),
    ],
)
def test_missing_events_are_estimated_while_jobs_of_different_size_run(events, array, is_exact):
    """Of 29 events, the first two jobs have 10 and lack 5, the last has 9 and lacks 4."""
    stage = Stage(events=events, jobs=3)
    submission = Submission(changes={"events_part": 2}, first=0, tasks=3, **array)
    assert events_in_part(stage, [submission]).is_exact == is_exact
    finished = Submission(changes={"events_part": 2}, first=0, tasks=1, completed=1)
    assert events_in_part(stage, [submission, finished]).is_exact == is_exact
    assert events_in_part(stage, [finished, submission]).is_exact == is_exact


@pytest.mark.parametrize(("is_exact", "text"), [(True, "12 events"), (False, "about 12 events")])
def test_pages_call_missing_events_an_estimate_only_if_they_are(
    client, shifter, assignment, monkeypatch, is_exact, text
):
    part = EventsInPart(jobs=2, events_missing=12, is_exact=is_exact)
    monkeypatch.setattr(submissions, "events_in_part", lambda *_: part)
    stage = assignment.request.stages.first()
    monkeypatch.setattr(progress, "events_in_part_of", lambda *_: {stage.pk: part})
    client.force_login(shifter)
    key = assignment.request.key
    page = text_of(client.get(f"/submissions/{key}/"))
    assert f"{text} missing" in page
    assert ("about 12" in page) is not is_exact
    assert f":</b> {text} are missing" in text_of(client.get(f"/jobs/progress/{key}/"))


def test_changes_of_a_retry_of_a_retry():
    half = ResourceChanges(events_part=2)
    assert ResourceChanges(memory_bytes=7).combined_with(half).events_part == 2
    assert ResourceChanges(events_part=4).combined_with(half).events_part == 4
    assert half.combined_with(half).events_part == 2, "a part of a split array is not halved again"
    assert half.as_stored() == {"events_part": 2}
    assert half.as_requested() == {}


def test_sentence_of_the_rule():
    sentence = read_definition(DEFINITION).sentence
    assert "run it again with half of its events, 8 times at most" in sentence
