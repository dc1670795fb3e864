"""Attempts of one job: whose log it is, and what is left to do once a later attempt has ended."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.urls import reverse

from apps.accounts.models import User
from apps.diagnosis.domain.causes.totals import failures_by_cause, recount_dirty_hours
from apps.diagnosis.domain.log_page.page import PageQuery, log_page
from apps.diagnosis.domain.reading.attempts import follow_attempts
from apps.diagnosis.domain.reading.log_scans import scan_logs
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.domain.verdicts.job_diagnosis import job_diagnosis
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, LogExcerpt, LogHarvest, Verdict

MINUTE = timedelta(minutes=1)
FATAL = "    [FATAL] Auth failed\n"
HEADER = "reading events\n"


@pytest.fixture
def lost(make_job, at):
    """The first attempt of a job, lost with its node at noon; the next starts ten minutes later."""
    return make_job(1, state="node_fail", exit_code=0)


@pytest.fixture
def attempt(make_job, lost, at):
    """Make the next attempt of the job, and what it wrote."""

    def make(number: int = 2, state: str = "failed", **fields):
        starts = at + (number - 1) * 30 * MINUTE - 20 * MINUTE
        times = {
            "submitted_at": lost.submitted_at,
            "started_at": starts,
            "ended_at": starts + 15 * MINUTE,
        }
        return make_job(1, state=state, attempt=number, **{**times, **fields})

    return make


def write(job, text, moment):
    """Write the log of a job as of a moment."""
    Path(job.log_path).write_text(text)
    os.utime(job.log_path, (moment.timestamp(),) * 2)


def read(job, at):
    """Harvest the log of a job; return the harvest, and the text of its excerpt or None."""
    queue_harvests(job_pks=[job.pk], at=at)
    row = LogHarvest.objects.get(job=job)
    harvest_log(harvest=row, at=at)
    row.refresh_from_db()
    excerpt = LogExcerpt.objects.filter(harvest=row).first()
    return row, bytes(excerpt.data).decode() if excerpt else None


def marker(moment, why="NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"):
    """The line of Slurm, in the time of a node two hours east."""
    local = (moment + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"slurmstepd: error: *** JOB 1 ON wn-0233 CANCELLED AT {local} DUE TO {why} ***\n"


def shown(job):
    return [line.line.text for line in log_view(job).lines]


def test_lost_attempt_does_not_rest_on_the_log_of_the_next_one(lost, attempt, at):
    second = attempt()
    write(second, HEADER + FATAL, second.ended_at)
    row, excerpt = read(lost, at + 60 * MINUTE)
    assert (row.state, excerpt) == ("log_not_found", None)
    assert "attempt 2 has written to this file" in row.last_error
    assert (lost.verdict.cause, lost.verdict.category) == ("", "site")
    assert "attempt 2 has written to this file" in lost.verdict.reasons[-1]["text"]
    assert (shown(lost), "attempt 2" in log_view(lost).problem) == ([], True)
    assert read(second, at + 60 * MINUTE)[1] == HEADER + FATAL
    assert second.verdict.cause == "XRD-AUTH"


def test_log_is_that_of_the_lost_attempt_until_the_next_one_writes(lost, attempt, at):
    write(lost, HEADER, at - MINUTE)
    assert read(lost, at + MINUTE)[1] == HEADER
    second = attempt()
    assert shown(lost) == ["reading events"]
    write(second, FATAL, second.ended_at)
    row, excerpt = read(lost, at + 60 * MINUTE)
    assert (row.state, excerpt, lost.verdict.cause) == ("done", HEADER, "")


def test_log_that_a_later_attempt_may_have_written_is_not_read_before_that_is_collected(lost, at):
    write(lost, HEADER + FATAL, at + 10 * MINUTE)
    row, excerpt = read(lost, at + 11 * MINUTE)
    assert (row.state, excerpt) == ("log_not_found", None)
    assert "a later attempt has written" in row.last_error


def test_marker_of_the_scheduler_divides_a_log_that_is_appended_to(lost, attempt, at):
    second, third = attempt(state="requeued"), attempt(3)
    parts = [
        HEADER + marker(at + timedelta(seconds=20)),
        "second\n" + marker(second.ended_at, "JOB REQUEUE"),
        "third\n" + FATAL,
    ]
    write(third, "".join(parts), third.ended_at)
    later = at + 120 * MINUTE
    assert [read(job, later)[1] for job in (lost, second, third)] == parts
    assert third.verdict.cause == "XRD-AUTH"
    assert shown(second)[0] == "second"
    LogExcerpt.objects.all().delete()
    assert shown(second)[0] == "second"
    assert log_view(second).earlier is None
    assert log_view(second).lines[0].line.number == 3
    page = log_page(second, user=User(pk=1), stream=None, query=PageQuery(line=(3, 3)))
    assert page.sections[0].rows[0].number == 3
    assert page.place == len(parts[0])
    assert log_view(second, lines=10, before=len(parts[0])).lines == ()
    assert [hit.pattern.id for hit in scan_logs(job=third, at=later).hits] == ["XRD-AUTH"]
    assert scan_logs(job=second, at=later).hits[0].pattern.id == "SLURM-REQUEUE"


def test_size_of_the_log_at_that_time_divides_it(lost, attempt, at):
    write(lost, HEADER + FATAL, at)
    read(lost, at + MINUTE)
    second = attempt()
    write(second, HEADER + FATAL + "---- BadAlloc BEGIN\n", second.ended_at)
    assert read(second, at + 60 * MINUTE)[1] == "---- BadAlloc BEGIN\n"
    write(second, "---- BadAlloc BEGIN\n" + FATAL, second.ended_at)
    assert read(second, at + 60 * MINUTE)[1] == "---- BadAlloc BEGIN\n" + FATAL


def test_log_that_the_job_appends_to_without_a_marker_is_not_judged(lost, attempt, at):
    second = attempt(submit_line="sbatch --open-mode=append run.sh")
    write(second, HEADER + FATAL, second.ended_at)
    row, excerpt = read(second, at + 60 * MINUTE)
    assert (excerpt, "nothing marks where attempt 1 ends" in row.last_error) == (None, True)
    assert second.verdict.cause == ""


def test_job_with_one_attempt_is_read_whatever_its_times(make_job, at):
    job = make_job(9, log=FATAL)
    assert read(job, at)[1] == FATAL


def test_recycled_id_is_no_other_attempt(make_job, at):
    old = make_job(
        1,
        log=FATAL,
        state="node_fail",
        ended_at=at - timedelta(days=300),
        submitted_at=at - timedelta(days=301),
    )
    make_job(1, attempt=2)
    follow_attempts(cluster=old.cluster, job_pks=[job.pk for job in type(old).objects.all()])
    read(old, at)
    assert old.verdict.later_attempt is None


def test_nothing_is_left_to_do_once_a_later_attempt_has_completed(
    client, lost, attempt, shifter, at
):
    write(lost, HEADER, at - MINUTE)
    read(lost, at)
    assert (lost.verdict.advice, job_diagnosis(lost).headline) == (
        "retry",
        "Service problem: retry",
    )
    second = attempt(state="completed", exit_code=0)
    follow_attempts(cluster=lost.cluster, job_pks=[second.pk])
    verdict = Verdict.objects.get()
    assert (verdict.advice, verdict.later_attempt, verdict.later_state) == ("none", 2, "completed")
    assert job_diagnosis(lost).headline == "Service problem: succeeded at attempt 2, nothing to do"
    recount_dirty_hours()
    [row] = failures_by_cause(CauseTotals.objects.all())
    assert (row.jobs, row.succeeded, row.next_step) == (1, 1, "succeeded since, nothing to do")
    client.force_login(shifter)
    listed = client.get(reverse("diagnosis:failed-jobs"), {"since": "succeeded"}).content.decode()
    assert "attempt 2 completed since" in listed
    assert (
        "No matching jobs"
        in client.get(reverse("diagnosis:failed-jobs"), {"since": "open"}).content.decode()
    )


def test_verdict_that_comes_after_the_later_attempt_knows_it(lost, attempt, at, shifter):
    attempt(state="completed", exit_code=0)
    attempt(3)
    write(lost, HEADER, at - MINUTE)
    read(lost, at)
    assert (lost.verdict.advice, lost.verdict.later_attempt) == ("none", 2)
    override_verdict(job=lost, verdict=VerdictKind.CODE, by=shifter, at=at, reason="Seen")
    assert Verdict.objects.get(job=lost).advice == "none"


def test_later_attempt_that_failed_has_the_say(lost, attempt, at):
    write(lost, HEADER, at - MINUTE)
    read(lost, at)
    second = attempt()
    follow_attempts(cluster=lost.cluster, job_pks=[second.pk])
    assert job_diagnosis(lost).headline == "Service problem: attempt 2 failed since"
    assert failures_by_cause(CauseTotals.objects.all()) == []
    second.delete()
    third = attempt(3, state="completed")
    assert follow_attempts(cluster=lost.cluster, job_pks=[third.pk]) == 1
    assert follow_attempts(cluster=lost.cluster, job_pks=[third.pk]) == 0


def test_batch_costs_the_same_queries_for_any_number_of_attempts(
    lost, attempt, at, django_assert_num_queries
):
    write(lost, HEADER, at - MINUTE)
    read(lost, at)
    made = [attempt(number) for number in (2, 3, 4)]
    with django_assert_num_queries(8):
        follow_attempts(cluster=lost.cluster, job_pks=[job.pk for job in made])
