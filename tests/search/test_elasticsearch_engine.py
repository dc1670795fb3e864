"""The search in Elasticsearch fulfils the contract; a moved or lost part is never a wrong answer."""

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest

from apps.accounts.models import User
from apps.diagnosis.models import LogExcerpt
from apps.jobs.models import ArchivedMonth, Job
from apps.search.domain.engine import expressions
from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.logs.index_state import serving_index
from apps.search.domain.query.parser import parse
from tests.factories import people
from tests.programs.elasticsearch_server import ElasticsearchServer
from tests.search.elasticsearch_engine import RefreshedEngine
from tests.search.engine_contract import AT, EngineContract, World, found
from tests.search.kept_logs import job, keep_log

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.elasticsearch,
    pytest.mark.xdist_group("elasticsearch"),
]


@pytest.fixture
def server(elasticsearch: ElasticsearchServer) -> Iterator[ElasticsearchServer]:
    elasticsearch.start()
    yield elasticsearch
    elasticsearch.clear()


@pytest.fixture
def engine(server: ElasticsearchServer) -> RefreshedEngine:
    return RefreshedEngine.from_url(f"elasticsearch://{server.host}/site?replicas=0")


class TestElasticsearchEngine(EngineContract):
    """What every engine does."""


def test_both_engines_give_the_same_hits(engine, shifter: User, monkeypatch) -> None:
    """`SEARCH_LOGS` and `SEARCH_QUESTIONS` are how many there are; each 20th is read, too."""
    # Of a busy machine, too, the answers count and not the seconds.
    monkeypatch.setattr(expressions, "BUDGET_SECONDS", 60.0)
    questions = int(os.environ.get("SEARCH_QUESTIONS", "30"))
    world = World(engine, jobs=int(os.environ.get("SEARCH_LOGS", "30")))
    in_postgresql = PostgresEngine()
    in_postgresql.store(world.logs)
    with_hits = 0
    for number, query in enumerate(world.queries(questions)):
        expected = found(in_postgresql, query, shifter)
        assert found(engine, query, shifter) == expected, str(query)
        if number % 20 == 0:
            assert world.expected(query) == expected, str(query)
        with_hits += bool(expected)
        if number % 100 == 99:
            print(f"{number + 1} questions agree, {with_hits} with hits")
    assert with_hits > questions // 4


def test_an_index_for_each_month_is_laid_out_by_the_settings(server, engine) -> None:
    keep_log(job(1, at=AT), b"new", engine=engine)
    keep_log(job(2, at=AT - timedelta(days=40)), b"old", engine=engine)
    settings = server.call("GET", "/site-logs-*/_settings")
    assert set(settings) == {"site-logs-g1-2026.10", "site-logs-g1-2026.11"}
    for index in settings.values():
        assert index["settings"]["index"]["number_of_replicas"] == "0"
        assert index["settings"]["index"]["sort"]["field"] == ["ended_at", "job"]
    (hit,) = server.call("GET", "/site-logs-g1-2026.11/_search")["hits"]["hits"]
    assert "_source" not in hit


def test_a_log_whose_job_ended_in_another_month_is_found_once(
    server, engine, shifter: User
) -> None:
    row = job(1, at=AT)
    keep_log(row, b"moved", engine=engine)
    before = AT - timedelta(days=60)
    Job.objects.filter(pk=row.pk).update(ended_at=before)
    assert found(engine, parse("moved"), shifter) == []
    row.refresh_from_db()
    keep_log(row, b"moved", engine=engine)
    (hit,) = found(engine, parse("moved"), shifter)
    assert hit.at == before
    assert server.call("GET", "/site-logs-*/_count")["count"] == 1


def test_a_job_without_experiment_that_is_claimed_is_found_by_its_members(
    engine, shifter: User
) -> None:
    member = people.person("nova-only", ("shifter", people.nova()))
    row = job(1, at=AT, experiment=None)
    keep_log(row, b"claimed", engine=engine)
    assert found(engine, parse("claimed"), member) == []
    Job.objects.filter(pk=row.pk).update(experiment=people.nova())
    assert len(found(engine, parse("claimed"), member)) == 1


def test_without_texts_in_the_query_only_jobs_with_kept_logs_are_found(
    engine, shifter: User
) -> None:
    row = job(1, at=AT)
    keep_log(row, b"x", engine=engine)
    assert len(found(engine, parse("in:log since:2020-01-01"), shifter)) == 1
    # The index is behind.
    LogExcerpt.objects.filter(harvest__job=row).delete()
    assert found(engine, parse("in:log since:2020-01-01"), shifter) == []


def test_months_whose_job_records_were_dropped_are_deleted(server, engine, shifter: User) -> None:
    keep_log(job(1, at=AT), b"text", engine=engine)
    keep_log(job(2, at=AT - timedelta(days=60)), b"text", engine=engine)
    month = (AT - timedelta(days=60)).date().replace(day=1)
    ArchivedMonth.objects.create(
        month=month, jobs=1, first_id=1, last_id=1, archived_at=AT, dropped_at=AT
    )
    engine.clean_up()
    assert serving_index(engine.name).months == ["2026.11"]
    assert list(server.call("GET", "/site-logs-*/_alias")) == ["site-logs-g1-2026.11"]
    assert len(found(engine, parse("text"), shifter)) == 1


def test_a_month_that_was_lost_is_an_error_and_not_created_again(
    server, engine, shifter: User
) -> None:
    row = job(1, at=AT)
    keep_log(row, b"text", engine=engine)
    server.call("DELETE", "/site-logs-g1-2026.11")
    with pytest.raises(SearchUnavailable, match="Only a part") as raised:
        found(engine, parse("text"), shifter)
    assert "no such index" in raised.value.reason
    with pytest.raises(SearchUnavailable):
        engine.check()
    with pytest.raises(SearchUnavailable, match="no such index"):
        keep_log(row, b"text", engine=engine)
    assert server.call("GET", "/_cat/indices/site-*?format=json") == []
    assert found(engine, parse("text in:script"), shifter) == []
