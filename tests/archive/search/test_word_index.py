"""The index of words is filled behind capture's back, whole and once,
whatever happens meanwhile.
"""

from datetime import date

import pytest
from django.db import connection

from apps.archive.domain.search import word_index, words
from apps.archive.domain.search.word_search import with_rare_words, with_words
from apps.archive.models import ArchivedJob, Blob, ScriptWords, WordIndex
from tests.archive.conftest import index_words
from tests.factories.archive import START, captured_job, store


def index():
    return index_words()


def with_word(word):
    return sorted(
        with_words(ArchivedJob.objects.all(), words.query_for(word)).values_list(
            "job_id", flat=True
        )
    )


@pytest.mark.django_db
def test_new_jobs_are_indexed_once():
    store(captured_job(1), captured_job(2, script=b"module load gromacs/2023.3\n"))

    assert word_index.jobs_waiting(at_most=10) == 2
    assert (index(), index()) == (2, 0)
    assert word_index.jobs_waiting(at_most=10) == 0
    assert with_word("gromacs/2023.3") == ["2"]
    assert with_word("--mem=4G") == ["1"]


@pytest.mark.django_db
def test_script_is_indexed_once_a_day():
    same = {"script": b"srun same\n"}
    store(
        captured_job(1, **same),
        captured_job(2, minutes=1, **same),
        captured_job(3, minutes=24 * 60, **same),
    )
    index()

    assert [
        str(day) for day in ScriptWords.objects.values_list("day", flat=True).order_by("day")
    ] == [
        "2026-11-20",
        "2026-11-21",
    ]
    assert with_word("same") == ["1", "2", "3"]


@pytest.mark.django_db
@pytest.mark.parametrize("keep", [with_words, with_rare_words])
def test_words_are_found_among_those_of_days(keep):
    store(*(captured_job(i, minutes=i * 24 * 60, script=f"both {i}".encode()) for i in range(1, 5)))
    index()

    def found(*days):
        among = [words.day_word(date(2026, 11, day)) for day in days]
        return sorted(
            keep(ArchivedJob.objects.all(), ["'both'"], among=among).values_list(
                "job_id", flat=True
            )
        )

    assert found() == ["1", "2", "3", "4"]
    assert found(22) == ["2"]
    assert found(22, 24) == ["2", "4"]


@pytest.mark.django_db
def test_batches_break_off_and_go_on(monkeypatch):
    monkeypatch.setattr(word_index, "BATCH", 10)
    store(*(captured_job(i, script=f"word{i}".encode()) for i in range(1, 36)))

    assert word_index.index_batch(at=START) == 10
    with monkeypatch.context() as broken:
        broken.setattr(words, "words_of", lambda script: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            word_index.index_batch(at=START)
    assert word_index.jobs_waiting(at_most=100) == 25
    assert index() == 25
    assert ScriptWords.objects.count() == 35


@pytest.mark.django_db
def test_damaged_and_hostile_scripts_do_not_stop_it():
    store(
        captured_job(1, script=b"\xff\xfe \x00\x00 'a'\\ \xc3"),
        captured_job(2, script=b""),
        captured_job(3, script=b"a" * 3_000_000),
        captured_job(4, script=b"damaged"),
        captured_job(5, script=b"fine"),
    )
    Blob.objects.filter(jobs_by_script__job_id="4").update(data=b"no")

    assert index() == 5
    assert with_word("fine") == ["5"]
    assert with_word("damaged") == []


@pytest.mark.django_db(transaction=True)
def test_job_committed_late_is_not_passed_over():
    """Its number is lower than that of a job which is indexed already."""
    store(captured_job(1, script=b"first"))
    columns = ", ".join(
        f'"{f.column}"' for f in ArchivedJob._meta.concrete_fields if f.name not in ("id", "job_id")
    )
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO archive_archivedjob (job_id, {columns}) SELECT 'late', "
                f"{columns} FROM archive_archivedjob"
            )
        store(captured_job(3, script=b"third"))
        for _ in range(2):
            assert word_index.index_for(seconds=30, at=START) == 0
        assert with_word("third") == []
        other.commit()
    finally:
        other.close()
    index()

    assert with_word("third") == ["3"]
    assert with_word("first") == ["1", "late"]
    assert WordIndex.objects.get().indexed_to == ArchivedJob.objects.order_by("-pk").first().pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("where", ["another database", "another table", "what only reads jobs"])
def test_transactions_that_write_no_jobs_are_not_waited_for(where):
    other = connection.copy()
    if where == "another database":
        other.settings_dict["NAME"] = "postgres"
    statement = {
        "another database": "SELECT pg_current_xact_id()",
        "another table": (
            "INSERT INTO archive_wordindex (id, indexed_to, goal, goal_waits_for) VALUES (2, 0, "
            "0, '[]')"
        ),
        "what only reads jobs": "SELECT pg_current_xact_id(), count(*) FROM archive_archivedjob",
    }[where]
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(statement)
        store(captured_job(1, script=b"first"))
        assert word_index.index_for(seconds=30, at=START) == 1
    finally:
        other.rollback()
        other.close()


@pytest.mark.django_db
def test_content_that_is_deleted_takes_its_words_with_it():
    store(captured_job(1, script=b"gone"))
    index()
    script = ArchivedJob.objects.get().script
    ArchivedJob.objects.all().delete()
    script.delete()

    assert ScriptWords.objects.count() == 0
