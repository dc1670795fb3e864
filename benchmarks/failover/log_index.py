"""Elasticsearch on three machines, with the archive and the index of logs, and searches in it."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from benchmarks import harvest
from benchmarks.failover.network import Machine, kernel_settings
from benchmarks.portal import wait_until
from dev.elasticsearch import Elasticsearch
from dev.postgres import clean_environment
from tests.upgrade.load import TIMEOUT_SECONDS, Answer, Load

PORT = 9200
HEAP_MB = 384
START_SECONDS = 500
#: More jobs than any run has.
MOST_JOBS = 60_000
#: Logs that are in the index before the first outage, each of which is searched for in turn.
FIRST_LOGS = 30
#: Every fourth number has a log that ends in a line with the number; none is a part of another.
_STEP = 4
_FIRST_NUMBER = 10_003
_LINE = "nothing that anybody knows {}"
#: What a search says that cannot be answered as a whole.
_NAMED = ("The index of logs does not answer", "Only a part of the index of logs answers")
LOG_SECONDS = 1.0


class Index:
    """Three nodes, of which each may be gone."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        kernel = kernel_settings("sysctl-elasticsearch.conf")
        for machine in machines:
            machine.configure(kernel)
            settings = {
                "node.name": machine.name,
                "discovery.type": "multi-node",
                "discovery.seed_hosts": ",".join(f"{node.address}:9300" for node in machines),
                "cluster.initial_master_nodes": ",".join(node.name for node in machines),
                "transport.port": "9300",
            }
            directory = machine.directory / "elasticsearch"
            server = Elasticsearch(directory, PORT, HEAP_MB, settings, machine.address)
            machine.serve("elasticsearch", server.prepare(), clean_environment())

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a portal that uses it for its archive, beside the store, and for logs."""
        hosts = ",".join(f"{machine.address}:{PORT}" for machine in self._machines)
        options = "?shards=3&replicas=1"
        return {
            "ARCHIVE_SINKS": f"store: elasticsearch://{hosts}/archive{options}",
            "SEARCH_URL": f"elasticsearch://{hosts}/site{options}",
        }

    def is_whole(self) -> bool:
        """Whether three nodes hold all copies of all shards."""
        health = self._ask("/_cluster/health") or {}
        return health.get("status") == "green" and health["number_of_nodes"] == 3

    def wait(self) -> None:
        """Wait until it has started. Raises TimeoutError."""
        wait_until(self.is_whole, timeout=START_SECONDS, step=0.5)

    def master(self) -> Machine:
        """Return the machine of the elected master."""
        name = (self._ask("/_cat/master?format=json") or [{}])[0].get("node")
        return next(machine for machine in self._machines if machine.name == name)

    def archived(self) -> Counter[str]:
        """Return how many documents the archive has of each job id."""
        by_job = {"jobs": {"terms": {"field": "job_id", "size": MOST_JOBS}}}
        self._ask("/archive/_refresh", {})
        answer = self._ask("/archive/_search", {"size": 0, "aggs": by_job}) or {}
        buckets = answer.get("aggregations", {}).get("jobs", {}).get("buckets", [])
        return Counter({bucket["key"]: bucket["doc_count"] for bucket in buckets})

    def _ask(self, path: str, body: object = None) -> Any:
        """Return the answer of the first node that gives one; None without any."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        for machine in self._machines:
            request = Request(f"http://{machine.address}:{PORT}{path}", data, headers)
            with (
                suppress(OSError, http.client.HTTPException),
                urlopen(request, timeout=5) as answer,
            ):
                return json.load(answer)
        return None


class LogSearches:
    """Lets jobs fail, whose logs are harvested and indexed, and searches them, until `stop`.

    Its answers are with those of `load`. `wrong` are the searches without exactly the one job they
    asked for, and without a message that says why.
    """

    def __init__(self, port: int, load: Load, directory: Path) -> None:
        self._port = port
        self._headers = load.cookies | load.token
        self._directory = directory
        self._answers: list[Answer] = load.answers
        self._cluster = harvest.add_cluster("failing")
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.wrong: list[str] = []
        self.logs = 0
        self._fail(FIRST_LOGS)

    def start(self) -> None:
        for work in (self._let_jobs_fail, self._search):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout=2 * TIMEOUT_SECONDS)

    def are_indexed(self, logs: int) -> bool:
        """Whether the first so many logs are in the index."""
        from apps.diagnosis.enums import HarvestState
        from apps.diagnosis.models import LogHarvest
        from apps.search.models import LogToIndex

        jobs = {"job__cluster": self._cluster, "job__raw_id__lt": _number(logs)}
        unfinished = LogHarvest.objects.filter(**jobs).exclude(state=HarvestState.DONE)
        return not (unfinished.exists() or LogToIndex.objects.filter(**jobs).exists())

    def _let_jobs_fail(self) -> None:
        from django.db import OperationalError

        while not self._stopped.wait(LOG_SECONDS):
            with suppress(OperationalError):
                self._fail(1)

    def _fail(self, jobs: int) -> None:
        """Add failed jobs, all or none."""
        from django.db import transaction

        from apps.diagnosis.domain.verdicts.harvest import wake_workers

        numbers = range(_number(self.logs), _number(self.logs + jobs), _STEP)
        with transaction.atomic():
            harvest.add_failed_jobs(self._directory, self._cluster, numbers)
            wake_workers()
        self.logs += jobs

    def _search(self) -> None:
        searches: tuple[tuple[str, Callable[[str, str], bool]], ...] = (
            ("/api/v1/search/", _is_in_answer),
            ("/search/", _is_on_page),
        )
        for turn, (path, is_there) in zip(count(), cycle(searches), strict=False):
            if self._stopped.wait(0.2):
                return
            job_id = str(_number(turn // 2 % FIRST_LOGS))
            self._ask(path, job_id, is_there)

    def _ask(self, path: str, job_id: str, is_there: Callable[[str, str], bool]) -> None:
        query = quote(f'"{_LINE.format(job_id)}" in:log')
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        status: int | str
        try:
            connection.request("GET", f"{path}?q={query}", headers=self._headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            status = answer.status
        except (OSError, http.client.HTTPException) as error:
            status = f"{type(error).__name__}: {error}"
        else:
            if any(message in text for message in _NAMED):
                status = "search is unavailable"
            elif status == 200 and not is_there(text, job_id):
                self.wrong.append(f"{path} of {job_id}: {text[:2000]}")
                status = "wrong"
        finally:
            connection.close()
        seconds = time.monotonic() - began
        self._answers.append(Answer(f"GET {path}", status, began, seconds))


def _number(index: int) -> int:
    """Return the number of the job with this index, whose log has a line with the number."""
    return _FIRST_NUMBER + _STEP * index


def _is_in_answer(text: str, job_id: str) -> bool:
    return [result["job_id"] for result in json.loads(text)["results"]] == [job_id]


def _is_on_page(text: str, job_id: str) -> bool:
    return f">{job_id}</a>" in text
