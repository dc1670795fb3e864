"""Three real nodes, of which one is killed and one is cut off while logs are indexed and searched:
no log is lost, and no answer is wrong.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from apps.accounts.models import User
from apps.archive.sinks.elasticsearch import connection as connection_module
from apps.search.domain.engine import chosen
from apps.search.domain.engine.base import Engine, SearchUnavailable
from apps.search.domain.engine.elasticsearch import log_candidates
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.indexing.fill import index_kept_logs
from apps.search.domain.indexing.new_logs import index_waiting, queue_words
from apps.search.domain.logs.index_state import indexes_of
from apps.search.domain.query.parser import parse
from apps.search.models import LogToIndex
from tests.programs.elasticsearch_cluster import Cluster, cluster
from tests.search.engine_contract import AT, SEED, found, generated_text
from tests.search.kept_logs import jobs, keep_logs

__all__ = ["cluster"]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.elasticsearch,
    pytest.mark.slow,
    # Not beside a browser, which gives up its requests when an interface of the host comes or goes.
    pytest.mark.xdist_group("browser"),
]
BASE = 60
#: Logs that are queued in each round.
ROUND = 25
ROUND_SECONDS = 0.2
#: The trouble lasts so long, and until searches were answered during it, but not for ever.
TROUBLE_SECONDS = 8
ANSWERS_IN_TROUBLE = 3
LONGEST_TROUBLE_SECONDS = 120


class Work:
    """Keeps, queues, indexes and searches logs, on a clock that runs a minute each round."""

    def __init__(self, engine: Engine, user: User) -> None:
        self.engine = engine
        self.user = user
        self.at = AT
        self.chance = random.Random(SEED)
        self.kept: set[int] = set()
        self.answers = 0
        self.named_failures = 0
        self.failed_rounds = 0

    def keep(self, count: int) -> set[int]:
        numbers = range(len(self.kept) + 1, len(self.kept) + count + 1)
        logs = []
        for row in jobs({number: {"at": AT - timedelta(hours=number)} for number in numbers}):
            logs.append((row, [b"common " + generated_text(self.chance).encode()]))
        keep_logs(logs, engine=PostgresEngine())
        keys = {row.pk for row, _ in logs}
        self.kept |= keys
        queue_words(keys, at=self.at)
        return keys

    def index(self) -> None:
        self.at += timedelta(minutes=6)
        before = LogToIndex.objects.count()
        index_waiting(seconds=2, at=self.at)
        self.failed_rounds += LogToIndex.objects.count() == before

    def search(self, base: set[int]) -> None:
        """Each answer has all logs that were there before, and none that was not kept."""
        try:
            hits = found(self.engine, parse("common in:log"), self.user)
        except SearchUnavailable:
            self.named_failures += 1
            return
        jobs = [hit.key for hit in hits]
        assert len(jobs) == len(set(jobs))
        assert base <= set(jobs) <= self.kept
        assert hits == sorted(hits, key=lambda hit: hit.order, reverse=True)
        self.answers += 1

    def finish(self) -> None:
        until = time.monotonic() + 60
        while LogToIndex.objects.exists():
            assert time.monotonic() < until
            self.index()


@pytest.fixture
def work(cluster: Cluster, settings, monkeypatch, shifter: User) -> Iterator[Work]:
    monkeypatch.setattr(connection_module, "REQUEST_SECONDS", 3.0)
    monkeypatch.setattr(log_candidates, "SEARCH_SECONDS", 2.0)
    settings.SEARCH_URL = f"elasticsearch://{cluster.hosts}/site?shards=3&replicas=1"
    chosen._elasticsearch.cache_clear()
    work = Work(chosen.engine_in_use(), shifter)
    yield work
    chosen._elasticsearch.cache_clear()
    cluster.start()
    cluster.wait_whole()
    cluster.clear()


def refresh(engine: Engine) -> None:
    for index in indexes_of(engine.name):
        engine.finish(index)


def run(command: str) -> str:
    output = StringIO()
    call_command("search", command, stdout=output)
    return output.getvalue()


@contextmanager
def killed(cluster: Cluster, node: int) -> Iterator[None]:
    """Kill a node in the middle of requests."""
    kill = threading.Timer(0.3, cluster.kill, [node])
    kill.start()
    yield
    kill.join()


TROUBLES = {"killed": killed, "cut off": Cluster.cut_off}


def test_with_two_of_three_nodes_gone_no_answer_is_partial(cluster: Cluster, work: Work) -> None:
    base = work.keep(BASE)
    work.finish()
    refresh(work.engine)
    cluster.wait_whole()
    for node in (1, 2):
        cluster.kill(node)
    for _ in range(3):
        work.search(base)
    work.keep(ROUND)
    work.index()
    # Each node has two of the three shards.
    assert work.answers == 0
    assert work.named_failures == 3
    assert LogToIndex.objects.count() == ROUND
    cluster.start()
    cluster.wait_whole()
    work.finish()
    refresh(work.engine)
    work.search(work.kept)
    assert work.answers == 1


@pytest.mark.parametrize("trouble", TROUBLES)
def test_one_of_three_nodes_is_gone_while_logs_are_indexed_and_searched(
    trouble: str, cluster: Cluster, work: Work
) -> None:
    base = work.keep(BASE)
    work.finish()
    index_kept_logs(batches=10, at=AT)
    refresh(work.engine)
    cluster.wait_whole()
    work.search(base)
    assert work.answers == 1

    with TROUBLES[trouble](cluster, 1):
        begun = time.monotonic()
        lasted = 0.0
        while lasted < TROUBLE_SECONDS or work.answers < 1 + ANSWERS_IN_TROUBLE:
            assert lasted < LONGEST_TROUBLE_SECONDS, "no search was answered"
            work.keep(ROUND)
            work.index()
            work.search(base)
            time.sleep(ROUND_SECONDS)
            lasted = time.monotonic() - begun
    answers = work.answers
    # Back again: the node catches up beside the work.
    cluster.start()
    for _ in range(5):
        work.keep(ROUND)
        work.index()
        work.search(base)
    cluster.wait_whole()
    work.finish()
    refresh(work.engine)

    assert "0 differences" in run("verify")
    work.search(work.kept)
    assert work.answers > answers
    in_postgresql = PostgresEngine()
    for text in ("error", '"libA.so"', "core* -failed", "/x=a.b/"):
        query = parse(f"{text} in:log")
        expected = found(in_postgresql, query, work.user)
        assert found(work.engine, query, work.user) == expected
    assert "index 2 is in use" in run("rebuild")
    work.search(work.kept)
    assert f"{len(work.kept)} logs compared, 0 differences" in run("verify")
    print(
        f"{trouble}: {len(work.kept)} logs, {work.answers} whole answers, "
        f"{work.named_failures} named as unavailable, {work.failed_rounds} rounds without progress"
    )
