"""Harvests: queued, read, tried again, broken off; verdicts: stored, replaced, corrected."""

from datetime import timedelta
from unittest.mock import Mock

import pytest
from django.db import IntegrityError, OperationalError, transaction

from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import Blob
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.diagnosis import tasks
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.known_errors.changes import submit_change, values_of
from apps.diagnosis.domain.reading.job_facts import submission_of
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts import analyses
from apps.diagnosis.domain.verdicts import harvest as harvest_module
from apps.diagnosis.domain.verdicts.analyses import ATTEMPTS
from apps.diagnosis.domain.verdicts.harvest import (
    RUN_TIMEOUT,
    harvest_log,
    queue_harvests,
    reanalyse_log,
    requeue_overdue,
)
from apps.diagnosis.domain.verdicts.judged_jobs import assign_experiments
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.engine import diagnose as diagnose_module
from apps.diagnosis.engine.logs.tail import LogUnreadable
from apps.diagnosis.enums import TRANSITIONS, HarvestState, VerdictKind
from apps.diagnosis.models import (
    CauseTotals,
    Evidence,
    KnownError,
    LogExcerpt,
    LogHarvest,
    Verdict,
)
from apps.jobs.models import Job
from tests.factories.archive import captured_job

FATAL = "start\n---- FileOpenError BEGIN\n    [FATAL] Auth failed\n"


def harvest(job, at) -> LogHarvest:
    """Queue and run one harvest; return its row as it is then."""
    queue_harvests(job_pks=[job.pk], at=at)
    row = LogHarvest.objects.get(job=job)
    harvest_log(harvest=row, at=at)
    row.refresh_from_db()
    return row


def test_log_is_read_into_excerpt_evidence_and_verdict(make_job, at):
    row = harvest(make_job(log=FATAL), at)
    assert (row.state, row.last_error, row.harvested_at) == ("done", "", at)
    excerpt = LogExcerpt.objects.get()
    assert (bytes(excerpt.data), excerpt.first_offset, excerpt.first_line_number) == (
        FATAL.encode(),
        0,
        1,
    )
    assert list(
        Evidence.objects.order_by("offset").values_list("pattern", "role", "line", "offset")
    ) == [
        ("ART-FILEOPEN", "symptom", 2, 6),
        ("XRD-AUTH", "cause", 3, 31),
    ]
    verdict = Verdict.objects.get()
    assert (verdict.verdict, verdict.advice, verdict.cause, verdict.service) == (
        "service",
        "hold",
        "XRD-AUTH",
        "xrootd",
    )
    assert verdict.reasons[0]["target"] == "stdout:31"


def test_both_outputs_are_read(make_job, at):
    job = make_job(log="fine\n", error_log="---- BadAlloc BEGIN\n")
    harvest(job, at)
    assert sorted(LogExcerpt.objects.values_list("stream", flat=True)) == ["stderr", "stdout"]
    assert Verdict.objects.get().reasons[0]["target"] == "stderr:0"


def test_damaged_submission_does_not_keep_a_log_from_being_read(make_job, at):
    job = make_job(log=FATAL, log_path="")
    captured = captured_job(job.job_id, submitted_at=job.submitted_at)
    store_jobs(jobs=[captured], by="test", at=at)
    Blob.objects.update(data=b"x")

    assert submission_of(job) == (b"", {})
    assert harvest(job, at).state != "failed"


def test_harvest_twice_gives_the_same_rows_once(make_job, at):
    job = make_job(log=FATAL)
    harvest(job, at)
    harvest(job, at)
    assert (LogExcerpt.objects.count(), Evidence.objects.count(), Verdict.objects.count()) == (
        1,
        2,
        1,
    )
    assert Event.objects.filter(kind="verdict.decided").count() == 1


def test_task_delivered_twice_reads_once(make_job, at, django_capture_on_commit_callbacks):
    job = make_job(log=FATAL)
    queue_harvests(job_pks=[job.pk], at=at)
    row = LogHarvest.objects.get()
    tasks.harvest_log(harvest_id=row.pk)
    tasks.harvest_log(harvest_id=row.pk)
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("done", 1)


def test_task_of_a_harvest_that_is_gone_does_nothing(db):
    tasks.harvest_log(harvest_id=4711)


def test_two_workers_with_the_same_row_store_once(make_job, at):
    queue_harvests(job_pks=[make_job(log=FATAL).pk], at=at)
    first, second = LogHarvest.objects.get(), LogHarvest.objects.get()
    assert harvest_log(harvest=first, at=at) is HarvestState.DONE
    assert harvest_log(harvest=second, at=at) is None


def test_completed_jobs_are_not_asked_for_and_others_are(make_job, at):
    jobs = [
        make_job(n, state=state)
        for n, state in enumerate(["completed", "failed", "cancelled", "preempted"])
    ]
    assert queue_harvests(job_pks=[job.pk for job in jobs], at=at) == 3


def test_log_of_a_completed_job_is_read_when_asked_and_judges_nothing(make_job, at, shifter):
    job = make_job(log="all fine\n", state="completed", exit_code=0)
    row = reanalyse_log(job=job, by=shifter, at=at)
    harvest_log(harvest=row, at=at)
    assert bytes(LogExcerpt.objects.get().data) == b"all fine\n"
    assert not Verdict.objects.exists()


def test_completed_job_with_a_cause_in_its_log_is_judged(make_job, at, shifter):
    job = make_job(log=FATAL, state="completed", exit_code=0)
    harvest_log(harvest=reanalyse_log(job=job, by=shifter, at=at), at=at)
    assert Verdict.objects.get().cause == "XRD-AUTH"


def test_verdict_on_a_completed_job_goes_with_its_known_error(make_job, at, shifter, approver):
    job = make_job(log=FATAL, state="completed", exit_code=0)
    harvest_log(harvest=reanalyse_log(job=job, by=shifter, at=at), at=at)
    noise = {**values_of(KnownError.objects.get(pk="XRD-AUTH")), "role": "noise"}
    submit_change(known_error="XRD-AUTH", values=noise, by=approver, at=at, reason="harmless")
    harvest_log(harvest=reanalyse_log(job=job, by=shifter, at=at), at=at)
    assert not Verdict.objects.exists()
    event = Event.objects.get(kind="verdict.withdrawn")
    assert (event.target_id, event.old) == (str(job.pk), "service")


def test_missing_log_is_looked_for_three_times(make_job, at):
    job = make_job()
    for expected in ("queued", "queued", "log_not_found"):
        harvest_log(harvest=LogHarvest.objects.filter(job=job).first() or queued(job, at), at=at)
        assert LogHarvest.objects.get().state == expected
    verdict = Verdict.objects.get()
    assert verdict.verdict == "unknown"
    assert any("no such file" in reason["text"] for reason in verdict.reasons)


def queued(job, at) -> LogHarvest:
    queue_harvests(job_pks=[job.pk], at=at)
    return LogHarvest.objects.get(job=job)


def reanalyse_without_log(job, at, by) -> LogHarvest:
    """Re-analyse a job until its missing log is no longer retried; return its harvest."""
    row = reanalyse_log(job=job, by=by, at=at)
    while row.state == HarvestState.QUEUED:
        harvest_log(harvest=row, at=at)
        row.refresh_from_db()
    return row


def stored(job) -> tuple[list, list]:
    """Return excerpts and evidence of a job."""
    return (
        list(LogExcerpt.objects.filter(harvest__job=job).order_by("pk").values()),
        list(
            Evidence.objects.filter(harvest__job=job)
            .order_by("offset")
            .values_list("pattern", "offset", "text")
        ),
    )


@pytest.mark.parametrize("error", [None, LogUnreadable("stale file handle")])
def test_what_was_read_of_a_log_stays_when_the_log_is_gone(
    error, make_job, at, roots, shifter, monkeypatch
):
    job = make_job(log=FATAL)
    harvest(job, at)
    before = stored(job)
    if error:
        monkeypatch.setattr(analyses, "open_own_log", Mock(side_effect=error))
    else:
        (roots / "1.out").unlink()

    later = at + timedelta(days=2)
    row = reanalyse_without_log(job, later, shifter)

    assert stored(job) == before
    assert (row.state, row.attempts, row.harvested_at) == ("done", 3, at)
    verdict = Verdict.objects.get()
    assert (verdict.verdict, verdict.cause) == ("service", "XRD-AUTH")
    reasons = [reason["text"] for reason in verdict.reasons]
    assert any(("stale file handle" if error else "no such file") in text for text in reasons)
    words = f"the part stored on {at:%-d %b %Y %H:%M} UTC is used"
    assert f"Log can no longer be read: {words}" in reasons
    assert log_view(job).lines[-1].line.text == "    [FATAL] Auth failed"


def test_cause_before_the_excerpt_of_a_log_that_is_gone_stays(make_job, at, roots, shifter):
    job = make_job(log=FATAL + "more\n" * 20_000)
    harvest(job, at)
    verdict, before = Verdict.objects.values().get(), stored(job)
    assert before[0][0]["first_offset"] > before[1][-1][1]
    (roots / "1.out").unlink()
    row = reanalyse_without_log(job, at + timedelta(days=2), shifter)
    assert (row.state, row.harvested_at) == ("done", at)
    assert "no such file" in row.last_error
    assert (Verdict.objects.values().get(), stored(job)) == (verdict, before)


def test_log_that_is_back_is_read_again(make_job, at, roots, shifter):
    job = make_job(log=FATAL)
    harvest(job, at)
    (roots / "1.out").unlink()
    reanalyse_without_log(job, at + timedelta(days=1), shifter)
    (roots / "1.out").write_text("std::bad_alloc\n")
    row = reanalyse_without_log(job, at + timedelta(days=2), shifter)
    assert row.harvested_at == at + timedelta(days=2)
    assert bytes(LogExcerpt.objects.get().data) == b"std::bad_alloc\n"
    assert not any("no longer" in reason["text"] for reason in Verdict.objects.get().reasons)


def test_log_that_comes_late_is_read(make_job, at, roots):
    job = make_job()
    assert harvest_log(harvest=queued(job, at), at=at) is HarvestState.QUEUED
    (roots / "1.out").write_text(FATAL)
    assert harvest_log(harvest=LogHarvest.objects.get(), at=at) is HarvestState.DONE


@pytest.mark.parametrize("path", ["/etc/passwd", "{roots}/../secret", "{roots}/link", "{roots}"])
def test_path_outside_of_the_roots_is_refused_at_once(make_job, at, roots, path):
    (roots.parent / "secret").write_text("secret")
    (roots / "link").symlink_to(roots.parent / "secret")
    row = harvest(make_job(log_path=path.format(roots=roots)), at)
    assert (row.state, row.attempts, LogExcerpt.objects.count()) == ("path_not_allowed", 1, 0)
    assert Verdict.objects.get().verdict == "unknown"


def test_job_that_never_started_has_a_verdict_at_once(make_job, at):
    row = harvest(make_job(state="cancelled", started_at=None, cancelled_by="alice"), at)
    assert row.state == "log_not_found"
    assert Verdict.objects.get().verdict == "user"


def test_job_whose_output_went_nowhere_has_a_verdict_at_once(make_job, at):
    assert harvest(make_job(log_path="/dev/null", state="timeout"), at).state == "log_not_found"
    assert Verdict.objects.get().verdict == "resource"


def test_nul_in_log_and_path_is_stored(make_job, at):
    row = harvest(make_job(log="a\0b std::bad_alloc\0\n"), at)
    assert row.state == "done"
    assert "\0" not in Evidence.objects.get().text


def test_excerpt_of_a_large_log_is_its_last_whole_lines(make_job, at):
    lines = [f"line {n} " + "x" * 90 for n in range(1, 2001)]
    harvest(make_job(log="\n".join(lines) + "\n"), at)
    excerpt = LogExcerpt.objects.get()
    data = bytes(excerpt.data).decode().splitlines()
    assert len(excerpt.data) <= 64 * 1024
    assert data[-1] == lines[-1]
    assert data[0] == lines[excerpt.first_line_number - 1]
    assert excerpt.size_bytes == excerpt.first_offset + len(excerpt.data)


def test_killed_harvest_starts_again(make_job, at, django_capture_on_commit_callbacks):
    row = queued(make_job(log=FATAL), at)
    LogHarvest.objects.filter(pk=row.pk).update(
        state="running", attempts=1, due_at=at + RUN_TIMEOUT
    )
    assert requeue_overdue(at=at + timedelta(minutes=5)) == 0
    with django_capture_on_commit_callbacks() as sends:
        assert requeue_overdue(at=at + timedelta(minutes=13)) == 1
    assert len(sends) == 1
    assert harvest_log(harvest=LogHarvest.objects.get(), at=at) is HarvestState.DONE


def test_lost_message_is_sent_again_but_not_at_once(make_job, at):
    queued(make_job(log=FATAL), at)
    assert requeue_overdue(at=at + timedelta(seconds=30)) == 0
    assert requeue_overdue(at=at + timedelta(seconds=61)) == 1
    assert requeue_overdue(at=at + timedelta(seconds=62)) == 0


def test_harvest_that_keeps_killing_its_worker_is_given_up(make_job, at):
    row = queued(make_job(log=FATAL, state="timeout"), at)
    LogHarvest.objects.filter(pk=row.pk).update(attempts=ATTEMPTS)
    row.refresh_from_db()
    assert harvest_log(harvest=row, at=at) is HarvestState.FAILED
    assert Verdict.objects.get().verdict == "resource"


def unreadable(*_):
    raise LogUnreadable("stale file handle")


def test_large_log_is_judged_at_once_and_then_looked_through(make_job, at, monkeypatch):
    for module in (diagnose_module, analyses):
        monkeypatch.setattr(module, "WHOLE_BYTES", 2_000)
    monkeypatch.setattr(diagnose_module, "BUDGET_BYTES", 600)
    monkeypatch.setattr(analyses, "HEAD_BYTES", 500)
    work = "event\n" * 300
    row = harvest(make_job(log=f"std::bad_alloc\n{work}{FATAL}{work}KeyError: 'x'\n"), at)
    seen = Evidence.objects.order_by("offset")
    assert [(each.pattern, each.line) for each in seen] == [("BADALLOC", 1), ("PY-TRACEBACK", 605)]
    reasons = [reason["text"] for reason in Verdict.objects.get().reasons]
    assert any(text.startswith("Only the first ") for text in reasons)

    assert harvest_module.survey_log(harvest=row, at=at)
    found = [(each.pattern, each.line) for each in seen.all()]
    assert found == [
        ("BADALLOC", 1),
        ("ART-FILEOPEN", 303),
        ("XRD-AUTH", 304),
        ("PY-TRACEBACK", 605),
    ]
    assert Verdict.objects.get().cause == "PY-TRACEBACK"
    assert not any(reason["text"].startswith("Only") for reason in Verdict.objects.get().reasons)

    monkeypatch.setattr(analyses, "read_log", unreadable)
    assert not harvest_module.survey_log(harvest=row, at=at)
    assert LogExcerpt.objects.count() == 1


def test_error_of_the_reader_ends_the_harvest_with_a_verdict(make_job, at, monkeypatch):
    monkeypatch.setattr(analyses, "read_log", lambda *_: 1 / 0)
    row = harvest(make_job(log=FATAL, state="timeout"), at)
    assert (row.state, row.last_error) == ("failed", "ZeroDivisionError: division by zero")
    assert Verdict.objects.get().verdict == "resource"


def test_file_system_that_fails_is_tried_again_then_said(make_job, at, monkeypatch):
    monkeypatch.setattr(analyses, "read_log", unreadable)
    job = make_job(log=FATAL)
    row = queued(job, at)
    for _ in range(3):
        harvest_log(harvest=LogHarvest.objects.get(), at=at)
    row.refresh_from_db()
    assert (row.state, row.last_error) == ("failed", "stale file handle")


def test_database_error_leaves_the_harvest_to_be_found_again(make_job, at, monkeypatch):
    def fail(*_, at):
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(harvest_module, "store_verdicts", fail)
    row = queued(make_job(log=FATAL), at)
    with pytest.raises(OperationalError):
        harvest_log(harvest=row, at=at)
    assert LogHarvest.objects.get().state == "running"
    assert LogExcerpt.objects.count() == 0


def test_person_has_the_last_word(make_job, at, liaison):
    job = make_job(log=FATAL)
    harvest(job, at)
    override_verdict(
        job=job, verdict=VerdictKind.CODE, by=liaison, at=at, reason="Our proxy was wrong."
    )
    harvest(job, at + timedelta(hours=1))
    verdict = Verdict.objects.get()
    assert (verdict.verdict, verdict.advice, verdict.machine_verdict) == (
        "code",
        "debug",
        "service",
    )
    assert (verdict.overridden_by, verdict.overridden_at) == ("nova-liaison", at)
    assert verdict.decided_at == at + timedelta(hours=1)
    event = Event.objects.get(kind="verdict.overridden")
    assert (event.old, event.new, event.reason) == ("service", "code", "Our proxy was wrong.")


def test_only_opg_and_own_liaisons_may_judge(make_job, at, other_liaison, shifter):
    job = make_job(log=FATAL)
    harvest(job, at)
    with pytest.raises(NotAllowed):
        override_verdict(job=job, verdict=VerdictKind.CODE, by=other_liaison, at=at, reason="x")
    with pytest.raises(NotAllowed):
        reanalyse_log(job=job, by=other_liaison, at=at)
    override_verdict(job=job, verdict=VerdictKind.CODE, by=shifter, at=at, reason="x")


def test_correction_needs_a_reason_and_a_verdict(make_job, at, shifter):
    job = make_job(log=FATAL)
    with pytest.raises(NotAllowed, match="no verdict yet"):
        override_verdict(job=job, verdict=VerdictKind.CODE, by=shifter, at=at, reason="x")
    harvest(job, at)
    with pytest.raises(InvalidFields):
        override_verdict(job=job, verdict=VerdictKind.CODE, by=shifter, at=at, reason="  ")


def test_reanalysis_starts_from_the_first_attempt(make_job, at, shifter):
    job = make_job(log=FATAL)
    harvest(job, at)
    row = reanalyse_log(job=job, by=shifter, at=at)
    assert (row.state, row.attempts) == ("queued", 0)
    with pytest.raises(InvalidTransition):
        reanalyse_log(job=job, by=shifter, at=at)


@pytest.mark.parametrize("old", HarvestState)
def test_every_state_has_a_way_on(old):
    assert TRANSITIONS[old]
    assert old not in TRANSITIONS[old]


def test_half_a_correction_is_refused_by_the_database(make_job, at):
    harvest(make_job(log=FATAL), at)
    with pytest.raises(IntegrityError), transaction.atomic():
        Verdict.objects.update(overridden_by="somebody")


def test_linked_jobs_are_queued_by_the_event(make_job, at):
    from apps.core.domain.events import publish
    from apps.core.domain.outbox import deliver

    job = make_job(log=FATAL)
    event = publish(
        kind="jobs.linked",
        target=job.cluster,
        by="test",
        at=at,
        data={"jobs": [job.pk], "after": "jobs.collected"},
    )
    delivery = event.deliveries.get(subscriber="diagnosis.queue_harvests")
    assert deliver(delivery_id=delivery.pk, at=at)
    assert LogHarvest.objects.get().job == job
    assert Job.objects.get().harvest.state == "queued"


def test_verdict_follows_the_experiment_that_its_job_gets_later(make_job, at, nova):
    job = make_job(log=FATAL, experiment=None)
    harvest(job, at)
    recount_dirty_hours()
    Job.objects.update(experiment=nova)
    assert assign_experiments(jobs=Job.objects.filter(experiment=nova)) == 1
    assert assign_experiments(jobs=Job.objects.all()) == 0
    assert recount_dirty_hours().group_ids == {Verdict.objects.get().group_id}
    assert (Verdict.objects.get().experiment, CauseTotals.objects.get().experiment) == (nova, nova)
