"""Objects that are saved together are as `bulk_update` saves them."""

from datetime import timedelta

import pytest
from django.db import DataError, transaction

from apps.core.domain.bulk import update_objects
from apps.jobs.models import Job
from apps.production.models import QueueEntry
from tests.database import rolled_back
from tests.factories import clusters, requests
from tests.factories.jobs import unsaved_row

TEXTS = ["", "reco", 'a "b" {c}, \\d', "it's", "é\tx\ny", "NULL", "%s", "null"]


def values_of(model, names):
    return list(model.objects.order_by("pk").values(*names))


def check_equal(objects, names):
    model = type(objects[0])
    with rolled_back():
        model.objects.bulk_update(objects, names)
        expected = values_of(model, names)
    before = values_of(model, names)
    assert before != expected

    assert update_objects(objects, names) == len(objects)

    assert values_of(model, names) == expected


def test_texts_and_relations(at, nova, dune):
    cluster = clusters.cluster()
    jobs = Job.objects.bulk_create(
        unsaved_row(cluster, number, at=at, experiment=nova) for number in range(len(TEXTS))
    )
    for number, job in enumerate(jobs):
        job.stage = TEXTS[number]
        job.experiment = [dune, None][number % 2]
        job.max_memory_bytes = [None, 2**40][number % 2]
        job.started_at = at + timedelta(microseconds=number)
        job.name = "is not saved"
    check_equal(jobs, ["stage", "experiment", "max_memory_bytes", "started_at"])
    assert not Job.objects.filter(name="is not saved").exists()


def test_json_numbers_and_missing_values(at, nova, liaison, approver):
    people = {"by": liaison, "experiment": nova, "approver": approver}
    entries = [requests.request_in("queued", **people).queue_entry for _ in range(2)]
    first, second = entries
    first.terms = [{"key": 'a"b', "points": 1.5, "why": "{é}"}]
    first.hand_points, first.hand_at, first.ahead_of = -0.1, at, second.request
    second.terms = []
    second.days, second.size_by_limit = None, True
    check_equal(
        entries,
        ["terms", "hand_points", "hand_at", "ahead_of", "days", "size_by_limit", "points"],
    )
    assert set(QueueEntry.objects.values_list("ahead_of", flat=True)) == {second.pk, None}


def test_rows_that_are_gone_or_do_not_fit(at, nova):
    cluster = clusters.cluster()
    jobs = Job.objects.bulk_create(unsaved_row(cluster, number, at=at) for number in (1, 2))
    assert update_objects([], ["stage"]) == 0
    jobs[0].stage = "x" * 1000
    with pytest.raises(DataError), transaction.atomic():
        update_objects(jobs, ["stage"])
    jobs[0].stage = "reco"
    Job.objects.filter(pk=jobs[1].pk).delete()
    assert update_objects(jobs, ["stage"]) == 1
