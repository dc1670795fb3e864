"""The index of the words of logs: filled with each kept log, emptied with it, and made again."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from apps.archive.domain.search import words as word_rules
from apps.diagnosis.domain.reading import excerpt_retention
from apps.diagnosis.models import LogHarvest
from apps.search.domain.indexing import fill
from apps.search.domain.indexing.fill import index_kept_logs
from apps.search.domain.logs import index_state
from apps.search.domain.logs.words import CUT, words_of_log
from apps.search.models import LogIndex, LogWords
from tests.search.engine_contract import AT
from tests.search.kept_logs import job, keep_log

pytestmark = pytest.mark.django_db

LETTERS = st.text(alphabet="aZ09_-./+=\"' \n\té,;:\0\r()", max_size=200)


@given(LETTERS)
def test_each_word_of_each_line_is_indexed(text: str) -> None:
    log_words = words_of_log(text.encode())
    for line in text.split("\n"):
        assert {word[: word_rules.LONGEST_WORD] for word in word_rules.words_in(line)} <= log_words
    assert CUT not in log_words


def test_words_go_with_the_excerpt(settings) -> None:
    settings.LOG_EXCERPT_DAYS = 30
    old, new = job(1, at=AT - timedelta(days=40)), job(2, at=AT)
    keep_log(old, b"old")
    keep_log(new, b"new")
    assert LogWords.objects.count() == 2
    excerpt_retention.delete_expired(at=AT)
    assert list(LogWords.objects.values_list("job", flat=True)) == [new.pk]


def test_words_go_with_the_job() -> None:
    row = job(1, at=AT)
    keep_log(row, b"old")
    row.delete()
    assert not LogWords.objects.exists()


def test_logs_kept_before_are_indexed_newest_first_and_interrupted_anywhere(monkeypatch) -> None:
    monkeypatch.setattr(fill, "BATCH", 2)
    rows = [job(number, at=AT) for number in range(1, 6)]
    for row in rows:
        keep_log(row, b"line of %d" % row.pk)
    before = set(LogWords.objects.values_list("job", "words"))
    LogWords.objects.all().delete()

    assert index_state.serving_index("postgresql") is None
    assert index_kept_logs(batches=1, at=AT) == 2
    newest = LogHarvest.objects.order_by("-pk").values_list("job", flat=True)[:2]
    assert set(LogWords.objects.values_list("job", flat=True)) == set(newest)
    late = job(6, at=AT)
    keep_log(late, b"late")
    assert index_kept_logs(batches=10, at=AT) == 3
    assert index_state.serving_index("postgresql").complete
    assert set(LogWords.objects.exclude(job=late).values_list("job", "words")) == before
    assert index_kept_logs(batches=10, at=AT) == 0


def test_command_rebuilds_what_is_wrong() -> None:
    row = job(1, at=AT)
    keep_log(row, b"right")
    LogIndex.objects.create(complete=True)
    right = LogWords.objects.get().words
    LogWords.objects.update(words="")
    output = StringIO()
    with pytest.raises(CommandError, match="search rebuild"):
        call_command("search", "verify", stdout=output)
    assert f"job {row.pk}: has other words or another time" in output.getvalue()
    call_command("search", "rebuild", stdout=output)
    assert "index 2 is in use" in output.getvalue()
    call_command("search", "verify", stdout=output)
    assert "1 logs compared, 0 differences" in output.getvalue()
    assert LogWords.objects.get().words == right
