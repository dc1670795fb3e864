"""Templates of the lines in logs: stored once per experiment, and counted by hour."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.models import Site
from apps.clusters.schedulers.base import JobState
from apps.jobs.models import Job
from apps.search.domain.line_totals import recount_dirty_hours, wrong_hours
from apps.search.domain.templates import (
    LogTemplates,
    TemplateLine,
    follow_experiments,
    store_templates,
)
from apps.search.models import JobTemplates, LineTemplate, ReadLogs, TemplateTotals
from tests.factories import clusters, people
from tests.factories import jobs as job_factory

AT = job_factory.AT

pytestmark = pytest.mark.django_db


def _lines(*texts: str) -> dict[int, TemplateLine]:
    return {hash_of(text): TemplateLine(text, "error" in text) for text in texts}


def hash_of(text: str) -> int:
    return (sum(text.encode()) * 2_654_435_761_001) % (1 << 64)


def _job(number: int, **fields: object) -> Job:
    cluster = clusters.cluster("alps")
    return job_factory.row(cluster, number, at=AT, **fields)


def test_templates_are_stored_once_per_experiment() -> None:
    nova, dune = people.nova(), people.dune()
    first = _job(1, experiment=nova, state=JobState.FAILED)
    second = _job(2, experiment=nova, state=JobState.COMPLETED)
    third = _job(3, experiment=dune, state=JobState.FAILED)
    store_templates(
        [
            LogTemplates(first, _lines("error: no disk", "start")),
            LogTemplates(second, _lines("start")),
            LogTemplates(third, _lines("start")),
        ],
        at=AT,
    )
    rows = LineTemplate.objects.order_by("text", "experiment__key")
    assert list(rows.values_list("text", "experiment__key", "names_error")) == [
        ("error: no disk", "NOVA", True),
        ("start", "DUNE", False),
        ("start", "NOVA", False),
    ]
    assert JobTemplates.objects.filter(failed=True).count() == 2

    store_templates([LogTemplates(first, _lines("start", "end"))], at=AT)
    texts = LineTemplate.objects.filter(pk__in=JobTemplates.objects.get(job=first).templates)
    assert set(texts.values_list("text", flat=True)) == {"start", "end"}
    assert LineTemplate.objects.filter(text="start").count() == 2


def test_hours_equal_a_recount_after_each_change() -> None:
    nova = people.nova()
    first = _job(1, experiment=nova, stage="reco", state=JobState.FAILED)
    second = _job(2, experiment=nova, stage="reco", state=JobState.COMPLETED)
    store_templates(
        [
            LogTemplates(first, _lines("error: no disk", "start")),
            LogTemplates(second, _lines("start")),
        ],
        at=AT,
    )
    assert TemplateTotals.objects.count() == 0
    assert recount_dirty_hours() == 1
    totals = TemplateTotals.objects.order_by("template__text")
    assert list(totals.values_list("template__text", "stage", "failed", "good")) == [
        ("error: no disk", "reco", 1, 0),
        ("start", "reco", 1, 1),
    ]
    assert list(ReadLogs.objects.values_list("experiment__key", "failed", "good")) == [
        ("NOVA", 1, 1)
    ]
    assert wrong_hours() == []

    TemplateTotals.objects.filter(template__text="start").update(good=7)
    assert wrong_hours() == [TemplateTotals.objects.latest("pk").hour]

    store_templates([LogTemplates(second, _lines("end"))], at=AT)
    assert wrong_hours() == []
    recount_dirty_hours()
    assert set(totals.all().values_list("template__text", "failed", "good")) == {
        ("error: no disk", 1, 0),
        ("start", 1, 0),
        ("end", 0, 1),
    }


def test_templates_follow_their_job_to_another_experiment() -> None:
    nova, dune = people.nova(), people.dune()
    job = _job(1, experiment=nova, state=JobState.FAILED)
    store_templates([LogTemplates(job, _lines("error: no disk"))], at=AT)
    Job.objects.filter(pk=job.pk).update(experiment=dune)

    assert follow_experiments(Job.objects.all(), at=AT) == 1
    assert follow_experiments(Job.objects.all(), at=AT) == 0

    (key,) = JobTemplates.objects.get().templates
    assert LineTemplate.objects.get(pk=key).experiment == dune
    recount_dirty_hours()
    assert list(ReadLogs.objects.values_list("experiment__key", "failed")) == [("DUNE", 1)]


def test_line_that_a_second_site_writes_within_the_hour_has_spread() -> None:
    one, two = (Site.objects.create(name=name) for name in ("FNAL", "RAL"))
    nova = people.nova()
    at_one = _job(1, experiment=nova, site=one, state=JobState.FAILED)
    at_two = _job(2, experiment=nova, site=two, state=JobState.FAILED)
    later = _job(3, experiment=nova, site=two, state=JobState.FAILED)
    store_templates([LogTemplates(at_one, _lines("a", "b", "c"))], at=AT)
    store_templates([LogTemplates(at_one, _lines("b", "c"))], at=AT + timedelta(minutes=10))
    store_templates([LogTemplates(at_two, _lines("b"))], at=AT + timedelta(minutes=30))
    store_templates([LogTemplates(later, _lines("c"))], at=AT + timedelta(minutes=61))

    spread = LineTemplate.objects.order_by("text").values_list("text", "spread_at")
    assert list(spread) == [("a", None), ("b", AT + timedelta(minutes=30)), ("c", None)]


def test_number_of_queries_does_not_grow_with_jobs() -> None:
    nova = people.nova()
    queries = []
    for count in (1, 20):
        jobs = [_job(100 * count + n, experiment=nova, state=JobState.FAILED) for n in range(count)]
        logs = [LogTemplates(job, _lines(f"line {job.pk}", "start")) for job in jobs]
        with CaptureQueriesContext(connection) as context:
            store_templates(logs, at=AT)
        queries.append(len(context))
    assert queries[0] == queries[1]
