"""What recovery rules decide about failed jobs, what they retry, and how that is counted."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext

from apps.core.domain.subscriptions import subscribers_of
from apps.diagnosis.domain.causes.totals import recount_hours
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.models import Verdict
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.recovery.domain.decisions import carry_out, choice, explanations
from apps.recovery.domain.decisions.carry_out import act_on_due
from apps.recovery.domain.decisions.decide import decide_again_about, decide_due, enrol_failures
from apps.recovery.domain.decisions.explanations import (
    describe_withdrawn_retry,
    planned_retries_of,
    planned_retry_of,
)
from apps.recovery.domain.decisions.outcomes import GIVEN_UP_AFTER, follow_decisions
from apps.recovery.domain.decisions.owner_questions import owner_questions_for
from apps.recovery.domain.decisions.questions import grouped_questions, next_step, questions_for
from apps.recovery.domain.figures.daily_effects import recount_days
from apps.recovery.domain.recoveries import (
    failures_of,
    follow_recoveries,
    monday_of,
    recent_mondays,
    recount_weeks,
)
from apps.recovery.domain.rules.lifecycle import create_rule, move_rule, set_mode
from apps.recovery.domain.rules.useless import stop_useless_rules
from apps.recovery.enums import Mode
from apps.recovery.models import DailyEffect, Decision, RecoveryRule, WeeklyRecovery
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.domain.dispatch import dispatch
from apps.submission.enums import LeftOut
from apps.submission.models import RetryJob, Submission
from tests.database import rolled_back
from tests.factories import people, statusboard
from tests.factories.requests import AT
from tests.factories.verdicts import judge
from tests.pages import text_of
from tests.recovery.conftest import GB, LATER

MINUTE = timedelta(minutes=1)
OUT_OF_MEMORY = {"state": "out_of_memory", "requested_memory_bytes": 2 * GB}
OUT_OF_TIME = {"state": "timeout", "time_limit_seconds": 8 * 3600}


def decide(at=LATER):
    """Decide about all new failures; return the arms by number of the job."""
    enrol_failures(at=at)
    decide_due(at=at)
    return arms()


def arms():
    decisions = Decision.objects.order_by("job__job_id").select_related("job")
    return {decision.job.job_id: decision.arm for decision in decisions}


def retries():
    return list(Submission.objects.exclude(retry_of=None).order_by("number"))


def check_totals():
    """The daily totals equal a recount of the decisions."""
    fields = ["rule", "version", "experiment", "day", "arm", "outcome", "jobs"]
    fields += ["failed_core_seconds", "retry_core_seconds"]
    totals = sorted(map(str, DailyEffect.objects.values_list(*fields)))
    recount_days(set(DailyEffect.objects.values_list("day", flat=True)))
    assert sorted(map(str, DailyEffect.objects.values_list(*fields))) == totals
    assert sum(DailyEffect.objects.values_list("jobs", flat=True)) == (
        Decision.objects.exclude(decided_at=None).count()
    )


def test_shipped_rules_are_passive_and_store_what_they_would_do(send, fail):
    first = send()
    fail(first, {0, 2}, "resource", **OUT_OF_MEMORY)
    assert decide() == {f"{first.spool_id}_0": "passive", f"{first.spool_id}_2": "passive"}
    decision = Decision.objects.first()
    assert (decision.rule.name, decision.version, decision.attempt) == ("More memory", 1, 1)
    assert decision.changes == {"memory_bytes": 3 * GB}
    assert act_on_due(at=LATER) == 0
    assert not RetryJob.objects.exists()
    check_totals()


BOUNDS = [
    ("More memory", 2_500_000_000, {"memory_bytes": 2_500_000_000}),
    ("More memory", 2 * GB, "It had 2 GB; the bound is 2 GB."),
    ("More memory", 90 * GB, {"memory_bytes": 3 * GB}),
    ("More wall time", 10 * 3600, {"time_limit_seconds": 10 * 3600}),
    ("More wall time", 8 * 3600, "It had 8 h; the bound is 8 h."),
]


def test_retries_keep_the_bound_of_their_request(assignment, rule, send, fail):
    first = send()
    for name, bound, decision in BOUNDS:
        stage = assignment.request.stages.get(position=0)
        stage.memory_bytes = 2 * GB
        stage.wall_seconds = 8 * 3600
        if name == "More memory":
            stage.retry_memory_bytes = bound
            facts = OUT_OF_MEMORY
        else:
            stage.retry_wall_seconds = bound
            facts = OUT_OF_TIME
        with rolled_back():
            rule(name, control_percent=0)
            stage.save()
            fail(first, {1}, "resource", **facts)
            arm = decide()[f"{first.spool_id}_1"]
            decided = Decision.objects.get()
            if isinstance(decision, str):
                assert (arm, decided.why) == ("question", decision)
            else:
                assert (arm, decided.changes) == ("acted", decision)


def test_more_memory_up_to_the_bound_then_a_question(assignment, rule, send, fail, release):
    rule("More memory", control_percent=0, attempts=6)
    stage = assignment.request.stages.get(position=0)
    stage.memory_bytes = 2 * GB
    stage.save()

    first = send()
    fail(first, {1}, "resource", **OUT_OF_MEMORY)
    assert decide() == {f"{first.spool_id}_1": "acted"}
    assert act_on_due(at=LATER) == 1
    assert act_on_due(at=LATER) == 0, "it is retried once"
    release(at=LATER)
    retry = retries()[0]
    assert (retry.indices, retry.changes) == ("1", {"memory_bytes": 3 * GB})

    second = send(at=LATER + MINUTE)
    at = LATER + timedelta(hours=1)
    fail(second, {0}, "resource", at=at, state="out_of_memory", requested_memory_bytes=3 * GB)
    decide(at)
    release(at=at)
    assert follow_decisions(at=at) == 1
    act_on_due(at=at)
    release(at=at)
    assert retries()[1].changes == {"memory_bytes": 4 * GB}, "the bound is twice the stage's"

    third = send(at=at + MINUTE)
    at += timedelta(hours=1)
    fail(third, {0}, "resource", at=at, state="out_of_memory", requested_memory_bytes=4 * GB)
    assert decide(at)[f"{third.spool_id}_0"] == "question"
    asked = Decision.objects.get(arm="question")
    assert (asked.attempt, asked.why) == (3, "It had 4 GB; the bound is 4 GB.")
    assert act_on_due(at=at) == 0
    check_totals()


def test_jobs_beyond_the_share_of_a_request_are_one_question(
    assignment, shifter, rule, send, fail, release
):
    jobs = assignment.request.stages.aggregate(jobs=Sum("jobs"))["jobs"]
    limits = {"request_percent": 250 / jobs, "control_percent": 0}
    rule("More memory", **limits)
    first = send()
    fail(first, {0, 1, 2}, "resource", **OUT_OF_MEMORY)
    assert sorted(decide().values()) == ["acted", "acted", "question"]
    asked = Decision.objects.get(arm="question")
    assert asked.why == f"The rule has retried {250 / jobs:g} % of the jobs of the request."
    assert next_step(asked).memory_bytes == 3 * GB
    assert act_on_due(at=LATER) == 2
    release(at=LATER)

    at = LATER + timedelta(hours=1)
    fail(send(at=LATER + MINUTE), {0}, "resource", at=at, **OUT_OF_MEMORY)
    assert sorted(decide(at).values()) == ["acted", "acted", "question", "question"]
    (question,) = grouped_questions(shifter)
    assert question["jobs"] == 2
    check_totals()


def test_control_group_counts_in_the_share_of_a_request(assignment, rule, send, fail, monkeypatch):
    monkeypatch.setattr(choice, "is_control", lambda **_: True)
    jobs = assignment.request.stages.aggregate(jobs=Sum("jobs"))["jobs"]
    rule("More memory", request_percent=150 / jobs)
    fail(send(), {0, 1}, "resource", **OUT_OF_MEMORY)
    assert sorted(decide().values()) == ["control", "question"]


def test_request_without_a_number_of_jobs_has_no_share(assignment, rule, send, fail):
    first = send()
    assignment.request.stages.update(jobs=None)
    rule("More memory", request_percent=0.1, control_percent=0)
    fail(first, {0, 1}, "resource", **OUT_OF_MEMORY)
    assert set(decide().values()) == {"acted"}


def recoveries():
    """How failed first attempts were recovered; the totals of weeks equal the decisions."""
    follow_recoveries(at=LATER + timedelta(hours=2))
    recount_weeks(recent_mondays(LATER))
    counted = dict(WeeklyRecovery.objects.values_list("recovery").annotate(Sum("jobs")))
    monday = monday_of(LATER.date())
    for recovery, jobs in counted.items():
        assert failures_of(monday).filter(recovery=recovery).count() == jobs
    return counted


def test_retry_that_completes_is_a_success(rule, send, fail, release):
    rule("More memory", control_percent=0)
    fail(send(), {1}, "resource", **OUT_OF_MEMORY)
    decide()
    act_on_due(at=LATER)
    release(at=LATER)
    at = LATER + timedelta(hours=1)
    fail(send(at=LATER + MINUTE), set(), at=at, cpus=4)
    release(at=at)
    assert follow_decisions(at=at) == 1
    decision = Decision.objects.get()
    assert (decision.outcome, decision.retry_core_seconds) == ("completed", 4 * 1800)
    total = DailyEffect.objects.get()
    assert (total.arm, total.outcome, total.jobs) == ("acted", "completed", 1)
    check_totals()
    assert recoveries() == {"by-rule": 1}


def test_control_group_gets_one_unchanged_retry_and_then_the_action(rule, send, fail, release):
    rule("More memory", control_percent=50)
    name = "apps.recovery.domain.decisions.choice.is_control"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, lambda **_: True)
        fail(send(), {1}, "resource", **OUT_OF_MEMORY)
        decide()
        assert Decision.objects.get().arm == "control"
        act_on_due(at=LATER)
        release(at=LATER)
        assert retries()[0].changes == {}

        second = send(at=LATER + MINUTE)
        at = LATER + timedelta(hours=1)
        fail(second, {0}, "resource", at=at, **OUT_OF_MEMORY)
        assert decide(at)[f"{second.spool_id}_0"] == "after-control"
        act_on_due(at=at)
        release(at=at)
        assert retries()[1].changes == {"memory_bytes": 3 * GB}


def test_budget_of_a_day(rule, send, fail):
    rule("More memory", control_percent=0, core_hours_a_day=1)
    fail(send(), {0, 1, 2}, "resource", cpus=1, **OUT_OF_MEMORY)
    assert sorted(decide().values()) == ["acted", "acted", "budget"], "half an hour each"


def test_bad_host_is_avoided(assignment, rule, send, fail, release):
    rule("Node failure", control_percent=0)
    fail(send(), {3}, "service", state="node_fail", host="wn-0219.example.org")
    assert list(decide().values()) == ["pending"], "the scheduler may restart it"
    at = LATER + timedelta(minutes=20)
    dispatch.refresh_progress(cluster=assignment.cluster, at=at)
    assert list(decide(at).values()) == ["acted"]
    act_on_due(at=at)
    release(at=at)
    assert retries()[0].changes == {"avoided_hosts": ["wn-0219"]}


def test_service_problem_waits_before_its_retry(rule, send, fail):
    rule("Service problem", control_percent=0)
    fail(send(), {0})
    decide()
    assert act_on_due(at=LATER + timedelta(minutes=9)) == 0
    assert act_on_due(at=LATER + timedelta(minutes=10)) == 1


def test_no_retry_against_a_verdict_that_a_person_changed(
    client, rule, send, fail, release, shifter
):
    """Neither one that is due later, nor one that waits in a batch."""
    rule("Service problem", control_percent=0)
    fail(send(), {0, 1})
    decide()
    first, second = Decision.objects.order_by("job__job_id").select_related("job")
    correction = {"verdict": "code", "by": shifter, "reason": "Seen"}
    override_verdict(job=first.job, at=LATER + MINUTE, **correction)
    assert not planned_retry_of(first.job)
    corrected = Verdict.objects.get(job=first.job)
    change = f"{shifter} changed the verdict to “Code problem”."
    assert describe_withdrawn_retry(corrected) == f"{change} The recovery rules decide again."
    assert act_on_due(at=LATER + 10 * MINUTE) == 1
    assert "recovery.decide_overridden" in subscribers_of("verdict.overridden")
    assert decide_again_about(first.job_id, at=LATER + 10 * MINUTE)
    assert not decide_again_about(second.job_id, at=LATER + 10 * MINUTE), "it is in a batch"
    first.refresh_from_db()
    assert (first.arm, first.rule) == ("no-rule", None)
    assert first.why == describe_withdrawn_retry(corrected) == f"No longer retried: {change}"
    client.force_login(shifter)
    assert f"No longer retried: {change}" in text_of(client.get(first.job.get_absolute_url()))
    assert describe_withdrawn_retry(Verdict.objects.get(job=second.job)) == ""
    check_totals()

    override_verdict(job=second.job, at=LATER + 11 * MINUTE, **correction)
    release(at=LATER + 12 * MINUTE)
    assert RetryJob.objects.get().why == f"the verdict was changed by {shifter}"
    assert retries() == []
    corrected = Verdict.objects.get(job=second.job)
    assert describe_withdrawn_retry(corrected) == f"No longer retried: {change}"

    correction["verdict"] = "service"
    override_verdict(job=first.job, at=LATER + 13 * MINUTE, **correction)
    assert decide_again_about(first.job_id, at=LATER + 13 * MINUTE)
    first.refresh_from_db()
    assert (first.arm, first.why) == ("acted", ""), "withdrawn by mistake"


@pytest.mark.parametrize("arm", ["question", "budget", "owner"])
def test_open_question_is_decided_again_once_its_verdict_is_changed(rule, send, fail, shifter, arm):
    named = rule("Service problem", control_percent=0)
    fail(send(), {0, 1})
    decide()
    decision, other = Decision.objects.order_by("pk").select_related("job")
    why = LeftOut.NOT_SENT.label if arm == "owner" else "Beyond a bound."
    Decision.objects.update(arm=arm, why=why, act_at=None)
    recount_days([LATER.date()])
    questions = questions_for if arm != "owner" else owner_questions_for
    assert questions(shifter).count() == 2

    correction = {"job": decision.job, "by": shifter, "reason": "Seen"}
    override_verdict(verdict="code", at=LATER + MINUTE, **correction)
    assert decide_again_about(decision.job_id, at=LATER + MINUTE)
    assert [question.pk for question in questions(shifter)] == [other.pk]
    decision.refresh_from_db()
    assert decision.arm == "no-rule"
    assert decision.why == (
        f"No longer a question: {shifter} changed the verdict to “Code problem”."
    )
    check_totals()

    override_verdict(verdict="service", at=LATER + 2 * MINUTE, **correction)
    assert decide_again_about(decision.job_id, at=LATER + 2 * MINUTE)
    decision.refresh_from_db()
    assert (decision.arm, decision.rule) == ("acted", named)
    check_totals()


def test_answered_question_is_not_decided_again(rule, send, fail, shifter):
    rule("Service problem", control_percent=0)
    fail(send(), {0})
    decide()
    Decision.objects.update(arm="person", why="Left failed by opg-one: Enough.", act_at=None)
    job = Decision.objects.get().job
    override_verdict(job=job, verdict="code", by=shifter, at=LATER + MINUTE, reason="Seen")
    assert not decide_again_about(job.pk, at=LATER + MINUTE)


def test_only_what_a_service_failed_is_retried(rule, send, fail, release):
    rule("Service problem", control_percent=0)
    first = send()
    fail(first, {0})
    judge(first, {1: "code", 2: "resource"}, at=LATER)
    Submission.objects.filter(pk=first.pk).update(failed_indices="0-3")
    assert list(decide().values()) == ["acted", "no-rule", "no-rule"]
    at = LATER + timedelta(minutes=10)
    act_on_due(at=at)
    release(at=at)
    assert [(retry.indices, retry.created_by) for retry in retries()] == [("0", "opsportal")]


def count_alike(at):
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    recount_hours(day=midnight, hours=[at.replace(minute=0, second=0, microsecond=0)])


def test_job_waits_for_others_that_fail_alike(rule, send, fail):
    rule("Service problem", control_percent=0, alike_jobs=2)
    first = send()
    fail(first, {0}, service="samweb")
    judge(first, {1: "code"}, at=LATER)
    Submission.objects.filter(pk=first.pk).update(failed_indices="0-2")
    count_alike(LATER)
    assert list(decide().values()) == ["pending", "no-rule"]
    judge(first, {2: "service"}, at=LATER, service="samweb")
    count_alike(LATER)
    assert list(decide(LATER + 5 * MINUTE).values()) == ["acted", "no-rule", "acted"]


@pytest.mark.parametrize(("minutes", "arm"), [(59, "pending"), (60, "no-rule")])
def test_job_that_stays_alone_for_an_hour_is_left_to_a_person(rule, send, fail, minutes, arm):
    rule("Service problem", control_percent=0, alike_jobs=2)
    fail(send(), {0})
    count_alike(LATER)
    assert list(decide().values()) == ["pending"]
    assert list(decide(LATER + minutes * MINUTE).values()) == [arm]


def test_not_while_the_service_is_down(rule, send, fail, release, approver, shifter, monkeypatch):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    incident = open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=AT)
    rule("Service problem", control_percent=0)
    fail(send(), {0}, service="samweb")
    decide()
    assert planned_retries_of(incident, shifter).jobs == 0, "no job has met it"
    met = list(Verdict.objects.values_list("job_id", flat=True))
    monkeypatch.setattr(explanations, "confirmed_jobs", lambda _: met)
    assert planned_retries_of(incident, shifter).jobs == 1
    at = LATER + timedelta(minutes=10)
    act_on_due(at=at)
    assert planned_retries_of(incident, shifter).jobs == 0
    release(at=at)
    assert retries() == []
    close_incident(incident=incident, by=approver, at=at, reason="It answers.")
    release(at=at + MINUTE)
    assert len(retries()) == 1


def test_single_jobs_wait_for_others(rule, send, fail, monkeypatch):
    monkeypatch.setattr(carry_out, "GATHERING", 2 * MINUTE)
    rule("More memory", control_percent=0)
    fail(send(), {0, 1}, "resource", **OUT_OF_MEMORY)
    decide()
    assert act_on_due(at=LATER + MINUTE) == 0
    monkeypatch.setattr(carry_out, "WORTH_AN_ARRAY", 2)
    assert act_on_due(at=LATER + MINUTE) == 2


def test_first_step_is_small_and_grows_with_success(rule, send, fail, release, monkeypatch):
    monkeypatch.setattr(choice, "FIRST_STEP", 1)
    rule("More memory", control_percent=0)
    fail(send(), {0, 1, 2}, "resource", **OUT_OF_MEMORY)
    decide()
    assert act_on_due(at=LATER) == 1
    assert act_on_due(at=LATER) == 0
    release(at=LATER)
    at = LATER + timedelta(hours=1)
    fail(send(at=LATER + MINUTE), set(), at=at)
    follow_decisions(at=at)
    assert act_on_due(at=at) == 2, "three times as many as completed"


def test_success_of_the_past_lets_no_retries_start(rule, send, fail, release, monkeypatch):
    monkeypatch.setattr(choice, "FIRST_STEP", 1)
    rule("More memory", control_percent=0)
    fail(send(), {0, 1, 2}, "resource", **OUT_OF_MEMORY)
    decide()
    act_on_due(at=LATER)
    release(at=LATER)
    at = LATER + timedelta(hours=1)
    fail(send(at=LATER + MINUTE), set(), at=at)
    follow_decisions(at=at)
    assert act_on_due(at=at + choice.LATELY + MINUTE) == 1


def test_each_service_has_steps_of_its_own(rule, send, fail, monkeypatch):
    monkeypatch.setattr(choice, "FIRST_STEP", 1)
    rule("More memory", control_percent=0)
    fail(send(), {0, 1, 2}, "resource", **OUT_OF_MEMORY)
    Verdict.objects.filter(job__job_id__endswith="_2").update(service="samweb")
    decide()
    assert act_on_due(at=LATER) == 2
    assert act_on_due(at=LATER) == 0


def test_a_job_that_failed_before_does_not_count_in_the_effect(rule, send, fail, release):
    rule("More memory", control_percent=0)
    fail(send(), {1}, "resource", **OUT_OF_MEMORY)
    assert list(decide().values()) == ["acted"]
    act_on_due(at=LATER)
    release(at=LATER)
    second = send(at=LATER + MINUTE)
    at = LATER + timedelta(hours=1)
    fail(second, {0}, "resource", at=at, **OUT_OF_MEMORY)
    assert decide(at)[f"{second.spool_id}_0"] == "acted-again"


def test_a_person_may_be_first(assignment, rule, send, fail, shifter):
    rule("More memory", control_percent=0)
    first = send()
    fail(first, {0, 1}, "resource", **OUT_OF_MEMORY)
    decide()
    plan_retry(
        submission=first,
        request=lock_request(assignment.request),
        indices=[0],
        by=shifter,
        at=LATER,
        reason="By hand.",
    )
    assert act_on_due(at=LATER) == 1
    assert arms() == {f"{first.spool_id}_0": "handled", f"{first.spool_id}_1": "acted"}
    check_totals()

    at = LATER + timedelta(hours=1)
    fail(send(at=LATER + MINUTE), set(), at=at)
    assert recoveries() == {"by-person": 1, "waiting": 1}


def test_what_no_rule_matches_is_decided_again_after_a_change(rule, send, fail, approver):
    rule("More memory", mode=Mode.OFF)
    fail(send(), {0}, "resource", **OUT_OF_MEMORY)
    assert list(decide().values()) == ["no-rule"]
    set_mode(
        rule=RecoveryRule.objects.get(name="More memory"),
        mode=Mode.PASSIVE,
        by=approver,
        at=LATER,
    )
    assert list(arms().values()) == ["pending"]
    decide_due(at=LATER)
    assert list(arms().values()) == ["passive"]
    check_totals()


def test_jobs_of_a_request_on_hold_wait_and_those_of_another_state_are_left(
    assignment, rule, send, fail
):
    rule("More memory", control_percent=0)
    fail(send(), {0}, "resource", **OUT_OF_MEMORY)
    request = Request.objects.filter(pk=assignment.request.pk)
    request.update(state=RequestState.ON_HOLD, held_from=RequestState.RUNNING)
    assert list(decide().values()) == ["pending"]
    request.update(state=RequestState.DATA_QUALITY, held_from="")
    decide_due(at=LATER + timedelta(minutes=5))
    assert list(arms().values()) == ["person"]
    assert recoveries() == {}, "the request wants no more jobs"


def test_what_a_rule_leaves_to_a_person_counts_in_the_share_without_one(send, fail, approver):
    definition = {"condition": {"categories": ["resource"]}, "action": {"kind": "nothing"}}
    left = create_rule(name="Ask first", definition=definition, by=approver, at=AT)
    move_rule(rule=left, before=RecoveryRule.objects.first(), by=approver)
    fail(send(), {0}, "resource", **OUT_OF_MEMORY)
    assert list(decide().values()) == ["person"]
    assert recoveries() == {"waiting": 1}


def test_uncounted_jobs_wait(rule, send, fail):
    rule("More memory", control_percent=0)
    first = send()
    fail(first, {0}, "resource", **OUT_OF_MEMORY)
    Submission.objects.filter(pk=first.pk).update(failed_indices="")
    assert list(decide().values()) == ["pending"]
    assert decide_due(at=LATER) == 0
    Submission.objects.filter(pk=first.pk).update(failed_indices="0")
    decide_due(at=LATER + timedelta(seconds=61))
    assert list(arms().values()) == ["acted"]


def test_jobs_that_nobody_retries_are_given_up(send, fail):
    fail(send(), {0}, "resource", **OUT_OF_MEMORY)
    decide()
    assert follow_decisions(at=LATER + GIVEN_UP_AFTER) == 0
    assert follow_decisions(at=LATER + GIVEN_UP_AFTER + MINUTE) == 1
    assert Decision.objects.get().outcome == "not-retried"
    check_totals()


def test_deciding_costs_the_same_number_of_queries_for_any_number_of_jobs(rule, send, fail):
    rule("More memory", control_percent=0)
    first = send()
    fail(first, {0}, "resource", **OUT_OF_MEMORY)
    with CaptureQueriesContext(connection) as few:
        decide()
    Decision.objects.all().delete()
    judge(first, {1: "resource", 2: "resource"}, at=LATER)
    with CaptureQueriesContext(connection) as many:
        decide()
    assert len(Decision.objects.all()) == 3
    assert len(many) == len(few)


def test_rule_that_does_not_help_stops_itself(rule):
    useless = rule("More memory")
    useful = rule("More wall time")
    for number in range(4):
        day = (LATER - timedelta(days=number)).date()
        for row, outcome in ((useless, "failed"), (useful, "completed")):
            DailyEffect.objects.create(
                rule=row,
                version=row.version,
                day=day,
                arm="acted",
                outcome=outcome,
                jobs=20,
                failed_core_seconds=0,
                retry_core_seconds=0,
            )
    assert [row.name for row in stop_useless_rules(at=LATER)] == ["More memory"]
    useless.refresh_from_db()
    assert (useless.mode, useless.stopped_itself) == ("passive", True)
    assert useless.mode_reason == "0 of 40 retries completed; at least 50 % are expected."
    assert stop_useless_rules(at=LATER) == []
