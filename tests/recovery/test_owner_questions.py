"""Jobs that only their owners can submit: one question each, with the ready bundle."""

import io
import tarfile
from datetime import timedelta

import pytest

from apps.core.errors import InvalidTransition
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.outcomes import follow_decisions
from apps.recovery.domain.decisions.owner_questions import grouped_owner_questions, note_submitted
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from tests.factories import archive, clusters, jobs
from tests.factories.verdicts import verdict
from tests.pages import text_of
from tests.recovery.conftest import GB, LATER
from tests.recovery.test_decide import check_totals


@pytest.fixture
def lose(nova):
    """Return a function that decides about a captured job that the portal did not submit."""
    cluster = clusters.cluster("alps", "slurm")

    def losing(number, *, user="alice", stage="reco"):
        captured = archive.captured_job(
            number, cluster="alps", script=b"#!/bin/sh\nreco\n", environment=b"HOME=/home/alice\0"
        )
        archive.store(captured)
        values = {
            "state": "out_of_memory",
            "submitted_at": captured.submitted_at,
            "requested_memory_bytes": 2 * GB,
            "user": user,
        }
        (job,) = jobs.store(cluster, jobs.record(number, **values))
        Job.objects.filter(pk=job.pk).update(experiment=nova, stage=stage)
        job.refresh_from_db()
        verdict(job, at=LATER)
        enrol_failures(at=LATER)
        decide_due(at=LATER)
        return Decision.objects.get(job=job)

    return losing


def visit(client, user, path, **data):
    client.force_login(user)
    if data:
        return client.post(path, data, follow=True)
    return client.get(path)


def test_jobs_of_an_owner_and_stage_are_asked_once(client, rule, lose, shifter, other_liaison):
    rule("More memory")
    assert lose(1).arm == "owner"
    newest = lose(2)
    lose(3, user="bob")
    rows = grouped_owner_questions(shifter)
    assert sorted((row["job__user"], row["jobs"]) for row in rows) == [("alice", 2), ("bob", 1)]
    shown = visit(client, shifter, "/recovery/questions/")
    assert f'href="/recovery/owners/{newest.pk}/"' in shown.content.decode()
    assert "3 jobs that a rule would retry" in text_of(shown)
    listed = text_of(visit(client, shifter, "/recovery/"))
    assert ">2 of alice</a" in listed
    assert ">1 of bob</a" in listed
    assert not grouped_owner_questions(other_liaison)
    assert visit(client, other_liaison, f"/recovery/owners/{newest.pk}/").status_code == 404


def test_passive_rule_asks_no_owner(rule, lose, shifter):
    rule("More memory", mode=Mode.PASSIVE)
    lose(1)
    assert not grouped_owner_questions(shifter)


def test_bundle_has_the_jobs_of_the_question(client, rule, lose, approver):
    rule("More memory")
    lose(1)
    decision = lose(2)
    lose(3, user="bob")
    page = visit(client, approver, f"/recovery/owners/{decision.pk}/")
    assert "Download retry bundle" in text_of(page)
    response = visit(client, approver, f"/recovery/owners/{decision.pk}/retries.tar")
    assert response["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        scripts = [name for name in tar.getnames() if name.endswith("/script.sh")]
    assert sorted(scripts) == ["retry/alps-1/script.sh", "retry/alps-2/script.sh"]


def test_done_is_noted_and_the_outcome_is_followed(client, rule, lose, liaison, shifter):
    rule("More memory")
    decision = lose(1)
    done = visit(client, liaison, f"/recovery/owners/{decision.pk}/", do="done", reason="Sent.")
    assert "Answered for 1 job." in text_of(done)
    decision.refresh_from_db()
    assert decision.arm == "owner"
    assert decision.why == f"Submitted by the owner, noted by {liaison}. Sent."
    assert not grouped_owner_questions(shifter)
    again = visit(client, liaison, f"/recovery/owners/{decision.pk}/", do="done")
    assert "This question is answered." in text_of(again)
    check_totals()
    Verdict.objects.update(later_state="completed")
    follow_decisions(at=LATER + timedelta(hours=1))
    decision.refresh_from_db()
    assert decision.outcome == "completed"


def test_leaving_jobs_failed_needs_a_comment(client, rule, lose, shifter):
    rule("More memory")
    decision = lose(1)
    path = f"/recovery/owners/{decision.pk}/"
    visit(client, shifter, path, do="leave")
    assert grouped_owner_questions(shifter).count() == 1
    visit(client, shifter, path, do="leave", reason="Old release.")
    decision.refresh_from_db()
    assert (decision.arm, decision.why) == ("person", f"Left failed by {shifter}: Old release.")
    check_totals()


def test_others_cannot_answer(client, rule, lose, other_liaison):
    rule("More memory")
    decision = lose(1)
    path = f"/recovery/owners/{decision.pk}/"
    assert visit(client, other_liaison, path, do="done").status_code == 404
    with pytest.raises(InvalidTransition):
        note_submitted(decision=decision, by=other_liaison, at=LATER)
    decision.refresh_from_db()
    assert "Submitted" not in decision.why


def test_switching_the_rule_off_takes_the_question_back(rule, lose, shifter):
    acting = rule("More memory")
    lose(1)
    RecoveryRule.objects.filter(pk=acting.pk).update(mode=Mode.OFF)
    assert not grouped_owner_questions(shifter)
