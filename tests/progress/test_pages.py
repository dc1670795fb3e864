"""The progress panel of a request, and the home page's table of stages."""

from datetime import timedelta

import pytest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from apps.core.web.templatetags.formatting import percent
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.requests.drafts import create_draft
from apps.production.models import Attention, Request, Stage
from apps.progress.domain import stage_counts
from apps.progress.domain.stage_counts import production_now
from tests.factories.jobs import AT, failed, ran, record, store
from tests.jobs.test_pages import listed_at


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


@pytest.fixture
def request_of_nova(nova, liaison):
    stages = (StageContent(name="simulation", jobs=4), StageContent(name="reco"))
    return create_draft(
        experiment=nova,
        content=RequestContent(title="Rock muons", stages=stages),
        by=liaison,
        at=AT,
    )


def test_progress_counts_each_stage_and_only_jobs_of_the_experiment(
    alps, jura, dune, request_of_nova, as_liaison
):
    jobs = store(alps, record(1), record(2), failed(3), record(4, account="dune"), record(5))
    stages = ["simulation", "SIMULATION", "simulation", "simulation", ""]
    attach_origin(
        origins={
            job.pk: (request_of_nova.key, stage) for job, stage in zip(jobs, stages, strict=True)
        },
        at=AT,
    )
    recompute_dirty_hours(at=AT)
    answer = as_liaison.get(reverse("progress:request-progress", args=[request_of_nova.key]))
    stages_now = [stage.progress for stage in answer.context["progress"].stages]
    rows = [
        (
            r.stage,
            r.requested_jobs,
            r.sums.completed,
            r.sums.failed,
            percent(r.completed, r.requested_jobs),
        )
        for r in stages_now
    ]
    assert rows == [
        ("simulation", 4, 2, 1, "50 %"),
        ("reco", None, 0, 0, "–"),
        ("", None, 1, 0, "–"),
    ]
    row = stages_now[0]
    assert listed_at(as_liaison, row.sums.failed_address) == ["3"]
    assert sorted(listed_at(as_liaison, row.sums.completed_address)) == ["1", "2"]
    assert listed_at(as_liaison, stages_now[2].sums.completed_address) == ["5"]
    core_hours = (
        f'<a href="/jobs/{escape(row.sums.address)}">{row.sums.core_seconds / 3600:.0f}</a>'
    )
    assert core_hours in answer.content.decode()
    assert sorted(listed_at(as_liaison, row.sums.address)) == ["1", "2", "3"]


def test_progress_of_another_experiment_is_not_found(request_of_nova, client, other_liaison):
    client.force_login(other_liaison)
    assert (
        client.get(reverse("progress:request-progress", args=[request_of_nova.key])).status_code
        == 404
    )


def test_progress_answers_htmx_with_the_panel_alone(request_of_nova, as_liaison):
    address = reverse("progress:request-progress", args=[request_of_nova.key])
    assert b"<html" in as_liaison.get(address).content
    assert b"<html" not in as_liaison.get(address, headers={"HX-Request": "true"}).content


def test_production_now_is_empty_without_approved_requests(request_of_nova, liaison):
    assert production_now(liaison) == []
    context = {"production": [], "as_of": AT}
    assert "No approved requests" in render_to_string("progress/_production_now.html", context)


def test_production_now_shows_approved_requests_by_stage(
    alps, request_of_nova, liaison, other_liaison, approver
):
    ran(alps, request_of_nova.key, "simulation", failed(1))
    stamps = {
        "submitted_at": AT,
        "submitted_by": liaison,
        "approved_at": AT,
        "approved_by": approver,
    }
    Request.objects.filter(pk=request_of_nova.pk).update(state="queued", **stamps)
    rows = production_now(liaison)
    assert [(row.request.key, row.stage, row.sums.failed) for row in rows] == [
        (request_of_nova.key, "simulation", 1),
        (request_of_nova.key, "reco", 0),
    ]
    page = render_to_string("progress/_production_now.html", {"production": rows, "as_of": AT})
    assert page.count("Rock muons") == 1
    assert 'aria-label="simulation: 0 completed of ' in page
    assert 'aria-label="reco: 0 completed, 0 failed"' in page
    Stage.objects.filter(request=request_of_nova, name="reco").update(jobs=40)
    end = timezone.localdate() + timedelta(days=20)
    Request.objects.filter(pk=request_of_nova.pk).update(
        expected_end=end, deadline=end - timedelta(days=8)
    )
    page = render_to_string(
        "progress/_production_now.html", {"production": production_now(liaison), "as_of": AT}
    )
    assert 'aria-label="reco: 0 completed of 40, 0 failed"' in page
    assert f'{end:%-d %b %Y}<br><small class="late">8 days late</small>' in page
    assert production_now(other_liaison) == []


def test_production_now_shows_first_what_needs_attention(nova, liaison, approver, monkeypatch):
    monkeypatch.setattr(stage_counts, "MOST_REQUESTS", 2)
    running = []
    for title in ("first", "second", "third"):
        content = RequestContent(title=title, stages=(StageContent(name="reco"),))
        running.append(create_draft(experiment=nova, content=content, by=liaison, at=AT))
    stamps = {
        "submitted_at": AT,
        "submitted_by": liaison,
        "approved_at": AT,
        "approved_by": approver,
    }
    Request.objects.update(state="running", **stamps)
    first, second, third = running
    assert [row.request for row in production_now(liaison)] == [first, second]
    Attention.objects.create(request=third, kind="late", since=AT, words="late")
    assert [row.request for row in production_now(liaison)] == [third, first]
