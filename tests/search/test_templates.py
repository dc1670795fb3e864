"""Templates of the lines in logs: stored once per experiment, and counted by hour."""

import random
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.models import Site
from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.models import Job
from apps.search.domain.line_totals import recount_dirty_hours, wrong_hours
from apps.search.domain.templates import (
    LogTemplates,
    TemplateLine,
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


def test_counts_follow_a_job_that_is_corrected_and_moved() -> None:
    nova, dune = people.nova(), people.dune()
    job = _job(1, experiment=nova, stage="reco", state=JobState.FAILED)
    store_templates([LogTemplates(job, _lines("error: no disk"))], at=AT)
    recount_dirty_hours()

    later = AT + timedelta(hours=2)
    Job.objects.filter(pk=job.pk).update(
        experiment=dune, stage="merge", state=JobState.COMPLETED, ended_at=later
    )
    mark_dirty([hour_of(AT), hour_of(later)])  # as every correction does
    recount_dirty_hours()
    recount_dirty_hours()

    row = JobTemplates.objects.get()
    assert (row.failed, row.ended_at) == (False, later)
    (key,) = row.templates
    assert LineTemplate.objects.get(pk=key).experiment == dune
    assert list(
        TemplateTotals.objects.values_list("hour", "template", "stage", "failed", "good")
    ) == [(hour_of(later), key, "merge", 0, 1)]
    assert list(ReadLogs.objects.values_list("experiment__key", "failed", "good")) == [
        ("DUNE", 0, 1)
    ]
    assert wrong_hours() == []


def test_templates_are_stored_for_the_experiment_that_the_job_has_by_then() -> None:
    nova, dune = people.nova(), people.dune()
    as_claimed = _job(1, experiment=nova, state=JobState.FAILED)
    Job.objects.update(experiment=dune, state=JobState.COMPLETED)
    store_templates([LogTemplates(as_claimed, _lines("start"))], at=AT)
    assert LineTemplate.objects.get().experiment == dune
    assert JobTemplates.objects.get().failed is False


def test_templates_of_a_deleted_experiment_do_not_stop_the_count() -> None:
    nova = people.nova()
    first = _job(1, experiment=nova, state=JobState.FAILED)
    store_templates([LogTemplates(first, _lines("a", "b"))], at=AT)
    LineTemplate.objects.filter(text="a").delete()
    recount_dirty_hours()
    assert list(TemplateTotals.objects.values_list("template__text", flat=True)) == ["b"]


def test_line_that_a_second_site_writes_within_the_hour_has_spread() -> None:
    one, two = (Site.objects.create(name=name) for name in ("FNAL", "RAL"))
    nova = people.nova()
    minutes = {1: 0, 2: 10, 3: 30, 4: 61, 5: 5}
    sites = {1: one, 2: one, 3: two, 4: two, 5: None}
    jobs = {}
    for number, minute in minutes.items():
        jobs[number] = _job(
            number,
            experiment=nova,
            site=sites[number],
            state=JobState.FAILED,
            ended_at=AT + timedelta(minutes=minute),
        )
    read = ((1, "abc"), (2, "bc"), (3, "b"), (4, "c"), (5, "d"), (2, "bcd"))
    for number, texts in read:
        store_templates([LogTemplates(jobs[number], _lines(*texts))], at=AT)

    spread = LineTemplate.objects.order_by("text").values_list("text", "spread_at")
    assert list(spread) == [
        ("a", None),
        ("b", AT + timedelta(minutes=30)),
        ("c", None),
        ("d", None),  # the site of the first job is not known
    ]


def test_first_job_is_the_earliest_in_whatever_order_logs_are_read() -> None:
    nova = people.nova()
    for number, hours in ((1, 5), (2, 1), (3, 3)):
        job = _job(
            number,
            experiment=nova,
            state=JobState.FAILED,
            ended_at=AT + timedelta(hours=hours),
        )
        store_templates([LogTemplates(job, _lines("start"))], at=AT)
    assert LineTemplate.objects.get().first_seen_at == AT + timedelta(hours=1)


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


@pytest.mark.parametrize("seed", range(4))
def test_batches_are_stored_as_single_lines_would_be(seed: int) -> None:
    """Jobs of several experiments and sites, in batches, some read again with other lines."""
    chooser = random.Random(seed)
    experiments = [people.nova(), people.dune(), None]
    sites = [Site.objects.create(name=name) for name in ("FNAL", "RAL")]
    texts = [f"text {letter}" for letter in "abcdefgh"]
    jobs = []
    for number in range(12):
        jobs.append(
            _job(
                number,
                experiment=chooser.choice(experiments),
                site=chooser.choice([*sites, None]),
                state=JobState.FAILED,
                ended_at=AT + timedelta(minutes=chooser.randrange(150)),
            )
        )
    lines_by_job: dict[int, set[str]] = {}
    ends: dict[tuple[int | None, str], datetime] = {}
    for _ in range(5):
        logs = []
        for job in chooser.sample(jobs, 5):
            chosen = chooser.sample(texts, 3)
            logs.append(LogTemplates(job, _lines(*chosen)))
            lines_by_job[job.pk] = set(chosen)
            for text in chosen:
                key = (job.experiment_id, text)
                ends[key] = min(ends.get(key, job.ended_at), job.ended_at)
        store_templates(logs, at=AT)

    templates = LineTemplate.objects.in_bulk()
    for row in JobTemplates.objects.select_related("job"):
        of_job = [templates[key] for key in row.templates]
        assert row.templates == sorted(row.templates)
        assert {template.text for template in of_job} == lines_by_job[row.job_id]
        assert {template.experiment_id for template in of_job} == {row.job.experiment_id}
    stored = {(row.experiment_id, row.text): row.first_seen_at for row in templates.values()}
    assert stored == ends
    for row in templates.values():
        is_near = row.spread_at and abs(row.spread_at - row.first_seen_at) <= timedelta(hours=3)
        assert row.spread_at is None or (row.first_site_id and is_near)
