"""A real Elasticsearch for the tests of mark `elasticsearch`,
started once a session as `bin/es-up` does.

A test module that asks for the fixture `elasticsearch` says so with

    pytestmark = [pytest.mark.elasticsearch, pytest.mark.xdist_group("elasticsearch")]
"""

import json
import os
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.elasticsearch import Elasticsearch, fetch
from dev.messages import SetupError
from dev.processes import free_port, guard


class ElasticsearchServer:
    """A running server, and how tests ask it and do it harm."""

    def __init__(self, server: Elasticsearch) -> None:
        self._server = server
        self.url = server.url
        self.host = f"127.0.0.1:{server.port}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Ask it without any client."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """Return what an index, alias or pattern holds, by id."""
        self.call("POST", f"/{index}/_refresh")
        query = {"size": 500, "sort": ["_doc"], "query": {"match_all": {}}}
        documents = {}
        page = self.call("POST", f"/{index}/_search?scroll=1m", query)
        while hits := page["hits"]["hits"]:
            for hit in hits:
                assert hit["_id"] not in documents, f"{hit['_id']} is there twice"
                documents[hit["_id"]] = hit["_source"]
            page = self.call(
                "POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]}
            )
        return documents

    def clear(self) -> None:
        """Drop every index and template of the tests."""
        for index in self.call("GET", "/_cat/indices?format=json&h=index"):
            self.call("DELETE", f"/{index['index']}")
        # In this order: the second uses the first.
        for kind in (
            "index_template",
            "component_template",
        ):
            for template in self.call("GET", f"/_{kind}")[f"{kind}s"]:
                if template["name"].startswith("opsportal-"):
                    self.call("DELETE", f"/_{kind}/{template['name']}")

    def kill(self) -> None:
        """kill -9, as a power cut for one process would."""
        os.kill(self._server.pid(), signal.SIGKILL)
        while self._server.pid():
            time.sleep(0.01)

    def start(self) -> None:
        self._server.start()

    @contextmanager
    def configured(self, **settings: str) -> Iterator[None]:
        """Run it with more settings, dots written as two underscores; then as before."""
        more = {name.replace("__", "."): value for name, value in settings.items()}
        replace(self._server, settings=more).start()
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it hang, connections and all, as a machine does that swaps; then it goes on."""
        pid = self._server.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def elasticsearch() -> Iterator[ElasticsearchServer]:
    """A real Elasticsearch. A host that cannot run it skips the test; with CI=true it fails."""
    try:
        fetch()
    except SetupError as error:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"elasticsearch: {error}")
    directory = Path(tempfile.mkdtemp(prefix="opsportal-elasticsearch-"))
    (directory / "run").mkdir()
    watchdog = guard(directory / "run", remove=directory)
    try:
        server = Elasticsearch(directory, port=free_port())
        server.start()
        yield ElasticsearchServer(server)
    finally:
        watchdog.communicate(timeout=60)
