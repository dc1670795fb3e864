"""Questions of recovery rules: by stage, answered once, by those who may retry the jobs."""

from datetime import timedelta

import pytest

from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.outcomes import follow_decisions
from apps.recovery.domain.decisions.questions import (
    ask_again,
    grouped_questions,
    next_step,
    questions_for,
)
from apps.recovery.domain.decisions.remedies import RequestedResources, remedy_for
from apps.recovery.domain.rules.definition import Action
from apps.recovery.models import Decision
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.batches import cancel_batch
from apps.submission.models import RetryBatch, RetryJob, Submission
from tests.pages import text_of
from tests.recovery.conftest import GB, LATER
from tests.recovery.test_decide import OUT_OF_MEMORY, check_totals


@pytest.fixture
def asked(assignment, rule, send, fail):
    """Three jobs of a stage that need more memory than was signed; return a decision on one."""
    rule("More memory", control_percent=0)
    stage = assignment.request.stages.get(position=0)
    stage.memory_bytes = 2 * GB
    stage.retry_memory_bytes = 2 * GB
    stage.save()
    fail(send(), {0, 1, 2}, "resource", **OUT_OF_MEMORY)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    return Decision.objects.earliest("pk")


def answer(client, user, decision, **data):
    client.force_login(user)
    path = f"/recovery/questions/{decision.pk}/"
    if data:
        return client.post(path, data, follow=True)
    return client.get(path)


def test_same_question_about_jobs_of_a_stage_is_asked_once(client, shifter, asked):
    (row,) = grouped_questions(shifter)
    assert (row["jobs"], row["why"]) == (3, "It had 2 GB; the bound is 2 GB.")
    client.force_login(shifter)
    questions = text_of(client.get("/recovery/questions/"))
    assert "1 question, 3 jobs that a rule leaves to a person" in questions
    assert "about" not in questions.casefold(), "the number of jobs is exact"
    shown = answer(client, shifter, asked)
    assert "It had 2 GB; the bound is 2 GB." in text_of(shown)
    assert "Retry 3 jobs" in text_of(shown)
    assert 'value="3 GB"' in shown.content.decode(), "the next step of the rule"


def test_jobs_are_retried_beyond_the_bound(client, shifter, asked, release):
    shown = answer(client, shifter, asked, do="retry", memory="5 GB", reason="Larger events.")
    assert "The jobs will be retried." in text_of(shown)
    batch = RetryBatch.objects.get()
    assert (batch.reason, batch.created_by) == ("Larger events.", shifter.username)
    release(at=LATER)
    retry = Submission.objects.exclude(retry_of=None).get()
    assert (retry.indices, retry.changes) == ("0-2", {"memory_bytes": 5 * GB})

    assert not questions_for(shifter).exists()
    again = answer(client, shifter, asked, do="retry", memory="9 GB", reason="Twice.")
    assert "This question is answered." in text_of(again)
    assert RetryJob.objects.count() == 3
    follow_decisions(at=LATER + timedelta(minutes=1))
    check_totals()


def test_answer_keeps_the_hosts_that_the_rule_avoids(
    assignment, client, shifter, rule, send, fail, release
):
    rule("Node failure", control_percent=0, core_hours_a_day=0.1)
    fail(send(), {3}, "service", state="node_fail", host="wn-0219.example.org")
    at = LATER + timedelta(minutes=20)
    dispatch.refresh_progress(cluster=assignment.cluster, at=at)
    enrol_failures(at=at)
    decide_due(at=at)
    question = Decision.objects.get(arm="budget")
    assert "The retries avoid the hosts" in text_of(answer(client, shifter, question))
    answer(client, shifter, question, do="retry", reason="Today, too.")
    release(at=at)
    retry = Submission.objects.exclude(retry_of=None).get()
    assert retry.changes == {"avoided_hosts": ["wn-0219"]}


def test_question_is_asked_again_after_its_retries_are_cancelled(client, shifter, asked):
    answer(client, shifter, asked, do="retry", memory="5 GB", reason="Larger events.")
    assert ask_again(at=LATER) == 0
    batch = RetryBatch.objects.get()
    cancel_batch(batch=batch, by=shifter, at=LATER, reason="Wrong size.")
    follow_decisions(at=LATER)
    assert ask_again(at=LATER) == 3
    (row,) = grouped_questions(shifter)
    assert row["jobs"] == 3
    shown = answer(client, shifter, asked, do="retry", memory="6 GB", reason="Right size.")
    assert "The jobs will be retried." in text_of(shown)
    assert ask_again(at=LATER) == 0, "only the newest batch counts"
    assert not questions_for(shifter).exists()
    check_totals()

    later = LATER + timedelta(minutes=1)
    override_verdict(job=asked.job, verdict="code", by=shifter, at=later, reason="Seen.")
    cancel_batch(batch=RetryBatch.objects.latest("pk"), by=shifter, at=later, reason="Not all.")
    assert ask_again(at=later) == 3
    asked.refresh_from_db()
    assert (asked.arm, asked.decided_at) == ("question", later), "the rules have decided again"
    check_totals()


MEMORY = [
    (2 * GB, 1.5, 3 * GB),
    (1 * GB, 1.1, 1_100_000_000),
    (1_234_567_890, 1.5, 1_851_851_835),
    (3 * GB, 1.5, 4_500_000_000),
]
WALL_TIME = [(3600, 5400), (8 * 3600, 12 * 3600), (100, 150)]


def test_rule_and_proposal_round_memory_and_wall_time_alike(asked):
    job = asked.job
    rule_action = asked.rule.definition["action"]
    for had, factor, more in MEMORY:
        job.requested_memory_bytes = had
        action = Action(kind="more-memory", factor=factor, most_factor=4)
        remedy = remedy_for(action, job, RequestedResources(memory_bytes=had))
        rule_action["factor"] = factor
        assert next_step(asked).memory_bytes == remedy.changes.memory_bytes == more

    for had, more in WALL_TIME:
        job.time_limit_seconds = had
        action = Action(kind="more-time", factor=1.5, most_factor=4)
        remedy = remedy_for(action, job, RequestedResources(time_limit_seconds=had))
        rule_action |= {"kind": "more-time", "factor": 1.5}
        assert next_step(asked).time_limit_seconds == remedy.changes.time_limit_seconds == more


def test_jobs_are_left_failed(client, shifter, asked):
    shown = answer(client, shifter, asked, do="leave", reason="A bad release.")
    assert "3 jobs stay failed." in text_of(shown)
    arms = Decision.objects.values_list("arm", "why").distinct()
    assert list(arms) == [("person", f"Left failed by {shifter}: A bad release.")]
    assert not RetryBatch.objects.exists()
    check_totals()


WRONG_ANSWERS = [
    ("1 GB", "Why.", "A failed attempt already had 2 GB."),
    ("999 PB", "Why.", "At most"),
    ("much", "Why.", "Enter a size with its unit"),
    ("5 GB", "", "is required: enter a value."),
]


def test_wrong_answer_is_named_at_its_field(client, shifter, asked):
    for memory, reason, problem in WRONG_ANSWERS:
        shown = answer(client, shifter, asked, do="retry", memory=memory, reason=reason)
        assert shown.status_code == 400
        assert problem in text_of(shown)
    assert not RetryBatch.objects.exists()


def test_only_who_may_retry_the_jobs_answers(client, liaison, asked):
    assert "You can retry none of these jobs." in text_of(answer(client, liaison, asked))
    for button in ("retry", "leave"):
        answer(client, liaison, asked, do=button, memory="5 GB", reason="Please.")
    assert not RetryBatch.objects.exists()
    assert set(Decision.objects.values_list("arm", flat=True)) == {"question"}
