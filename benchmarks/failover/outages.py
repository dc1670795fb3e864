"""Outages of machines under load, and what they cost."""

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.failover.cache import Cache
from benchmarks.failover.database import PORT, Database, url_of
from benchmarks.failover.log_index import FIRST_LOGS, START_SECONDS, Index, LogSearches
from benchmarks.failover.network import GATEWAY, Machine, Network
from benchmarks.failover.portal import Portal
from benchmarks.portal import wait_until
from tests.upgrade.load import SETUP, Answer, Load

#: Of `postgresql`, only the server's processes end; of all others, the whole machine.
ROLES = (
    "database",
    "postgresql",
    "cache",
    "witness",
    "web",
    "work",
    "capture",
    "elasticsearch",
)
SECONDS = (
    "reading_seconds",
    "posting_seconds",
    "slowest_seconds",
    "takeover_seconds",
    "recovery_seconds",
)
KINDS = ("kill", "cut")
#: How long a machine that is back may need until all follow it again and all work is done.
RECOVERY_SECONDS = 400
#: How long nginx leaves a web server alone that did not answer (`fail_timeout`), and one more: an
#: outage of the other one meanwhile would be that of both.
PROXY_SECONDS = 6
PAUSE_SECONDS = 0.2
#: Elasticsearch shows a new document to searches after a second.
REFRESH_SECONDS = 2
CAPTURES = """
from apps.archive.domain.capture_hosts import create_capture_host
_, second = create_capture_host(name="ctl2", clusters=["alps"], by="test", at=at)
print(json.dumps(second))
"""
BEAT = (
    "SELECT host(client_addr) FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND classid = 4716090 AND granted"
)


@dataclass(frozen=True)
class Outage:
    """What one outage of a machine did.

    `reading_seconds` and `posting_seconds` are the longest times without service,
    `slowest_seconds` those of the slowest answer without error. `takeover_seconds` is how long it
    took until the other beat sent; 0 where the beat that sends was not taken, infinite where none
    did before the machine was back. `recovery_seconds` begin when the machine was back.
    """

    role: str
    kind: str
    failures: int
    reading_seconds: float
    posting_seconds: float
    slowest_seconds: float
    takeover_seconds: float
    recovery_seconds: float


class Run:
    """A portal on machines in `base`, and the outages that it has had.

    Elasticsearch is a part of it where one of `roles` is its. HAProxy, or else nginx, is before the
    web servers; HAProxy before PostgreSQL, too.
    """

    def __init__(self, base: Path, roles: Collection[str], *, with_haproxy: bool) -> None:
        self._network = Network(base)
        self.outages: list[Outage] = []
        add = self._network.add
        self._index: Index | None = None
        if "elasticsearch" in roles:
            self._index = Index([add("es1"), add("es2"), add("es3")])
        witness = add("witness")
        servers = [add("db1"), add("db2")]
        self._database = Database(*servers, witness)
        self._cache = Cache(add("cache1"), add("cache2"), witness)
        self._portal = self._make_portal(base)
        lines = self._portal.run(SETUP + CAPTURES).splitlines()
        secrets = json.loads(lines[-2])
        self._spool = base / "spool"
        self._spool.mkdir()
        webs = [add("web1"), add("web2")]
        if with_haproxy:
            self._portal.serve_haproxy(webs, servers)
            self._portal.use_database(url_of(f"{GATEWAY}:{PORT}"))
        else:
            self._portal.serve_proxy(webs)
        for machine in webs:
            self._portal.serve_web(machine)
        for machine in (add("work1"), add("work2")):
            self._portal.serve_work(machine)
        for machine, token in (
            (add("ctl1"), secrets["capture"]),
            (add("ctl2"), json.loads(lines[-1])),
        ):
            self._portal.serve_capture(machine, self._spool, token)
        self._load = Load(self._portal.port, secrets, self._spool, PAUSE_SECONDS)
        self._load.start()
        wait_until(self._is_served, timeout=START_SECONDS)
        self._searches = self._search_logs(base / "logs")
        self._load.answers.clear()

    def _make_portal(self, base: Path) -> Portal:
        settings = {"LOG_ROOTS": str(base / "logs")}
        (base / "logs").mkdir()
        if self._index:
            self._index.wait()
            settings |= self._index.settings
        return Portal(base, self._database.url, self._cache.url, **settings)

    def _search_logs(self, logs: Path) -> LogSearches | None:
        """Index logs, and start to search them, where there is Elasticsearch."""
        if not self._index:
            return None
        self._portal.set_up_django()
        searches = LogSearches(self._portal.port, self._load, logs)
        wait_until(lambda: searches.are_indexed(FIRST_LOGS), timeout=START_SECONDS)
        time.sleep(REFRESH_SECONDS)
        searches.start()
        return searches

    def close(self) -> None:
        self._load.stop()
        if self._searches:
            self._searches.stop()
        self._network.close()

    def _is_served(self) -> bool:
        return any(answer.status == 200 for answer in self._load.answers)

    def measure(self, roles: list[str], rounds: int, seconds: float) -> None:
        """Let each role have so many outages of each kind, which last so many seconds."""
        self._wait_until_whole()
        for number in range(rounds):
            for role in roles:
                for kind in KINDS[:1] if role == "postgresql" else KINDS:
                    outage = self._let_fail(role, kind, number, seconds)
                    self.outages.append(outage)
                    print(outage, flush=True)
        self._load.stop()
        if self._searches:
            self._searches.stop()
        self._wait_until_whole()

    def _let_fail(self, role: str, kind: str, number: int, seconds: float) -> Outage:
        machine = self._acting(role, number)
        begin = len(self._load.answers)
        if role == "postgresql":
            machine.kill_program("postgres")
        elif kind == "kill":
            machine.kill()
        else:
            machine.cut()
        ends_at = time.monotonic() + seconds
        takeover_seconds = self._wait_for_takeover(machine, seconds) if role == "work" else 0.0
        time.sleep(max(ends_at - time.monotonic(), 0))
        machine.come_back()
        recovery_seconds = self._wait_until_whole()
        if role == "web":
            time.sleep(PROXY_SECONDS)
        answers = self._load.answers[begin:]
        return Outage(
            role=role,
            kind=kind,
            failures=sum(not _is_good(answer) for answer in answers),
            reading_seconds=_longest_gap(answers, "GET"),
            posting_seconds=_longest_gap(answers, "POST"),
            slowest_seconds=max(answer.seconds for answer in answers if _is_good(answer)),
            takeover_seconds=takeover_seconds,
            recovery_seconds=recovery_seconds,
        )

    def _wait_for_takeover(self, machine: Machine, seconds: float) -> float:
        """Wait until the beat of another machine sends; return after how many seconds it did.

        The result is infinite if that takes longer than `seconds`.
        """
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            senders = self._database.ask(BEAT)
            if senders and senders[0][0] != machine.address:
                return time.monotonic() - began
            time.sleep(0.1)
        return math.inf

    def _acting(self, role: str, number: int) -> Machine:
        machines = self._network.machines
        if role == "elasticsearch" and self._index:
            return self._index.master()
        if role in {"database", "postgresql"}:
            return self._database.primary()
        if role == "cache":
            return self._cache.primary()
        if role == "witness":
            return machines["witness"]
        if role == "work":
            address = self._database.ask(BEAT)[0][0]
            return next(machine for machine in machines.values() if machine.address == address)
        names = {"web": "web", "capture": "ctl"}
        return machines[f"{names[role]}{1 + number % 2}"]

    def _wait_until_whole(self) -> float:
        """Wait until each role has its second again, all jobs started by now are archived, and all
        requests made by now are answered: a later answer would count for the next outage.

        Raises TimeoutError with what is missing.
        """
        jobs = self._load.jobs
        logs = self._searches.logs if self._searches else 0
        began = time.monotonic()
        while missing := self._missing(jobs, logs, began):
            if time.monotonic() > began + RECOVERY_SECONDS:
                raise TimeoutError(f"missing after {RECOVERY_SECONDS} s: {', '.join(missing)}")
            time.sleep(0.1)
        return time.monotonic() - began

    def _missing(self, jobs: int, logs: int, now: float) -> list[str]:
        """Return what is missing, in words."""
        try:
            checks = {
                "a primary and a standby": self._database.is_whole(),
                "Valkey with its replica and Sentinels": self._cache.is_whole(),
                "one beat that sends": len(self._database.ask(BEAT)) == 1,
                "both web servers": self._portal.is_web_whole(),
                "archived jobs": len(self._archived()) >= jobs,
                "answers": min([*self._load.asked_at.values()], default=math.inf) > now,
            }
            if self._index and self._searches:
                checks |= {
                    "three nodes of Elasticsearch": self._index.is_whole(),
                    "archived documents": len(self._index.archived()) >= jobs,
                    "indexed logs": self._searches.are_indexed(logs),
                }
        except psycopg.OperationalError as error:
            return [str(error)]
        return [name for name, is_there in checks.items() if not is_there]

    def _archived(self) -> Counter:
        statement = "SELECT job_id, count(*) FROM archive_archivedjob GROUP BY job_id"
        return Counter(dict(self._database.ask(statement)))

    def report(self) -> int:
        """Print the table; return 1 if something was lost or is there twice."""
        rows = defaultdict(list)
        for outage in self.outages:
            rows[outage.role, outage.kind].append(outage)
        print("| role | outage | times | failed | reading | posting | slowest | beat | recovery |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for (role, kind), outages in rows.items():
            failures = sum(outage.failures for outage in outages)
            longest = [
                f"{max(getattr(outage, name) for outage in outages):.1f} s" for name in SECONDS
            ]
            print(f"| {role} | {kind} | {len(outages)} | {failures} | {' | '.join(longest)} |")
        statement = "SELECT title, count(*) FROM statusboard_announcement GROUP BY title"
        announcements = Counter(dict(self._database.ask(statement)))
        accepted = Counter(announcements[title] for title in self._load.accepted)
        all_posts = Counter(announcements[title] for title in self._load.posted)
        archived = self._archived()
        jobs = Counter(archived[str(number)] for number in range(1, self._load.jobs + 1))
        print(f"{len(self._load.answers)} requests")
        print(f"effects of an accepted post: {dict(accepted)}, of any: {dict(all_posts)}")
        print(f"archived rows of a captured job: {dict(jobs)}")
        is_whole = set(accepted) == {1} and set(all_posts) <= {0, 1} and set(jobs) == {1}
        return int(not (self._is_index_whole() and is_whole))

    def _is_index_whole(self) -> bool:
        """Print what Elasticsearch has; return whether it is all, once, and no search was wrong."""
        if not (self._index and self._searches):
            return True
        archived = self._index.archived()
        documents = Counter(archived[str(number)] for number in range(1, self._load.jobs + 1))
        print(f"documents of a captured job: {dict(documents)}")
        comparison = self._portal.manage("search", "verify").strip()
        print(f"{self._searches.logs} logs: {comparison}")
        print(f"searches without message that were not whole: {len(self._searches.wrong)}")
        for search in self._searches.wrong[:3]:
            print(search)
        is_indexed = f"{self._searches.logs:,} logs compared, 0 differences" in comparison
        return set(documents) == {1} and is_indexed and not self._searches.wrong


def _is_good(answer: Answer) -> bool:
    return answer.status in {200, 201}


def _longest_gap(answers: list[Answer], method: str) -> float:
    """Return the longest time in seconds from the begin of a failed request to the end of the
    last one in a row of failures; 0 without any.
    """
    longest = 0.0
    begin = None
    for answer in answers:
        if not answer.request.startswith(method):
            continue
        if _is_good(answer):
            begin = None
            continue
        if begin is None:
            begin = answer.began
        longest = max(longest, answer.began + answer.seconds - begin)
    return longest
