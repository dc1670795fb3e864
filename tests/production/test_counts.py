"""What jobs report of files and events: idempotent, and equal to a recount;
and outputs that must be located.
"""

from collections import defaultdict

import pytest
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.outputs.counts import (
    QUANTITIES,
    count_reports,
    counts_of,
    is_located,
    mark_located,
    must_be_located,
    report_output,
)
from apps.production.models import OutputReport, Stage, StageCounts
from tests.factories.requests import AT, request_in


@pytest.fixture
def running(nova, liaison, approver):
    return request_in("running", by=liaison, experiment=nova, approver=approver)


amounts = st.one_of(st.none(), st.integers(0, 9))
steps = st.one_of(
    st.tuples(
        st.integers(0, 1), st.sampled_from("abc"), st.tuples(amounts, amounts, amounts, amounts)
    ),
    st.just("count"),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=st.lists(steps, max_size=12))
def test_counts_equal_a_recount_after_any_order(running, liaison, script):
    OutputReport.objects.all().delete()
    StageCounts.objects.all().delete()
    stages = list(running.stages.all())
    said: dict = defaultdict(dict)
    for step in script:
        if step == "count":
            count_reports(at=AT)
        elif any(value is not None for value in step[2]):
            counts = dict(zip(QUANTITIES, step[2], strict=True))
            report_output(stage=stages[step[0]], key=step[1], counts=counts, by=liaison, at=AT)
            said[stages[step[0]].pk][step[1]] = step[2]
    count_reports(at=AT)
    found = counts_of(running)
    assert set(found) == set(said)
    for pk, reports in said.items():
        columns = [
            [value for value in column if value is not None]
            for column in zip(*reports.values(), strict=True)
        ]
        assert [getattr(found[pk], name) for name in QUANTITIES] == [
            sum(c) if c else None for c in columns
        ]
        assert found[pk].reports == len(reports)
    assert count_reports(at=AT) == 0


def test_same_key_again_replaces_and_is_not_counted_twice(running, liaison, browse):
    url, client = reverse("api:stage-outputs", args=[running.key, 1]), browse(liaison)
    first = client.post(
        url, {"key": "4711", "files_out": 2, "events_out": 100}, content_type="application/json"
    )
    again = client.post(
        url, {"key": "4711", "files_out": 2, "events_out": 100}, content_type="application/json"
    )
    mended = client.post(url, {"key": "4711", "files_out": 3}, content_type="application/json")
    assert [answer.status_code for answer in (first, again, mended)] == [201, 200, 200]
    count_reports(at=AT)
    (counted,) = counts_of(running).values()
    assert (counted.files_out, counted.events_out, counted.reports, counted.counted_at) == (
        3,
        None,
        1,
        AT,
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"key": "a"},
        {"key": " ", "files_in": 1},
        {"key": "a", "files_in": -1},
        {"key": "a", "files_in": 10**14},
    ],
)
def test_nonsense_is_refused_and_nothing_kept(running, liaison, browse, body):
    url = reverse("api:stage-outputs", args=[running.key, 1])
    assert browse(liaison).post(url, body, content_type="application/json").status_code == 400
    assert not OutputReport.objects.exists()


def test_only_those_of_the_experiment_and_the_opg_report_while_jobs_may_run(
    running, nova, liaison, approver, admin, other_liaison, browse
):
    stage = running.stages.first()
    for by in (admin, other_liaison):
        with pytest.raises(NotAllowed):
            report_output(stage=stage, key="a", counts={"files_in": 1}, by=by, at=AT)
    url = reverse("api:stage-outputs", args=[running.key, 3])
    assert (
        browse(liaison).post(url, {"key": "a"}, content_type="application/json").status_code == 404
    )
    draft = request_in("draft", by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidTransition):
        report_output(
            stage=draft.stages.first(), key="a", counts={"files_in": 1}, by=liaison, at=AT
        )
    with pytest.raises(InvalidFields):
        mark_located(stage=stage, by=liaison, at=AT, note="x" * 501)


def test_stage_is_located_once(running, liaison, browse):
    Stage.objects.filter(request=running, position=0).update(arguments={"catalogued": True})
    first, second = Stage.objects.filter(request=running)
    assert (must_be_located(first), is_located(first), is_located(second)) == (True, False, True)
    url, client = reverse("api:stage-located", args=[running.key, 1]), browse(liaison)
    for note in ("nova.mc.generation", "elsewhere"):
        answer = client.post(url, {"note": note}, content_type="application/json")
        assert answer.json()["note"] == "nova.mc.generation"
    assert is_located(Stage.objects.get(pk=first.pk))
    assert [
        event.data["stage"] for event in events_of(running) if event.kind == "stage.located"
    ] == [1]
