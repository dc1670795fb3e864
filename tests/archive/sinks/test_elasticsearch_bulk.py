"""How documents are sent in parts, against a server that is made up."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders
from elasticsearch import Elasticsearch
from elasticsearch.helpers import actions, streaming_bulk

from apps.archive.sinks.base import SinkUnavailable
from apps.archive.sinks.elasticsearch.bulk import Bulk, BulkRejected, Operation

BUSY = {
    "type": "es_rejected_execution_exception",
    "reason": "rejected execution of coordinating operation",
}


class Server:
    """Keeps ids, and answers as it is told: `verdict` of a document,
    `refuse` of a whole request.
    """

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.sizes: list[int] = []
        self.verdict: Callable[[int], tuple[int, dict]] = lambda _: (201, {})
        self.refuse: Callable[[list[int]], None] = lambda _: None

    def send(self, lines: bytes) -> dict:
        numbers = [json.loads(line)["id"] for line in lines.splitlines()]
        self.sizes.append(len(numbers))
        self.refuse(numbers)
        verdicts = [self.verdict(number) for number in numbers]
        self.kept += [
            number for number, (status, _) in zip(numbers, verdicts, strict=True) if status < 300
        ]
        items = [
            {"index": {"status": status, **({"error": error} if error else {})}}
            for status, error in verdicts
        ]
        return {"errors": any(status >= 300 for status, _ in verdicts), "items": items}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def waits():
    return []


@pytest.fixture
def bulk(server, waits):
    return Bulk(server.send, wait=waits.append)


def operations(count, *, size=0):
    return [Operation(number, b'{"id":%d%s}\n' % (number, b" " * size)) for number in range(count)]


def test_many_go_in_one_request(bulk, server, waits):
    assert bulk.write(operations(500)) == {}
    assert server.sizes == [500]
    assert waits == []


def test_later_copy_that_is_there_stays_and_is_no_refusal(bulk, server, waits):
    conflict = {
        "type": "version_conflict_engine_exception",
        "reason": "[1]: version conflict, current version [9]",
    }
    server.verdict = lambda number: (409, conflict) if number == 1 else (201, {})
    assert bulk.write(operations(3)) == {}
    assert (server.kept, server.sizes, waits) == ([0, 2], [3], [])


def test_large_ones_go_in_parts(bulk, server):
    assert bulk.write(operations(10, size=3_000_000)) == {}
    assert server.sizes == [2] * 5
    assert server.kept == list(range(10))


def test_busy_server_gets_smaller_requests_after_a_while_and_larger_ones_later(bulk, server, waits):
    def at_most_100(numbers):
        if len(numbers) > 100:
            raise BulkRejected(429, BUSY)

    server.refuse = at_most_100
    assert bulk.write(operations(500)) == {}
    assert server.sizes[:4] == [500, 250, 125, 62]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert server.kept == list(range(500))

    server.refuse = lambda _: None
    server.sizes.clear()
    for _ in range(5):
        bulk.write(operations(500))
    assert server.sizes[-1] == 500


def test_only_documents_that_were_not_taken_go_again(bulk, server, waits):
    tried = set()

    def verdict(number):
        if number % 7 or number in tried:
            return 201, {}
        tried.add(number)
        return 429, BUSY

    server.verdict = verdict
    assert bulk.write(operations(50)) == {}
    assert sorted(server.kept) == list(range(50))
    assert waits == [0.1]


def test_server_that_stays_busy_is_away(bulk, server, waits):
    server.verdict = lambda _: (429, BUSY)
    with pytest.raises(SinkUnavailable, match=r"too busy: .*rejected execution"):
        bulk.write(operations(50))
    assert 3 < sum(waits) <= 5
    assert waits == sorted(waits)


def test_slow_progress_is_progress(bulk, server, waits):
    """As long as something is taken, the rest is waited for."""
    server.verdict = lambda number: (201, {}) if number == len(server.kept) else (429, BUSY)
    assert bulk.write(operations(100)) == {}
    assert sum(waits) > 5
    assert server.kept == list(range(100))


@pytest.mark.parametrize("status", [400, 413])
def test_one_that_spoils_a_request_is_found(bulk, server, waits, status):
    def without_13(numbers):
        if 13 in numbers:
            raise BulkRejected(status, {"type": "bad", "reason": "unlucky"})

    server.refuse = without_13
    assert bulk.write(operations(100)) == {13: "bad: unlucky"}
    assert sorted({*server.kept, 13}) == list(range(100))
    assert len(server.kept) == 99
    assert waits == []


@pytest.mark.parametrize(
    "error",
    [
        {
            "type": "circuit_breaking_exception",
            "reason": "[parent] Data too large",
            "bytes_limit": 4_000,
        },
        {
            **BUSY,
            "reason": "[all_bytes=0, coordinating_operation_bytes=4001, max_coordinating_bytes=4000]",
        },
    ],
)
def test_one_that_can_never_fit_is_not_waited_for(bulk, server, waits, error):
    def refuse_1(numbers):
        if 1 in numbers:
            raise BulkRejected(429, error)

    server.refuse = refuse_1
    large = Operation(1, b'{"id":1}' + b" " * 5_000 + b"\n")
    refused = bulk.write([*operations(1), large, Operation(2, b'{"id":2}\n')])

    assert list(refused) == [1]
    assert sorted(server.kept) == [0, 2]
    assert waits == []


@pytest.mark.parametrize("status", [401, 403, 404, 500, 502, 503])
def test_other_answers_are_no_fault_of_the_documents(bulk, server, status):
    error = {
        "type": "some_exception",
        "reason": "why",
        "caused_by": {"type": "deeper", "reason": "because"},
    }
    server.verdict = lambda number: (status, error) if number == 3 else (201, {})
    with pytest.raises(SinkUnavailable, match="some_exception: why: because"):
        bulk.write(operations(5))

    def all_of_them(numbers):
        raise BulkRejected(status, error)

    server.refuse = all_of_them
    with pytest.raises(SinkUnavailable, match="some_exception: why"):
        bulk.write(operations(5))


def test_more_than_the_server_takes_is_not_sent(bulk, server):
    bulk.limit_bytes = 1000
    refused = bulk.write([*operations(1), Operation(1, b" " * 1001), *operations(30, size=60)[2:]])
    assert refused == {1: "1,001 bytes; the server takes 1,000 at once"}
    assert len(server.kept) == 29
    assert max(server.sizes) < 15


class HelperOfTheClient:
    """`streaming_bulk` with its own retries, in front of the same server:
    why the sink does not use it.

    It knows neither how large the refused request was nor what the server said, and repeats it as
    it was.
    """

    def __init__(self, server, waits, monkeypatch):
        monkeypatch.setattr(actions, "time", SimpleNamespace(sleep=waits.append))

        class Node(BaseNode):
            def perform_request(
                self, method, target, body=None, headers=None, request_timeout=None
            ):
                status, answer = 200, {}
                try:
                    answer = server.send(b"\n".join(body.splitlines()[1::2]))
                except BulkRejected as refusal:
                    status, answer = (
                        refusal.status,
                        {"error": refusal.error, "status": refusal.status},
                    )
                headers = HttpHeaders(
                    {"content-type": "application/json", "x-elastic-product": "Elasticsearch"}
                )
                meta = ApiResponseMeta(status, "1.1", headers, 0.0, self.config)
                return SimpleNamespace(meta=meta, body=json.dumps(answer).encode())

        self._client = Elasticsearch("http://127.0.0.1:9", node_class=Node, max_retries=0)

    def write(self, documents):
        """Return how many documents are reported as refused."""
        results = streaming_bulk(
            self._client,
            documents,
            raise_on_error=False,
            raise_on_exception=False,
            max_retries=8,
            initial_backoff=0.1,
            max_backoff=2.0,
        )
        return sum(not is_kept for is_kept, _ in results)


@pytest.fixture
def helper(server, waits, monkeypatch):
    return HelperOfTheClient(server, waits, monkeypatch)


def documents(count):
    return [{"_index": "jobs", "_source": {"id": number}} for number in range(count)]


def test_helper_of_the_client_never_sends_smaller_requests(helper, server):
    def at_most_100(numbers):
        if len(numbers) > 100:
            raise BulkRejected(429, BUSY)

    server.refuse = at_most_100
    assert helper.write(documents(500)) == 500
    assert server.sizes == [500] * 9
    assert server.kept == []


def test_helper_of_the_client_gives_up_although_documents_are_taken(helper, server):
    server.verdict = lambda number: (201, {}) if number == len(server.kept) else (429, BUSY)
    assert helper.write(documents(100)) == 91
    assert server.kept == list(range(9))


@pytest.mark.parametrize("status", [400, 413])
def test_helper_of_the_client_refuses_all_for_the_one_that_spoils_a_request(helper, server, status):
    def without_13(numbers):
        if 13 in numbers:
            raise BulkRejected(status, {"type": "bad", "reason": "unlucky"})

    server.refuse = without_13
    assert helper.write(documents(100)) == 100
    assert server.kept == []


def test_helper_of_the_client_waits_for_one_that_can_never_fit(helper, server, waits):
    def too_large(_):
        raise BulkRejected(
            429,
            {"type": "circuit_breaking_exception", "reason": "Data too large", "bytes_limit": 1},
        )

    server.refuse = too_large
    assert helper.write(documents(1)) == 1
    assert sum(waits) > 5
