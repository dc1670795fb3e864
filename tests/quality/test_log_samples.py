"""Logs of jobs that ended well: read once, a few of each stage,
and what is found in them counts.
"""

from apps.jobs.models import Job
from apps.quality.domain.log_samples import sample_logs
from apps.quality.models import LogLook
from tests.factories.quality import LATER

BAD = (
    "Begin processing\nHTTP error: 503 Service Unavailable: samweb.declareFile r17_s04.root\ndone\n"
)


def write_logs(directory, settings, *texts: str) -> None:
    settings.LOG_ROOTS = [directory]
    jobs = Job.objects.filter(stage="simulation").order_by("pk")
    for number, (job, text) in enumerate(zip(jobs, texts, strict=True)):
        path = directory / f"{number}.out"
        path.write_text(text)
        Job.objects.filter(pk=job.pk).update(log_path=str(path))


def test_known_error_in_a_job_that_ended_well_is_found(produced, tmp_path, settings):
    produced.all_good()
    write_logs(tmp_path, settings, BAD, "all well\n")
    quality = produced.judge()
    assert produced.said()[1, "log_errors", ""] == "failed"
    (one,) = [result for result in quality.open if result.check_name == "log_errors"]
    assert "1 of 2 logs of completed jobs contain a known error" in one.why
    assert "503 Service Unavailable" in one.why
    assert produced.settle() == "data_quality"


def test_log_that_cannot_be_read_is_not_known(produced):
    produced.all_good()
    produced.judge()
    assert produced.said()[1, "log_errors", ""] == "unknown"


def test_each_log_is_read_once_and_no_more_than_asked(produced, tmp_path, settings):
    produced.all_good()
    write_logs(tmp_path, settings, "well\n", "well\n")
    assert sample_logs(request=produced.fresh(), sample=1, at=LATER) == 2
    assert sample_logs(request=produced.fresh(), sample=1, at=LATER) == 0
    assert sample_logs(request=produced.fresh(), sample=5, at=LATER) == 2
    assert sample_logs(request=produced.fresh(), sample=0, at=LATER) == 0
    assert sorted(LogLook.objects.values_list("stage", "read")) == [
        ("generation", False), ("generation", False), ("simulation", True), ("simulation", True),
    ]  # fmt: skip
