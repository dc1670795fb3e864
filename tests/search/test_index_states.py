"""The index of logs in Elasticsearch follows what is kept: filled, away, rebuilt, compared."""

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.accounts.models import User
from apps.diagnosis.domain.reading import excerpt_retention
from apps.diagnosis.models import LogExcerpt
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.models import Job
from apps.search.domain.engine import chosen
from apps.search.domain.engine.elasticsearch import engine as engine_module
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.indexing import new_logs
from apps.search.domain.indexing.fill import (
    check_index,
    index_kept_logs,
    is_being_built,
    rebuild_index,
)
from apps.search.domain.indexing.new_logs import LOGS_TO_INDEX, index_waiting, queue_words
from apps.search.domain.line_totals import recount_hour
from apps.search.domain.logs.index_state import indexes_of, serving_index
from apps.search.domain.query.parser import parse
from apps.search.domain.templates import LogTemplates, TemplateLine, store_templates
from apps.search.models import LogIndex, LogToIndex
from tests.factories import people
from tests.programs.elasticsearch_server import ElasticsearchServer
from tests.search.elasticsearch_engine import RefreshedEngine
from tests.search.engine_contract import found
from tests.search.kept_logs import job, keep_log

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.elasticsearch,
    pytest.mark.xdist_group("elasticsearch"),
]
AT = timezone.now().replace(minute=30) - timedelta(hours=2)


@pytest.fixture
def server(elasticsearch: ElasticsearchServer) -> Iterator[ElasticsearchServer]:
    elasticsearch.start()
    yield elasticsearch
    elasticsearch.clear()


@pytest.fixture
def engine(server, settings, monkeypatch) -> RefreshedEngine:
    """The engine that the settings name."""
    monkeypatch.setattr(chosen, "ElasticsearchEngine", RefreshedEngine)
    chosen._elasticsearch.cache_clear()
    settings.SEARCH_URL = f"elasticsearch://{server.host}/site?replicas=0"
    yield chosen.engine_in_use()
    chosen._elasticsearch.cache_clear()


def run(command: str) -> str:
    output = StringIO()
    call_command("search", command, stdout=output)
    return output.getvalue()


def verify() -> str:
    output = StringIO()
    with pytest.raises(CommandError, match="search rebuild"):
        call_command("search", "verify", stdout=output)
    return output.getvalue()


def in_postgresql_alone(count: int) -> list[Job]:
    rows = [job(number, at=AT - timedelta(days=20 * number)) for number in range(1, count + 1)]
    for row in rows:
        keep_log(row, b"line of %d" % row.pk, engine=PostgresEngine())
    return rows


def test_another_target_is_filled_newest_first_and_the_page_says_so(
    engine, browse, shifter: User
) -> None:
    rows = in_postgresql_alone(3)
    client = browse(shifter)
    page = client.get("/search/", {"q": "line in:log"}).content.decode()
    assert "still being indexed" in page
    assert index_kept_logs(batches=10, at=AT) == 3
    page = client.get("/search/", {"q": "line in:log"})
    assert "still being indexed" not in page.content.decode()
    assert [result.hit.key for result in page.context["page"].results] == [row.pk for row in rows]
    assert "0 differences" in run("verify")


def test_words_of_a_queued_log_are_found_and_those_of_an_expired_one_are_not(
    engine, settings, shifter: User
) -> None:
    rows = in_postgresql_alone(2)
    queue_words([row.pk for row in rows], at=AT)
    assert index_waiting(seconds=1, at=AT) == 2
    assert len(found(engine, parse("line"), shifter)) == 2

    settings.LOG_EXCERPT_DAYS = 30
    excerpt_retention.delete_expired(at=AT)
    assert LogToIndex.objects.count() == 1
    assert index_waiting(seconds=1, at=AT) == 1
    assert len(engine.jobs_after(0, 10)) == 1
    assert len(found(engine, parse("line"), shifter)) == 1


def test_while_it_is_away_logs_stay_queued_and_it_is_asked_less_and_less(
    engine, settings, monkeypatch, browse, shifter: User
) -> None:
    settings.SEARCH_URL = "elasticsearch://127.0.0.1:9/site"
    away = chosen.engine_in_use()
    rows = in_postgresql_alone(30)
    index_kept_logs_fails(AT)
    queue_words([row.pk for row in rows], at=AT)
    asked = 0
    write = engine_module.IndexWriter.write

    def counted(self, *arguments):
        nonlocal asked
        asked += 1
        return write(self, *arguments)

    monkeypatch.setattr(engine_module.IndexWriter, "write", counted)
    for second in range(0, 600, 10):
        index_waiting(seconds=5, at=AT + timedelta(seconds=second))
    assert 2 < asked < 10
    assert LOGS_TO_INDEX.unfinished().count() == 30
    assert not LogToIndex.objects.filter(attempts__gt=0).exists()

    index = serving_index(away.name)
    assert "Connection refused" in index.last_error
    assert "Connection refused" in browse(shifter).get("/health/").content.decode()
    LogIndex.objects.filter(pk=index.pk).update(months=["2026.11"])
    client = browse(shifter)
    assert "does not answer" in client.get("/search/", {"q": "line"}).content.decode()
    answer = client.get("/api/v1/search/", {"q": "line"})
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["detail"]
    assert client.get("/api/v1/search/", {"q": "line in:script"}).status_code == 200

    settings.SEARCH_URL = engine_url(engine)
    assert index_waiting(seconds=60, at=AT + timedelta(hours=1)) == 30
    assert len(found(engine, parse("line"), shifter)) == 30


def index_kept_logs_fails(at) -> None:
    with pytest.raises(Exception, match="does not answer"):
        index_kept_logs(batches=1, at=at)


def engine_url(engine) -> str:
    return f"{engine.name}?replicas=0"


def test_a_worker_that_is_killed_after_writing_loses_and_doubles_nothing(
    engine, monkeypatch, shifter: User
) -> None:
    rows = in_postgresql_alone(3)
    queue_words([row.pk for row in rows], at=AT)
    store = engine.store

    def killed(logs, **options):
        store(logs, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(engine, "store", killed)
        with pytest.raises(KeyboardInterrupt):
            index_waiting(seconds=1, at=AT)
    assert LogToIndex.objects.count() == 3
    assert index_waiting(seconds=1, at=AT + timedelta(minutes=1)) == 0
    assert index_waiting(seconds=60, at=AT + timedelta(minutes=10)) == 3
    assert len(found(engine, parse("line"), shifter)) == 3
    assert "0 differences" in run("verify")


def test_jobs_that_accounting_corrects_are_indexed_again(engine, shifter: User) -> None:
    member = people.person("dune-only", ("shifter", people.dune()))
    moved = job(1, at=AT, experiment=people.nova())
    claimed = job(2, at=AT, experiment=people.nova())
    for row in (moved, claimed):
        keep_log(row, b"text", engine=engine)
        store_templates([LogTemplates(row, {1: TemplateLine("text", False)})], at=AT)
    before = AT - timedelta(days=70)
    Job.objects.filter(pk=moved.pk).update(ended_at=before)
    Job.objects.filter(pk=claimed.pk).update(experiment=people.dune())
    hours = {moment.replace(minute=0, second=0, microsecond=0) for moment in (AT, before)}
    mark_dirty(hours)
    for hour in hours:
        recount_hour(hour=hour)
    assert index_waiting(seconds=60, at=timezone.now()) == 2
    assert [hit.at for hit in found(engine, parse("text"), shifter)] == [AT, before]
    assert [hit.key for hit in found(engine, parse("text"), member)] == [claimed.pk]
    assert "0 differences" in run("verify")


def test_rebuild_fills_a_new_index_beside_the_one_in_use(
    server, engine, monkeypatch, shifter: User
) -> None:
    rows = in_postgresql_alone(5)
    index_kept_logs(batches=10, at=AT)
    monkeypatch.setattr("apps.search.domain.indexing.fill.BATCH", 2)
    building = rebuild_index()
    assert index_kept_logs(batches=1, at=AT) == 2
    # Searches use the old one, and new logs are in both.
    late = job(9, at=AT)
    keep_log(late, b"late line", engine=engine)
    assert len(found(engine, parse("line"), shifter)) == 6
    assert rebuild_index() == building
    index_kept_logs(batches=10, at=AT)
    assert not is_being_built(building)
    assert [index.generation for index in indexes_of(engine.name)] == [2]
    assert len(found(engine, parse("line"), shifter)) == 6
    assert "0 differences" in run("verify")
    engine.clean_up()
    assert all("-g2-" in name for name in server.call("GET", "/site-*/_alias"))
    assert rows


def test_rebuild_repairs_an_index_that_was_lost(server, engine, shifter: User) -> None:
    in_postgresql_alone(3)
    index_kept_logs(batches=10, at=AT)
    server.clear()
    with pytest.raises(CommandError, match="no such index"):
        run("verify")
    late = job(9, at=AT)
    queue_words([late.pk], at=AT)
    assert index_waiting(seconds=1, at=AT) == 0
    assert "index 2 is in use" in run("rebuild")
    assert len(found(engine, parse("line"), shifter)) == 3
    assert index_waiting(seconds=1, at=AT + timedelta(minutes=10)) == 1
    assert "0 differences" in run("verify")


def test_an_index_with_the_layout_of_an_older_release_is_replaced(
    engine, monkeypatch, shifter: User
) -> None:
    in_postgresql_alone(3)
    index_kept_logs(batches=10, at=AT)
    monkeypatch.setattr(type(engine), "layout", 2)
    index_kept_logs(batches=10, at=AT)
    (index,) = indexes_of(engine.name)
    assert (index.generation, index.layout, index.complete) == (2, 2, True)
    assert len(found(engine, parse("line"), shifter)) == 3


def test_verify_names_each_difference(server, engine) -> None:
    missing, changed, gone, waiting, right = in_postgresql_alone(5)
    index_kept_logs(batches=10, at=AT)
    engine.store([log_of(missing)])
    keep_log(changed, b"other", engine=PostgresEngine())
    LogExcerpt.objects.filter(harvest__job=gone).delete()
    keep_log(waiting, b"new", engine=PostgresEngine())
    queue_words([waiting.pk], at=AT)
    report = verify()
    assert f"job {missing.pk}: is missing" in report
    assert f"job {changed.pk}: has other words" in report
    assert f"job {gone.pk}: is in the index, but no log is kept" in report
    assert "3 differences" in report
    assert f"job {right.pk}:" not in report


def log_of(row: Job):
    return new_logs.KeptLog(row.pk, row.ended_at, ())


def test_a_full_disk_keeps_logs_queued_and_stays_on_the_health_page(
    server, engine, browse, shifter: User
) -> None:
    rows = in_postgresql_alone(1)
    index_kept_logs(batches=10, at=AT)
    server.call("PUT", "/site-*/_settings", {"index.blocks.read_only_allow_delete": True})
    queue_words([rows[0].pk], at=AT)
    assert index_waiting(seconds=1, at=AT) == 0
    check_index(at=AT)
    assert "blocked" in browse(shifter).get("/health/").content.decode()
    assert len(found(engine, parse("line"), shifter)) == 1
    server.call("PUT", "/site-*/_settings", {"index.blocks.read_only_allow_delete": None})
    assert index_waiting(seconds=1, at=AT + timedelta(minutes=10)) == 1
    assert serving_index(engine.name).last_error == ""


def test_status_says_how_far_each_index_is(engine) -> None:
    in_postgresql_alone(3)
    index_kept_logs(batches=1, at=AT)
    rebuild_index()
    report = run("status")
    assert "index 1: in use, 3 logs added, older ones are being added" in report
    assert "index 2: being built, 0 logs added" in report
    assert "0 new logs wait" in report
