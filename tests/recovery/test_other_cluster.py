"""Rules that retry jobs on another cluster: which one, once, and what becomes of the attempts."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction

from apps.clusters.models import Cluster, Site
from apps.core.models import Event
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.recovery.domain.decisions import choice
from apps.recovery.domain.decisions.carry_out import act_on_due
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.outcomes import follow_decisions
from apps.recovery.domain.decisions.questions import grouped_questions
from apps.recovery.domain.decisions.remedies import RequestedResources, remedy_for
from apps.recovery.domain.recoveries import follow_recoveries
from apps.recovery.domain.rules.definition import Action, read_definition
from apps.recovery.domain.rules.lifecycle import create_rule, move_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.enums import State
from apps.submission.domain.arrays.assignment import cancel_sent
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.plan import lock_request, plan_next, plan_retry
from apps.submission.domain.arrays.rows import batch_job
from apps.submission.domain.arrays.submissions import in_flight, stage_submissions_of
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.recall import recall_sent
from apps.submission.domain.retries.links import find_retried_job, find_retry
from apps.submission.domain.retries.other_clusters import OtherClusters
from apps.submission.models import RetryBatch, RetryJob, Submission
from tests.database import rolled_back
from tests.factories import clusters, statusboard
from tests.factories.submissions import end_jobs
from tests.factories.verdicts import judge
from tests.pages import text_of
from tests.recovery.conftest import GB, LATER
from tests.recovery.test_decide import check_totals, retries
from tests.recovery.test_questions import answer
from tests.submission.fake_slurm import FakeSlurm

DEFINITION = {
    "condition": {"verdicts": ["service"]},
    "action": {"kind": "other-cluster"},
    "limits": {"control_percent": 0, "attempts": 5},
}
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def moving(db, approver):
    """An active rule that retries jobs with a service problem on another cluster."""
    made = create_rule(name="Elsewhere", definition=DEFINITION, by=approver, at=LATER)
    move_rule(rule=made, before=RecoveryRule.objects.first(), by=approver)
    set_mode(rule=made, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Test.")
    made.refresh_from_db()
    return made


@pytest.fixture
def add_cluster(db, tmp_path):
    """Return a function that adds a cluster to which the portal submits."""

    def adding(name, *, submission=None, **fields):
        slurm = FakeSlurm(tmp_path / name)
        values = {
            "scheduler": "slurm",
            "submits": True,
            "options": {"bin": str(slurm.directory), "timeout_seconds": "5"},
            "submission": {"array_size": 4, "account": f"{name}-account", **(submission or {})},
        }
        return clusters.cluster(name, **{**values, **fields})

    return adding


@pytest.fixture
def jura(add_cluster):
    """Another cluster, whose first array has the same ID as the first one of the farm."""
    return add_cluster("jura")


def decide(at=LATER):
    enrol_failures(at=at)
    decide_due(at=at)
    return list(Decision.objects.order_by("pk").values_list("arm", flat=True))


def decide_and_act(release, at=LATER):
    decide(at)
    act_on_due(at=at)
    release(at=at)


def submit_to(cluster, at):
    claimed = dispatch.claim_next(cluster=cluster, at=at)
    return dispatch.send(submission=claimed, at=at)


def end(submission, at, failed=()):
    """Let an array end, as accounting reports it: jobs of `failed` for a service."""
    jobs = end_jobs(submission, failed=set(failed), at=at)
    dispatch.refresh_progress(cluster=submission.cluster, at=at)
    judge(submission, dict.fromkeys(failed, "service"), at=at)
    return jobs


def choose(submission, **options):
    other = OtherClusters([submission], LATER).choose(submission, **options)
    return other.name if other else None


def test_retry_runs_on_the_other_cluster_and_counts_for_its_request(
    client, shifter, assignment, moving, jura, send, fail, release
):
    first = send()
    fail(first, {1, 2})
    assert decide() == ["acted", "acted"]
    assert [row.changes for row in Decision.objects.all()] == [{"cluster": "jura"}] * 2
    assert act_on_due(at=LATER) == 2
    assert act_on_due(at=LATER) == 0, "they are retried once"
    release(at=LATER)
    release(at=LATER)
    (retry,) = retries()
    assert (retry.cluster, retry.indices, retry.retry_of) == (jura, "1-2", first)
    assert retry.changes == {"cluster": "jura"}
    assert retry.asked["account"] == "jura-account", "the options are those of the other cluster"
    planned = Event.objects.filter(kind="submission.planned").latest("pk")
    assert planned.reason.endswith("On jura instead of farm.")

    sent = submit_to(jura, LATER + MINUTE)
    assert sent.spool_id == first.spool_id, "another cluster may have the same ID"
    assert dispatch.claim_next(cluster=jura, at=LATER + MINUTE) is None
    at = LATER + HOUR
    end(sent, at)
    release(at=at)
    assert follow_decisions(at=at) == 2
    follow_recoveries(at=at)
    for decision in Decision.objects.all():
        assert (decision.outcome, decision.recovery) == ("completed", "by-rule")
        assert decision.retry_core_seconds == 2 * 1800
    check_totals()
    assert set(RetryJob.objects.values_list("state", flat=True)) == {"succeeded"}

    stage = stage_submissions_of(assignment.request)[0]
    assert (stage.completed, stage.to_retry, stage.running) == (4, 0, 0)
    failed = Verdict.objects.get(job__job_id=f"{first.spool_id}_2")
    assert (failed.later_state, failed.retried_on) == ("completed", jura)
    ran = find_retry(failed)
    assert (ran.cluster, ran.job_id) == (jura, f"{sent.spool_id}_1")
    assert find_retried_job(ran) == failed.job

    client.force_login(shifter)
    assert "on jura instead of farm" in text_of(client.get(failed.job.get_absolute_url()))
    assert "on farm" in text_of(client.get(ran.get_absolute_url()))
    array_list = client.get(f"/submissions/{assignment.request.key}/")
    assert "retry of 1 on jura instead of farm" in text_of(array_list)
    assert "on jura instead of farm" in text_of(client.get(f"/recovery/jobs/{failed.job_id}/"))
    batch = RetryBatch.objects.get()
    assert "on jura instead of farm" in text_of(client.get(batch.get_absolute_url()))
    assert client.get(f"/api/v1/verdicts/{failed.job_id}/").json()["retried_on"] == "jura"
    rows = client.get(f"/api/v1/submissions/{assignment.request.key}/").json()
    assert rows[-1]["changes"] == {"cluster": "jura"}


def test_passive_rule_says_where_it_would_retry(moving, jura, approver, send, fail):
    set_mode(rule=moving, mode=Mode.PASSIVE, by=approver, at=LATER)
    fail(send(), {1})
    assert decide() == ["passive"]
    assert Decision.objects.get().changes == {"cluster": "jura"}
    assert act_on_due(at=LATER) == 0


def test_control_group_stays_on_its_cluster(
    assignment, moving, jura, send, fail, release, monkeypatch
):
    monkeypatch.setattr(choice, "is_control", lambda **_: True)
    fail(send(), {1})
    decide_and_act(release)
    (retry,) = retries()
    assert (retry.cluster, retry.changes) == (assignment.cluster, {})

    at = LATER + HOUR
    end(submit_to(assignment.cluster, LATER + MINUTE), at, failed={0})
    release(at=at)
    decide_and_act(release, at)
    assert Decision.objects.latest("pk").arm == "after-control"
    assert retries()[-1].cluster == jura


def test_without_another_cluster_a_person_is_asked_once(
    client, assignment, moving, shifter, send, fail, release
):
    fail(send(), {1, 2})
    assert decide() == ["question", "question"]
    assert act_on_due(at=LATER) == 0
    (question,) = grouped_questions(shifter)
    assert (question["jobs"], question["why"]) == (2, "No other cluster may be used.")
    shown = text_of(answer(client, shifter, Decision.objects.latest("pk")))
    assert "The retries run on farm again" in shown
    answer(client, shifter, Decision.objects.latest("pk"), do="retry", reason="Mended.")
    release(at=LATER)
    (retry,) = retries()
    assert (retry.cluster, retry.indices) == (assignment.cluster, "1-2")


def test_cluster_that_was_switched_off_since_the_decision_is_a_question(
    moving, jura, send, fail, release
):
    fail(send(), {1})
    decide()
    jura.submits = False
    jura.save()
    act_on_due(at=LATER)
    release(at=LATER)
    decision = Decision.objects.get()
    assert (decision.arm, decision.why) == ("question", "No other cluster may be used.")
    assert (retries(), decision.changes) == ([], {})
    check_totals()


def test_cluster_that_is_switched_off_while_a_retry_waits_gets_none(
    moving, jura, send, fail, release
):
    fail(send(), {1})
    decide()
    act_on_due(at=LATER)
    jura.submits = False
    jura.save()
    release(at=LATER)
    retry = RetryJob.objects.get()
    assert (retry.state, retry.why) == ("left_out", "submission to jura is switched off")
    assert retries() == []


def test_jobs_of_a_cluster_that_is_switched_off_are_retried_elsewhere(
    assignment, moving, jura, send, fail, release
):
    first = send()
    fail(first, {1})
    assignment.cluster.submits = False
    assignment.cluster.save()
    decide_and_act(release)
    (retry,) = retries()
    assert retry.cluster == jura


def test_no_attempt_goes_back_to_a_cluster_where_the_job_failed(
    moving, jura, add_cluster, shifter, send, fail, release
):
    add_cluster("rhone", submission={"most_in_flight": 10})
    fail(send(), {1})
    at = LATER
    used = []
    for _ in range(2):
        decide_and_act(release, at)
        retry = retries()[-1]
        used.append(retry.cluster.name)
        at += HOUR
        end(submit_to(retry.cluster, at - MINUTE), at, failed={0})
        release(at=at)
        follow_decisions(at=at)
    assert used == ["jura", "rhone"]
    decide(at)
    last = Decision.objects.latest("pk")
    assert (last.arm, last.attempt) == ("question", 3)
    assert last.why == "No other cluster may be used."
    first = Verdict.objects.earliest("pk")
    assert (first.retried_on.name, first.later_state) == ("jura", "failed")
    check_totals()


def test_the_answer_to_a_question_keeps_the_cluster(
    client, shifter, assignment, moving, jura, send, fail, release
):
    Decision.objects.all().delete()
    jobs = sum(stage.jobs for stage in assignment.request.stages.all())
    limited = {**DEFINITION, "limits": {"control_percent": 0, "request_percent": 50 / jobs}}
    RecoveryRule.objects.filter(pk=moving.pk).update(definition=limited)
    fail(send(), {1})
    assert decide() == ["question"]
    question = Decision.objects.get()
    assert "run on jura instead of farm" in text_of(answer(client, shifter, question))
    jura.max_memory_bytes = 64 * GB
    jura.save()
    refused = answer(client, shifter, question, do="retry", memory="90 GB", reason="More.")
    assert "At most 64 GB for one job." in text_of(refused)
    answer(client, shifter, question, do="retry", reason="All of them.")
    release(at=LATER)
    assert retries()[0].cluster == jura


def test_jobs_that_the_portal_did_not_submit_stay_on_their_cluster():
    remedy = remedy_for(
        Action(kind="other-cluster"), Job(), RequestedResources(), other_cluster=None
    )
    assert remedy.changes == ResourceChanges()
    assert remedy.question.startswith("The portal did not submit the job")


#: What a cluster is set to, its fields, and whether the request may use it.
CLUSTERS = [
    ({}, {}, True),
    ({"experiments": ["NOVA"]}, {}, True),
    ({"experiments": ["MU2E"]}, {}, False),
    ({"automatic": False}, {}, False),
    ({}, {"submits": False}, False),
    ({}, {"scheduler": "torque", "options": {}}, False),
    ({}, {"max_memory_bytes": 1_000_000}, False),
    ({}, {"max_wall_seconds": 60}, False),
    ({}, {"max_wall_seconds": 10**6, "max_memory_bytes": 10**12}, True),
]


def test_clusters_that_a_request_may_use(jura, send):
    first = send()
    for submission, fields, may_use in CLUSTERS:
        with rolled_back():
            Cluster.objects.filter(pk=jura.pk).update(
                submission={**jura.submission, **submission}, **fields
            )
            assert choose(first) == ("jura" if may_use else None), (submission, fields)


def test_cluster_with_wrong_options_is_not_used(jura, send):
    first = send()
    jura.submission = {"no-such-option": 1}
    jura.save()
    assert choose(first) is None


def test_cluster_whose_service_is_down_or_advised_against_is_not_used(jura, send, approver):
    first = send()
    jura.service = statusboard.service("jura-batch", LATER - HOUR)
    jura.save()
    assert choose(first) == "jura"
    post_announcement(
        title="Drain", by=approver, at=LATER, do_not_submit=True, services=[jura.service]
    )
    assert choose(first) is None


def test_no_cluster_is_used_while_an_announcement_says_not_to_submit_anywhere(jura, send, approver):
    first = send()
    assert choose(first) == "jura"
    post_announcement(title="Power cut", by=approver, at=LATER, do_not_submit=True)
    assert choose(first) is None


def test_service_of_the_cluster_that_failed_is_left_behind(
    assignment, moving, jura, send, fail, release, approver
):
    service = statusboard.service("farm-batch", LATER - HOUR)
    assignment.cluster.service = service
    assignment.cluster.save()
    open_incident(service=service, state=State.DOWN, title="Down", by=approver, at=LATER)
    fail(send(), {1}, service="farm-batch")
    decide_and_act(release)
    assert [retry.cluster for retry in retries()] == [jura]


def test_cluster_with_room_comes_first(jura, add_cluster, send):
    first = send()
    assert choose(first) == "jura"
    add_cluster("rhone", submission={"most_in_flight": 50_000})
    assert choose(first) == "rhone", "it has more room"
    full = {"most_in_flight": 50_000, "in_flight": {"NOVA": 1}}
    add_cluster("aare", submission=full)
    assert choose(first) == "rhone"


def test_retries_fill_one_cluster_before_the_next(add_cluster, send):
    first = send()
    add_cluster("rhone", submission={"most_in_flight": 3})
    add_cluster("jura", submission={"most_in_flight": 2})
    both = OtherClusters([first], LATER)
    chosen = [both.choose(first).name for _ in range(6)]
    assert chosen == ["rhone", "rhone", "rhone", "jura", "jura", "rhone"]


def test_arrays_are_as_small_as_the_other_cluster_wants_them(
    add_cluster, moving, send, fail, release
):
    add_cluster("jura", submission={"array_size": 2})
    fail(send(), {0, 1, 3})
    decide_and_act(release)
    assert [(retry.indices, retry.tasks) for retry in retries()] == [("0-1", 2), ("3", 1)]
    assert set(RetryJob.objects.values_list("state", flat=True)) == {"released"}
    assert RetryJob.objects.values("submission").distinct().count() == 2


def test_hosts_of_one_cluster_are_not_named_to_another(assignment, jura, send, fail, approver):
    first = send()
    fail(first, {1})
    request = lock_request(assignment.request)
    common = {"request": request, "by": approver, "at": LATER, "reason": "Test."}
    here = plan_retry(
        submission=first,
        indices=[1],
        changes=ResourceChanges(memory_bytes=7 * GB, avoided_hosts=("wn-1",)),
        **common,
    )
    there = plan_retry(
        submission=here,
        indices=[1],
        changes=ResourceChanges(cluster="jura"),
        cluster=jura,
        **common,
    )
    assert there.changes == {"memory_bytes": 7 * GB, "cluster": "jura"}
    assert batch_job(there).avoided_hosts == ()
    again = plan_retry(
        submission=there, indices=[1], changes=ResourceChanges(avoided_hosts=("jn-1",)), **common
    )
    assert (again.cluster, again.changes) == (
        jura,
        {"memory_bytes": 7 * GB, "avoided_hosts": ["jn-1"]},
    )


def test_retry_that_waits_elsewhere_does_not_hold_up_its_stage(
    assignment, moving, jura, send, fail, release
):
    fail(send(), {1})
    decide_and_act(release)
    assert retries()[0].state == "planned"
    following = plan_next(assignment=assignment, at=LATER + MINUTE)
    assert (following.cluster, following.first) == (assignment.cluster, 4)


def test_limit_of_a_request_holds_on_all_clusters_together(
    assignment, moving, jura, send, fail, release
):
    fail(send(), {0, 1, 2})
    decide_and_act(release)
    assignment.most_in_flight = 3
    assignment.save()
    at = LATER + MINUTE
    sent = submit_to(jura, at)
    plan_next(assignment=assignment, at=at)
    assert dispatch.claim_next(cluster=assignment.cluster, at=at) is None
    assert in_flight(Submission.objects.all()) == 3
    end(sent, at + HOUR)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at + HOUR)
    assert (claimed.cluster, claimed.tasks) == (assignment.cluster, 2)


@pytest.mark.django_db(transaction=True)
def test_two_clusters_that_submit_at_once_keep_the_limit_of_a_request(
    assignment, jura, send, fail, approver
):
    first = send()
    fail(first, {0, 1})
    with transaction.atomic():
        plan_retry(
            submission=first,
            request=lock_request(assignment.request),
            indices=[0, 1],
            by=approver,
            at=LATER,
            reason="Test.",
            changes=ResourceChanges(cluster="jura"),
            cluster=jura,
        )
    assignment.most_in_flight = 2
    assignment.save()
    plan_next(assignment=assignment, at=LATER)
    claimed = []

    def claim_on_jura():
        claimed.append(dispatch.claim_next(cluster=jura, at=LATER))
        connection.close()

    other = threading.Thread(target=claim_on_jura)
    with transaction.atomic():
        assert dispatch.claim_next(cluster=assignment.cluster, at=LATER).tasks == 2
        other.start()
        other.join(timeout=1)
        assert other.is_alive(), "it waits for what this cluster submits"
    other.join(timeout=30)
    assert claimed == [None]
    assert in_flight(Submission.objects.all()) == 2


def test_other_rules_leave_jobs_of_a_cluster_that_is_switched_off(
    assignment, rule, moving, jura, send, fail
):
    rule("Node failure", control_percent=0)
    first = send()
    fail(first, {1}, "code", state="node_fail", host="wn-1")
    assignment.cluster.submits = False
    assignment.cluster.save()
    at = LATER + HOUR
    dispatch.refresh_progress(cluster=assignment.cluster, at=at)
    assert decide(at) == ["owner"]
    decision = Decision.objects.get()
    assert (decision.rule.name, decision.why) == (
        "Node failure",
        "submission to its cluster is switched off",
    )


def test_jobs_elsewhere_are_cancelled_with_their_request(
    assignment, moving, jura, send, fail, release, approver
):
    fail(send(), {1})
    decide_and_act(release)
    sent = submit_to(jura, LATER + MINUTE)
    assert cancel_sent(request=assignment.request, by=approver, at=LATER, reason="Stop.") == 1
    assert recall_sent(cluster=assignment.cluster, at=LATER) == 0
    assert recall_sent(cluster=jura, at=LATER) == 1
    sent.refresh_from_db()
    assert sent.cancelled_at == LATER


def test_sentence_of_the_rule():
    assert read_definition(DEFINITION).sentence == (
        "When a job of any stage fails, run it again on another cluster, 4 times at most, "
        "if the verdict is a service problem."
    )


@pytest.fixture
def avoiding(db, approver):
    """An active rule that retries jobs with a service problem at another site."""
    definition = {**DEFINITION, "action": {"kind": "avoid-site"}}
    made = create_rule(name="Other site", definition=definition, by=approver, at=LATER)
    move_rule(rule=made, before=RecoveryRule.objects.first(), by=approver)
    set_mode(rule=made, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Test.")
    made.refresh_from_db()
    return made


@pytest.fixture
def sites(assignment):
    """Two sites; the farm is at the first one."""
    here = Site.objects.create(name="Bern")
    there = Site.objects.create(name="Lyon")
    assignment.cluster.site = here
    assignment.cluster.save()
    return here, there


def test_retry_runs_at_another_site(assignment, avoiding, sites, add_cluster, send, fail, release):
    here, there = sites
    first = send()
    roomy = {"most_in_flight": 90_000}
    add_cluster("aare", submission=roomy, site=here)
    add_cluster("inn", submission=roomy)
    rhone = add_cluster("rhone", site=there)
    fail(first, {1})
    assert decide() == ["acted"]
    assert Decision.objects.get().changes == {"cluster": "rhone"}
    act_on_due(at=LATER)
    release(at=LATER)
    (retry,) = retries()
    assert retry.cluster == rhone, "neither at the same site nor at one that is not known"


def test_without_another_site_a_person_is_asked(
    client, shifter, avoiding, sites, add_cluster, send, fail
):
    first = send()
    add_cluster("aare", site=sites[0])
    fail(first, {1})
    assert decide() == ["question"]
    question = Decision.objects.get()
    assert question.why == "No cluster of another site may be used."
    assert "The retries run on farm again" in text_of(answer(client, shifter, question))


def test_site_that_is_lost_since_the_decision_is_a_question(
    avoiding, sites, add_cluster, send, fail, release
):
    first = send()
    add_cluster("aare", site=sites[0])
    rhone = add_cluster("rhone", site=sites[1])
    fail(first, {1})
    assert decide() == ["acted"]
    rhone.site = sites[0]
    rhone.save()
    act_on_due(at=LATER)
    release(at=LATER)
    decision = Decision.objects.get()
    assert (decision.arm, decision.why) == ("question", "No cluster of another site may be used.")
    assert retries() == []
    check_totals()


def test_job_of_an_unknown_site_is_a_question(avoiding, jura, send, fail):
    fail(send(), {1})
    assert decide() == ["question"]
    assert Decision.objects.get().why == "The site of the failed attempt is not known."


def test_control_group_stays_at_its_site(
    assignment, avoiding, sites, add_cluster, send, fail, release, monkeypatch
):
    monkeypatch.setattr(choice, "is_control", lambda **_: True)
    first = send()
    add_cluster("rhone", site=sites[1])
    fail(first, {1})
    decide_and_act(release)
    assert [(row.cluster, row.changes) for row in retries()] == [(assignment.cluster, {})]


def test_sentence_of_a_rule_for_another_site():
    definition = {**DEFINITION, "action": {"kind": "avoid-site"}}
    assert "run it again at another site, 4 times" in read_definition(definition).sentence
