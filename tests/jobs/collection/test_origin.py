"""From the captured environment to request and experiment, where the environment may lie."""

import pytest

from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.enums import Counted
from apps.jobs.models import DirtyHour
from apps.production.domain.content.model import RequestContent
from apps.production.domain.requests.drafts import create_draft
from tests.factories.jobs import AT, record, store


@pytest.fixture
def nova_request(nova, liaison):
    return create_draft(
        experiment=nova, content=RequestContent(title="Far detector"), by=liaison, at=AT
    )


def attach(job, key, stage="reco"):
    changed = attach_origin(origins={job.pk: (key, stage)}, at=AT)
    job.refresh_from_db()
    return changed


def test_attach_ties_the_job_to_its_request_and_marks_its_hour(alps, nova_request):
    (job,) = store(alps, record(1))
    recompute_dirty_hours(at=AT)
    assert attach(job, nova_request.key) == 1
    assert (job.request, job.request_key, job.stage) == (nova_request, nova_request.key, "reco")
    assert DirtyHour.objects.get(counts=Counted.JOBS).hour.hour == 11


def test_attach_again_changes_nothing(alps, nova_request):
    (job,) = store(alps, record(1))
    attach(job, nova_request.key)
    assert attach(job, "NOVA-9999", "other") == 0
    assert (job.request_key, job.stage) == (nova_request.key, "reco")


def test_environment_alone_gives_no_experiment(alps, nova_request):
    (job,) = store(alps, record(1, account="pool"))
    attach(job, nova_request.key)
    assert (job.claimed_key, job.request, job.experiment) == (nova_request.key, None, None)


def test_unknown_request_of_the_experiment_is_kept_as_text(alps, nova):
    (job,) = store(alps, record(1))
    attach(job, "NOVA-0999")
    assert (job.experiment, job.request_key, job.request) == (nova, "NOVA-0999", None)


def test_job_of_another_experiment_is_not_counted_for_the_request(alps, dune, nova_request):
    (job,) = store(alps, record(1, account="dune"))
    attach(job, nova_request.key)
    assert (job.claimed_key, job.request_key, job.request, job.experiment) == (
        nova_request.key,
        "",
        None,
        dune,
    )


@pytest.mark.parametrize("key", ["", "../etc", "x" * 65, "NOVA 1", "<b>", "NOVA\n", "\0"])
def test_key_that_is_none_is_left_out(alps, key):
    (job,) = store(alps, record(1))
    assert attach(job, key) == 0
    assert job.request_key == ""


def test_stage_may_hold_anything(alps):
    (job,) = store(alps, record(1))
    attach(job, "NOVA-0001", " <script>\0" + "x" * 100)
    assert job.stage == "<script>\ufffd" + "x" * 55
