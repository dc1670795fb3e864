"""The Elasticsearch sink against a real server."""

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest

from apps.archive.sinks.base import SinkUnavailable
from apps.archive.sinks.registry import open_sink
from capture.wire.entry import CapturedJob
from tests.archive.sinks.elasticsearch_reading import job_of
from tests.contracts.sink import BYTES, FACTS, Harness, SinkContract, a_job, packed
from tests.programs.relay import Relay

pytestmark = [pytest.mark.elasticsearch, pytest.mark.xdist_group("elasticsearch")]


@pytest.fixture
def server(elasticsearch):
    yield elasticsearch
    elasticsearch.clear()


@pytest.fixture
def relay(server):
    host, port = server.host.split(":")
    relay = Relay((host, int(port)))
    yield relay
    relay.close()


class ElasticsearchHarness:
    keeps = (*BYTES, *FACTS)
    bad_job = a_job("9" * 600)

    def __init__(self, server, relay, options):
        self._server = server
        self.url = f"elasticsearch://127.0.0.1:{relay.port}/jobs{options}"
        self.other_url = f"elasticsearch://127.0.0.1:{relay.port}/others{options}"
        self.away = relay.cut

    def kept(self) -> list[CapturedJob]:
        return [job_of(document) for document in self._server.documents("jobs*").values()]


class TestOneIndex(SinkContract):
    @pytest.fixture
    def harness(self, server, relay) -> Harness:
        return ElasticsearchHarness(server, relay, "?replicas=0")


class TestIndexForEachPeriod(SinkContract):
    @pytest.fixture
    def harness(self, server, relay) -> Harness:
        return ElasticsearchHarness(
            server, relay, "?replicas=0&period=monthly&codec=best_compression"
        )


@pytest.fixture
def sink(server):
    with closing(open_sink(f"elasticsearch://{server.host}/jobs?replicas=0")) as sink:
        yield sink


def found(server, query) -> set[str]:
    server.call("POST", "/jobs/_refresh")
    answer = server.call("POST", "/jobs/_search", {"query": {"query_string": {"query": query}}})
    return {hit["_source"]["job_id"] for hit in answer["hits"]["hits"]}


def test_jobs_are_found_by_what_is_in_them(server, sink):
    assert not sink.write(
        [
            a_job(
                1,
                script=b"#!/bin/sh\n#SBATCH --mem=4G\nmodule load gromacs/2023.3\n",
                user="ana",
                stage="sim",
            ),
            a_job(
                2,
                script=b"#!/bin/sh\n# caf\xe9 gromacs/2019\n",
                environment=packed(b"PARTITION=long", b"A.B=x=y"),
            ),
        ]
    )

    assert found(server, r'script:"gromacs\/2023.3"') == {"1"}
    assert found(server, 'script:"--mem=4G"') == {"1"}
    assert found(server, "script:gromacs") == {"1", "2"}
    assert found(server, "user:ana AND stage:sim AND submitted_at:[2026-11-20 TO 2026-11-21]") == {
        "1"
    }
    assert found(server, "environment.PARTITION:long") == {"2"}
    assert found(server, 'environment.A.B:"x=y"') == {"2"}
    assert found(server, "environment:long") == {"2"}


def test_words_found_are_marked(server, sink):
    sink.write(
        [
            a_job(1, script=b"#!/bin/sh\nmodule load gromacs/2023.3\n", user="ana"),
            a_job(2, user="ana"),
        ]
    )
    server.call("POST", "/jobs/_refresh")
    query = {
        "query": {
            "bool": {
                "must": [{"match_phrase": {"script": "gromacs/2023.3"}}],
                "filter": [
                    {"term": {"user": "ana"}},
                    {"range": {"submitted_at": {"gte": "2026-11-20"}}},
                ],
            }
        },
        "highlight": {"fields": {"script": {}}},
        "sort": [{"submitted_at": "desc"}],
        "_source": ["cluster", "job_id"],
    }

    (hit,) = server.call("POST", "/jobs/_search", query)["hits"]["hits"]

    assert hit["_source"] == {"cluster": "alps", "job_id": "1"}
    assert "<em>gromacs/2023.3</em>" in hit["highlight"]["script"][0]


def test_variables_do_not_grow_the_mapping(server, sink):
    before = None
    for number in range(3):
        assert not sink.write(
            [a_job(number, environment=packed(*(b"V%d_%d=1" % (number, i) for i in range(2000))))]
        )
        mapping = server.call("GET", "/jobs/_mapping")
        assert before in {None, json.dumps(mapping)}
        before = json.dumps(mapping)


def test_hostile_environment_is_kept(server, sink):
    environment = packed(
        b"=",
        b" = ",
        b"..=x",
        b"L" * 40_000 + b"=1",
        b"V=" + b"\xc3\xa9" * 40_000,
        b"A\n\xff=1",
        b"A=1",
    )

    assert not sink.write([a_job(1, environment=environment, name="n" * 40_000, user="u" * 40_000)])

    (document,) = server.documents("jobs").values()
    assert job_of(document).environment == environment


def test_index_is_set_up_by_the_options(server):
    url = f"elasticsearch://{server.host}/jobs?replicas=0&shards=2&codec=best_compression&period=yearly"
    with closing(open_sink(url)) as sink:
        sink.write(
            [a_job(1, submitted_at=datetime(year, 7, 1, tzinfo=UTC)) for year in (2025, 2026)]
        )

    indices = server.call("GET", "/jobs/_settings")
    assert sorted(indices) == ["jobs-2025.01.01", "jobs-2026.01.01"]
    for index in indices.values():
        settings = index["settings"]["index"]
        assert (settings["number_of_replicas"], settings["number_of_shards"]) == ("0", "2")
        assert settings["codec"] == "best_compression"


def test_own_settings_are_added_by_a_component_template(server, sink):
    custom = "/_component_template/opsportal-jobs@custom"
    server.call("PUT", custom, {"template": {"settings": {"index.refresh_interval": "17s"}}})
    sink.write([a_job(1)])

    settings = server.call("GET", "/jobs/_settings")["jobs"]["settings"]["index"]

    assert settings["refresh_interval"] == "17s"


@pytest.mark.parametrize("options", ["ilm=keep", "period=monthly&retention=30"])
def test_policy_that_the_server_does_not_take_holds_everything_up(server, options):
    """This server has no lifecycle policies at all."""
    with closing(open_sink(f"elasticsearch://{server.host}/jobs?{options}")) as sink:
        for _ in range(2):
            with pytest.raises(
                SinkUnavailable, match=r"the index cannot be set up: .*(lifecycle|_ilm)"
            ):
                sink.write([a_job(1)])


@pytest.mark.parametrize("block", ["read_only_allow_delete", "write", "read_only"])
def test_index_that_may_not_be_written_to_is_no_fault_of_the_jobs(server, sink, block):
    """The first is what a disk over its flood stage sets."""
    sink.write([a_job(1)])
    server.call("PUT", "/jobs/_settings", {f"index.blocks.{block}": True})
    try:
        for _ in range(2):
            with pytest.raises(SinkUnavailable, match=r"index \[jobs\] blocked"):
                sink.write([a_job(2), a_job(3)])
    finally:
        server.call("PUT", "/jobs/_settings", {f"index.blocks.{block}": None})

    assert not sink.write([a_job(2), a_job(3)])
    assert len(server.documents("jobs")) == 3


def test_index_that_may_not_be_made_is_no_fault_of_the_jobs(server, sink):
    server.call("PUT", "/_cluster/settings", {"persistent": {"cluster.max_shards_per_node": 1}})
    server.call("PUT", "/other", {"settings": {"number_of_replicas": 0}})
    try:
        with pytest.raises(SinkUnavailable, match="maximum"):
            sink.write([a_job(1)])
    finally:
        server.call(
            "PUT", "/_cluster/settings", {"persistent": {"cluster.max_shards_per_node": None}}
        )
    assert not sink.write([a_job(1)])


def test_index_in_the_place_of_the_alias_is_no_fault_of_the_jobs(server, sink):
    """It was one index; then somebody gave it a period."""
    sink.write([a_job(1)])
    other = open_sink(f"elasticsearch://{server.host}/jobs?replicas=0&period=monthly")
    with closing(other), pytest.raises(SinkUnavailable, match="same name as the alias"):
        other.write([a_job(2)])


def test_job_that_does_not_fit_the_mapping_is_refused_with_the_reason(server):
    server.call("PUT", "/jobs", {"mappings": {"properties": {"user": {"type": "integer"}}}})
    with closing(open_sink(f"elasticsearch://{server.host}/jobs?setup=no")) as sink:
        refused = sink.write([a_job(1, user="7"), a_job(2, user="ana"), a_job(3, user="9")])

    assert set(refused) == {1}
    assert "failed to parse field [user] of type [integer]" in refused[1]
    assert {job_of(value).job_id for value in server.documents("jobs").values()} == {"1", "3"}


def test_job_larger_than_the_server_takes_is_refused_and_costs_nobody_else(server, sink):
    """Over a tenth of its memory it says that it is busy,
    and over 100 MB it ends the connection.
    """
    jobs = [
        a_job(1),
        a_job(2, script=b"x y\n" * 15_000_000),
        a_job(3),
        a_job(4, script=b"x" * 105_000_000),
        a_job(5),
    ]

    refused = sink.write(jobs)

    assert set(refused) == {1, 3}
    assert "max_coordinating_bytes" in refused[1]
    assert "the server takes 104,857,600 at once" in refused[3]
    assert {job_of(value).job_id for value in server.documents("jobs").values()} == {"1", "3", "5"}
