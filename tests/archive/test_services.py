import hashlib
from datetime import timedelta

import pytest
from django.db import IntegrityError, OperationalError, ProgrammingError

from apps.accounts.models import Experiment
from apps.archive.domain.store import jobs as services
from apps.archive.domain.store.contents import damaged_blobs, newest_job, read_blob
from apps.archive.domain.store.jobs import train_dictionaries
from apps.archive.models import ArchivedJob, Blob, Dictionary
from apps.archive.sinks.base import SinkRefused, SinkUnavailable
from apps.archive.sinks.registry import open_sink
from apps.clusters.models import Cluster
from apps.core.models import Event
from tests.factories.archive import START, captured_job, store

pytestmark = pytest.mark.django_db


def test_store_keeps_every_byte_and_hash():
    job = captured_job(
        1, script=b"#!/bin/sh\n\xff\x00\n", environment=b"\x01\0\0\0A=\xe9\0", masked_names=("T",)
    )

    assert store(job) == 1

    row = ArchivedJob.objects.get()
    assert (read_blob(row.script), read_blob(row.environment)) == (job.script, job.environment)
    assert bytes(row.script.sha256) == hashlib.sha256(job.script).digest()
    assert (row.script_bytes, row.environment_bytes) == (len(job.script), len(job.environment))
    assert (row.job_id, row.submitted_at, row.captured_at) == (
        "1",
        job.submitted_at,
        job.captured_at,
    )
    assert (row.cluster.name, row.cluster.scheduler, row.masked_names) == ("alps", "slurm", ["T"])


def test_store_again_changes_nothing():
    assert store(captured_job(1), captured_job(2)) == 2
    assert store(captured_job(2), captured_job(3), captured_job(3)) == 1
    assert store() == 0
    assert ArchivedJob.objects.count() == 3


def test_equal_contents_are_kept_once():
    store(captured_job(1), captured_job(1, minutes=5), captured_job(1, cluster="jura"))

    assert ArchivedJob.objects.count() == 3
    assert Blob.objects.count() == 2
    assert set(Cluster.objects.values_list("name", flat=True)) == {"alps", "jura"}


def test_store_notes_request_experiment_and_publishes():
    nova = Experiment.objects.create(key="NOVA", name="NOvA")
    store(
        captured_job(1, request_key="NOVA-0231", stage="sim"),
        captured_job(2, request_key="???"),
        captured_job(3),
    )

    rows = {row.job_id: row for row in ArchivedJob.objects.all()}
    assert (rows["1"].request_key, rows["1"].stage, rows["1"].experiment) == (
        "NOVA-0231",
        "sim",
        nova,
    )
    assert (rows["2"].experiment, rows["3"].experiment) == (None, None)
    assert Event.objects.get(kind="archive.stored").data == {"job_ids": ["1", "2"]}


def test_dictionary_is_trained_in_time_and_all_stays_readable(monkeypatch):
    monkeypatch.setattr(services, "TRAIN_AT", 1)
    monkeypatch.setattr(services, "GROWTH", 1)
    contents = {
        str(i): f"#!/bin/bash\nmodule load gromacs/2023.3\nsrun ./a {i} {i * i}\n".encode() * 9
        for i in range(60)
    }
    sizes = []
    for start in range(0, 60, 20):
        store(*(captured_job(i, script=contents[str(i)]) for i in range(start, start + 20)))
        train_dictionaries(at=START)
        sizes.append(sum(len(blob.data) for blob in Blob.objects.filter(kind="script")))

    assert Dictionary.objects.filter(kind="script").count() == 3
    assert sizes[1] - sizes[0] < sizes[0]
    assert {
        row.job_id: read_blob(row.script) for row in ArchivedJob.objects.select_related("script")
    } == contents
    assert list(damaged_blobs()) == []


def test_no_dictionary_before_there_is_enough():
    store(captured_job(1))

    assert train_dictionaries(at=START) == []


def test_damaged_contents_do_not_hold_up_training(monkeypatch):
    monkeypatch.setattr(services, "TRAIN_AT", 1)
    store(
        *(
            captured_job(i, script=b"#!/bin/bash\nmodule load gromacs\nsrun ./a %d\n" % i * 9)
            for i in range(1, 30)
        )
    )
    Blob.objects.filter(pk=ArchivedJob.objects.get(job_id="1").script_id).update(data=b"x")

    assert [dictionary.kind for dictionary in train_dictionaries(at=START)] == ["script"]


def test_damage_is_found_and_named():
    for number in (1, 2, 3, 4):
        store(captured_job(number, environment=b"%d" % number, minutes=number))
    first, second, third, _ = (
        job.script for job in ArchivedJob.objects.select_related("script").order_by("pk")
    )
    Blob.objects.filter(pk=first.pk).update(data=b"nonsense")
    Blob.objects.filter(pk=second.pk).update(data=third.data)
    Blob.objects.filter(pk=third.pk).update(size_bytes=1)

    damage = {blob.pk: difference for blob, difference in damaged_blobs(cluster="alps")}

    assert damage.keys() == {first.pk, second.pk, third.pk}
    assert "cannot be decompressed" in damage[first.pk]
    assert "has the hash" in damage[second.pk]
    assert "was stored with 1" in damage[third.pk]
    assert list(damaged_blobs(cluster="jura")) == []


def test_newest_job_of_an_id_used_again():
    store(captured_job(1), captured_job(1, minutes=5), captured_job(1, cluster="jura", minutes=9))

    assert newest_job(cluster="alps", job_id="1").submitted_at == START + timedelta(minutes=5)
    assert newest_job(cluster="alps", job_id="1", submitted_at=START).submitted_at == START
    assert newest_job(cluster="alps", job_id="2") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("connection refused"), SinkUnavailable),
        (ProgrammingError("relation does not exist"), SinkUnavailable),
        (IntegrityError("null"), SinkRefused),
    ],
)
def test_store_sink_tells_an_absent_database_from_a_bad_job(error, expected, monkeypatch):
    def fail(**_):
        raise error

    monkeypatch.setattr("apps.archive.sinks.store.store_jobs", fail)
    with pytest.raises(expected, match=str(error)):
        open_sink("store:").write([captured_job(1)])
