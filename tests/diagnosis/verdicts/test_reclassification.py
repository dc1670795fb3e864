"""Re-classification: a preview that changes nothing,
then batches that a kill interrupts and that go on.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.core.errors import NotAllowed
from apps.core.models import Event
from apps.diagnosis.domain.known_errors.changes import submit_change
from apps.diagnosis.domain.verdicts import reclassification
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import LogExcerpt, LogHarvest, Reclassification, Verdict
from apps.jobs.models import Job
from tests.diagnosis.known_errors.test_known_errors import NEW


@pytest.fixture
def run(make_job, at, approver, monkeypatch) -> Reclassification:
    """A preview over five failures, of which four are a known error by now,
    and of these one has a user's verdict.
    """
    monkeypatch.setattr(reclassification, "BATCH", 2)
    for number in range(1, 6):
        made = make_job(number, log=NEW["example"] + "\n" if number < 5 else "KeyError: 'x'\n")
        queue_harvests(job_pks=[made.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=made), at=at)
    by_user = Verdict.objects.order_by("pk").first()
    override_verdict(
        job=by_user.job, verdict=VerdictKind.RESOURCE, by=approver, at=at, reason="I saw it"
    )
    submit_change(known_error="GEO-GONE", values=NEW, by=approver, at=at, reason="new")
    return reclassification.start_preview(since=at - timedelta(days=9), by=approver, at=at)


def work(run, at) -> None:
    while reclassification.reclassify_batch(run_id=run.pk, at=at):
        pass
    run.refresh_from_db()


def test_preview_counts_and_changes_nothing_then_it_is_applied(run, approver, at):
    before = list(Verdict.objects.order_by("pk").values_list("cause", "verdict"))
    work(run, at)
    assert (run.state, run.total, run.judged, run.changed) == ("previewed", 5, 5, 4)
    assert [words.partition(" → ")[2] for words in run.moves] == ["service, GEO-GONE"]
    assert list(Verdict.objects.order_by("pk").values_list("cause", "verdict")) == before
    reclassification.apply_run(run=run, by=approver, at=at)
    work(run, at)
    assert (run.state, run.changed) == ("done", 4)
    found = list(Verdict.objects.order_by("pk").values_list("cause", "verdict", "machine_verdict"))
    assert found[0] == ("GEO-GONE", "resource", "service")
    assert found[1:4] == [("GEO-GONE", "service", "service")] * 3
    assert found[4][0] != "GEO-GONE"


def test_harvests_are_locked_before_verdicts_are_read(run, approver, at):
    work(run, at)
    reclassification.apply_run(run=run, by=approver, at=at)
    with CaptureQueriesContext(connection) as seen:
        reclassification.reclassify_batch(run_id=run.pk, at=at)
    texts = [query["sql"] for query in seen]
    locked = next(
        i for i, sql in enumerate(texts) if "diagnosis_logharvest" in sql and "FOR UPDATE" in sql
    )
    assert locked < next(
        i for i, sql in enumerate(texts) if "diagnosis_verdict" in sql and "machine_verdict" in sql
    )


def test_one_run_at_a_time(run, client, approver, at):
    client.force_login(approver)
    answer = client.post(reverse("diagnosis:reclassifications"), {"days": "7"}, follow=True)
    expected = (
        f"Run {run.pk} of {approver} is previewing. Wait until it has finished, or cancel it."
    )
    assert expected in answer.content.decode()
    assert Reclassification.objects.count() == 1
    work(run, at)
    second = reclassification.start_preview(since=at - timedelta(days=1), by=approver, at=at)
    with pytest.raises(reclassification.AlreadyRunning, match="previewing"):
        reclassification.apply_run(run=run, by=approver, at=at)
    reclassification.cancel_run(run=second, by=approver, at=at)
    reclassification.apply_run(run=run, by=approver, at=at)
    with pytest.raises(reclassification.AlreadyRunning, match="applying"):
        reclassification.start_preview(since=at, by=approver, at=at)


@pytest.mark.django_db(transaction=True)
def test_of_six_previews_at_once_one_begins(approver, at):
    def start(_):
        try:
            reclassification.start_preview(since=at, by=approver, at=at)
        except reclassification.AlreadyRunning:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(start, range(6))) == 1
    assert Reclassification.objects.count() == 1


def test_killed_batch_leaves_nothing_and_is_done_again(run, approver, at, monkeypatch):
    work(run, at)
    reclassification.apply_run(run=run, by=approver, at=at)
    reclassification.reclassify_batch(run_id=run.pk, at=at)
    real, left = reclassification.store_verdicts, [1]

    def killed(*given, at):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        real(*given, at=at)

    monkeypatch.setattr(reclassification, "store_verdicts", killed)
    with pytest.raises(KeyboardInterrupt):
        reclassification.reclassify_batch(run_id=run.pk, at=at)
    run.refresh_from_db()
    assert (run.judged, Verdict.objects.filter(cause="GEO-GONE").count()) == (2, 2)
    monkeypatch.undo()
    assert reclassification.continue_lost_runs(at=at + timedelta(seconds=60)) == 0
    assert reclassification.continue_lost_runs(at=at + timedelta(seconds=90)) == 1
    work(run, at)
    assert (run.state, run.judged, run.changed) == ("done", 5, 4)


def test_cause_before_the_excerpt_holds(run, approver, at):
    excerpt = LogExcerpt.objects.order_by("pk").last()
    Verdict.objects.filter(job=excerpt.harvest.job).update(
        cause="PY-TRACEBACK", machine_verdict="user"
    )
    excerpt.harvest.evidence.update(
        pattern="PY-TRACEBACK", role="symptom", category="experiment-code", service="python"
    )
    LogExcerpt.objects.filter(pk=excerpt.pk).update(first_offset=5000)
    work(run, at)
    assert run.changed == 4


def test_verdict_on_a_completed_job_is_withdrawn_unless_a_user_gave_it(run, approver, at):
    overridden, judged = Verdict.objects.order_by("pk")[:2]
    for verdict in (overridden, judged):
        Job.objects.filter(pk=verdict.job_id).update(state="completed", exit_code=0)
    noise = {**NEW, "role": "noise"}
    submit_change(known_error="GEO-GONE", values=noise, by=approver, at=at, reason="harmless")
    work(run, at)
    assert [move for move in run.moves if move.endswith(" → no verdict")] == [
        f"{judged.machine_verdict} → no verdict"
    ]
    assert Verdict.objects.count() == 5

    reclassification.apply_run(run=run, by=approver, at=at)
    work(run, at)
    assert run.state == "done"
    assert not Verdict.objects.filter(pk=judged.pk).exists()
    assert Verdict.objects.get(pk=overridden.pk).verdict == "resource"
    assert Event.objects.get(kind="verdict.withdrawn").target_id == str(judged.job_id)


def test_only_editors_may_and_a_page_shows_and_applies_it(run, client, shifter, approver, at):
    with pytest.raises(NotAllowed):
        reclassification.start_preview(since=at, by=shifter, at=at)
    client.force_login(approver)
    assert "0 of 5 verdicts judged" in client.get(run.get_absolute_url()).content.decode()
    work(run, at)
    assert "Apply to 4 jobs" in client.get(run.get_absolute_url()).content.decode()
    client.post(run.get_absolute_url(), {"do": "apply"})
    assert Reclassification.objects.get(pk=run.pk).state == "applying"
    client.post(run.get_absolute_url(), {"do": "cancel"})
    assert Reclassification.objects.get(pk=run.pk).state == "cancelled"
    assert client.post(reverse("diagnosis:reclassifications"), {"days": "0"}).status_code == 400
    client.post(reverse("diagnosis:reclassifications"), {"days": "7"})
    assert Reclassification.objects.count() == 2
