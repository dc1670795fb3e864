"""Lists of a stage: all its jobs, counted or not, although only days with such jobs are read."""

from datetime import timedelta

import pytest

from apps.diagnosis.filters import FailedJobs
from apps.diagnosis.models import Verdict
from apps.jobs.domain.statistics import stages
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.filters import ListedJobs
from apps.jobs.models import Job
from tests.factories.jobs import AT, failed, store
from tests.factories.verdicts import verdict

STAGES = {"1": "Reco", "2": "merge", "3": "reco", "4": "merge", "5": "reco.debug", "6": "reco"}


@pytest.fixture
def of_stages(alps, nova):
    ends = {number: AT - timedelta(days=2 * int(number)) for number in STAGES}
    store(alps, *[failed(int(number), ended_at=end) for number, end in ends.items()], at=AT)
    for number, stage in STAGES.items():
        Job.objects.filter(job_id=number).update(stage=stage)
        verdict(Job.objects.get(job_id=number), at=AT)


@pytest.mark.parametrize(("is_counted", "most_periods"), [(False, 20), (True, 20), (True, 1)])
def test_stage_has_all_its_jobs(of_stages, monkeypatch, is_counted, most_periods):
    monkeypatch.setattr(stages, "MOST_PERIODS", most_periods)
    if is_counted:
        recompute_dirty_hours(at=AT)
    expected = {"RECO": {"1", "3", "6"}, "merge": {"2", "4"}, "reco.debug": {"5"}, "other": set()}
    for stage, numbers in expected.items():
        jobs = ListedJobs({"stage": stage}, Job.objects.all()).qs
        assert {job.job_id for job in jobs} == numbers
        verdicts = FailedJobs({"stage": stage}, Verdict.objects.all()).qs
        assert {found.job.job_id for found in verdicts} == numbers


def test_days_without_the_stage_are_not_read(of_stages):
    recompute_dirty_hours(at=AT)
    others = Job.objects.exclude(stage__iexact="reco")
    assert not others.filter(stages.ended_with_stage("reco")).exists()
