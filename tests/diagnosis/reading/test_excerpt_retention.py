"""Excerpts and evidence are deleted after the time of the setting; verdicts stay,
and the page says what is gone.
"""

from datetime import timedelta

from apps.diagnosis.domain.reading import excerpt_retention
from apps.diagnosis.domain.reading.excerpt_retention import delete_expired
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest, Verdict


def test_expired_excerpts_go_with_their_evidence_in_batches(
    make_job, at, settings, monkeypatch, client, shifter, roots
):
    settings.LOG_EXCERPT_DAYS = 30
    monkeypatch.setattr(excerpt_retention, "BATCH", 2)
    made = [make_job(number, log="[FATAL] Auth failed\n") for number in (1, 2, 3, 4)]
    queue_harvests(job_pks=[job.pk for job in made], at=at)
    harvest_batch(at=at)
    *early, last = LogExcerpt.objects.order_by("pk").values_list("harvest__job", flat=True)
    LogHarvest.objects.filter(job=last).update(harvested_at=at + timedelta(days=1))
    late = at + timedelta(days=30, minutes=1)

    assert delete_expired(at=late - timedelta(minutes=2)) == 0
    assert delete_expired(at=late, batches=1) == 2
    assert delete_expired(at=late) == 1
    assert list(LogExcerpt.objects.values_list("harvest__job", flat=True)) == [last]
    assert set(Evidence.objects.values_list("harvest__job", flat=True)) == {last}
    assert Verdict.objects.count() == 4

    gone = next(job for job in made if job.pk == early[0])
    (roots / f"{gone.job_id}.out").unlink()
    client.force_login(shifter)
    page = client.get(f"/jobs/{gone.pk}/log/").content.decode()
    assert "no such file. The excerpt that was kept of it has been deleted." in page

    settings.LOG_EXCERPT_DAYS = 0
    assert delete_expired(at=late + timedelta(days=999)) == 0
