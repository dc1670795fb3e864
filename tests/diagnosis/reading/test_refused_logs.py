"""Logs that were refused: named in the verdict with the fix, and counted on the health page."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.utils import timezone

from apps.diagnosis import wording
from apps.diagnosis.domain.reading import refused_logs as refused_logs_module
from apps.diagnosis.domain.reading.refused_logs import refused_logs
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.enums import Refusal
from apps.diagnosis.models import FailureGroup, LogHarvest, Verdict
from apps.jobs.models import Job
from tests.pages import text_of


def harvest(job, at) -> Verdict:
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    return Verdict.objects.get(job=job)


def test_failure_outside_the_roots_is_a_group_of_its_own_that_names_the_fix(make_job, at):
    refused = harvest(make_job(1, log_path="/etc/passwd"), at)
    other = harvest(make_job(2, log_path="/etc/group"), at)
    silent = harvest(make_job(3, log="nothing\n"), at)

    assert refused.group.title == "Log refused: outside LOG_ROOTS"
    assert other.group == refused.group
    assert silent.group.title == "Unexplained: no known error matched"
    assert refused.summary.startswith("Log refused: outside LOG_ROOTS. Add the directory")
    fixes = [reason["text"] for reason in refused.reasons if "LOG_ROOTS" in reason["text"]]
    why = "/etc/passwd: outside the allowed log directories. "
    assert fixes == [why + wording.REFUSAL_FIXES[Refusal.ROOTS]]


def test_failure_that_the_scheduler_explains_keeps_its_verdict(make_job, at):
    verdict = harvest(make_job(log_path="/etc/passwd", state="timeout"), at)
    assert verdict.verdict == "resource"
    assert "refused" not in verdict.group.title
    assert any("LOG_ROOTS" in reason["text"] for reason in verdict.reasons)


def test_verdict_is_replaced_once_the_log_may_be_read(make_job, at, settings, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.out").write_text("---- FileOpenError BEGIN\n    [FATAL] Auth failed\n")
    job = make_job(log_path=str(elsewhere / "1.out"))
    assert harvest(job, at).group.title.startswith("Log refused")

    settings.LOG_ROOTS = [*settings.LOG_ROOTS, elsewhere]
    LogHarvest.objects.update(state="queued")
    harvest_log(harvest=LogHarvest.objects.get(), at=at)
    assert Verdict.objects.get().cause == "XRD-AUTH"


@pytest.mark.parametrize("refusal", Refusal)
def test_each_refusal_has_a_fix(refusal):
    assert wording.REFUSAL_FIXES[refusal]


def test_health_page_counts_them_and_links_to_exactly_these_jobs(client, make_job, shifter):
    now = timezone.now()
    for number in (1, 2):
        harvest(make_job(number, log_path="/etc/passwd", ended_at=now), now)
    harvest(make_job(3, log="nothing\n", ended_at=now), now)
    old = make_job(4, log_path="/etc/passwd", ended_at=now - timedelta(days=3))
    harvest(old, now)

    client.force_login(shifter)
    response = client.get("/health/")
    link = re.search(r'href="([^"]*log=path_not_allowed[^"]*)"[^>]*>2 jobs', response.text)
    assert "/etc/passwd: outside the allowed log directories" in text_of(response)
    listed = client.get(unescape(link[1])).text
    jobs = Job.objects.order_by("pk")
    assert [job.get_absolute_url() in listed for job in jobs] == [True, True, False, False]
    assert "opsportal_logs_refused 2.0" in client.get("/metrics").text


def test_no_refused_log_is_said_too(client, shifter):
    client.force_login(shifter)
    assert "No log was refused" in text_of(client.get("/health/"))


def test_count_ends_at_its_bound(make_job, at, monkeypatch):
    monkeypatch.setattr(refused_logs_module, "MOST_COUNTED", 2)
    for number in (1, 2, 3):
        harvest(make_job(number, log_path="/etc/passwd"), at)
    refused = refused_logs(at=at)
    assert (refused.count, refused.is_capped) == (2, True)
    assert FailureGroup.objects.count() == 1
