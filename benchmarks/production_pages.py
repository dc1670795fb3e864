"""Speed of the pages of production: `python -m benchmarks.production_pages [--requests N]
[--visits N] [--http]`.

Fills a dedicated PostgreSQL with requests of eight stages in all states and their related rows, and
visits every page and every reading route of the API, as each role, with filters, searches, orders
and the last page. Each is visited with 48 requests first: a number of queries that grows with the
requests is a failure, as is a p95 above 200 ms.

Times are those of Django's test client in this process; with `--http` those of gunicorn over a
socket, as clients see them. `cpu` is the CPU time of this process and its database server,
independent of other processes.
"""

import argparse
import gc
import http.client
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from django.core.management import call_command

from benchmarks.database import database, set_up_django
from dev.processes import free_port, spawn

LIMIT_MS = 200
FEW = 48
STAGES = 8


@dataclass
class Group:
    """Visits of one address by one role."""

    queries: set[int] = field(default_factory=set)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    bytes: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--visits", type=int, default=20, help="of each address by each role")
    parser.add_argument(
        "--http", action="store_true", help="through gunicorn, instead of the test client"
    )
    parser.add_argument("--only", default="", help="routes whose name begins so")
    parser.add_argument(
        "--judge", choices=["wall", "cpu"], default="wall", help="which time has the limit"
    )
    parser.add_argument(
        "--directory", type=Path, help="where to keep the database for another run (else temporary)"
    )
    arguments = parser.parse_args()
    with database(arguments.directory) as (base, url):
        set_up_django(
            base,
            url,
            STATIC_DIR=str(base / "static"),
            PORTAL_URL="http://localhost",
            LOG_LEVEL="ERROR",
        )
        call_command("collectstatic", verbosity=0, interactive=False)
        ok = run(arguments, base)
    raise SystemExit(0 if ok else 1)


def run(arguments: argparse.Namespace, base: Path) -> bool:
    """Fill, visit with few and with all requests, and print;
    return whether everything is within its limits.
    """
    from apps.production.models import Request
    from benchmarks import production_visits
    from benchmarks.production_rows import Filler

    kept = base / "few.json"
    if not Request.objects.exists():
        filler = Filler(at=datetime.now(UTC), stages=STAGES)
        filler.add(FEW)
        analyse()
        production_visits.keep(
            kept, {key: group.queries for key, group in surveyed(arguments.only)[1].items()}
        )
        began = time.perf_counter()
        while (left := arguments.requests - len(filler.made)) > 0:
            filler.add(min(left, 480))
        analyse()
        print(
            f"filled {arguments.requests:,} requests in {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        del filler
    few = production_visits.kept(kept)
    visits, many = surveyed(arguments.only)
    gc.collect()
    # as `opsportal.wsgi` does; else all that is loaded is gone through in the middle of some visit
    gc.freeze()
    many = many if arguments.http else visited(visits, arguments.visits, in_process)
    if arguments.http:
        with served(base) as ask:
            timed = visited(visits, arguments.visits, ask)
        for key, group in timed.items():
            many[key].wall = group.wall
    return report(few, many, arguments.judge)


def analyse() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


Ask = Callable[..., object]


def surveyed(only: str) -> tuple[list, dict[tuple[str, str, str], Group]]:
    """Visit everything once; return the visits that are answered with a page."""
    from benchmarks.production_visits import Tour

    groups: dict[tuple[str, str, str], Group] = {}

    def ask(visit):
        return in_process(visit, groups.setdefault(visit.key, Group()))

    visits = Tour(only=only).visits(ask)
    return visits, {visit.key: groups[visit.key] for visit in visits}


def visited(visits: list, times: int, ask: Ask) -> dict[tuple[str, str, str], Group]:
    """Visit all in turn, this number of times; they have been visited before."""
    groups = {visit.key: Group() for visit in visits}
    for _ in range(times):
        for visit in visits:
            ask(visit, groups[visit.key])
    return groups


def in_process(visit, group: Group):
    """Visit with the test client; count queries and time; return the response."""
    from django.db import connection

    seconds: list[float] = []
    backend = (
        Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
        if connection.connection
        else None
    )
    computed = int(backend.read_text().split()[0]) if backend and backend.exists() else 0
    began, cpu = time.perf_counter(), time.process_time()
    with connection.execute_wrapper(counting(seconds)):
        response = visit.ask()
    group.cpu.append(1000 * (time.process_time() - cpu))
    group.wall.append(1000 * (time.perf_counter() - began))
    if computed and backend and backend.exists():
        group.cpu[-1] += (int(backend.read_text().split()[0]) - computed) / 1e6
    group.queries.add(len(seconds))
    group.bytes = len(response.content)
    return response


def counting(seconds: list[float]) -> Callable[..., object]:
    def wrapper(execute, sql, params, many, context):
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            if not sql.startswith(("SAVEPOINT", "RELEASE")):
                seconds.append(time.perf_counter() - began)

    return wrapper


@contextmanager
def served(base: Path) -> Iterator[Ask]:
    """Yield a client of a new gunicorn, started as in the Procfile."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "opsportal.wsgi",
        "--bind",
        f"127.0.0.1:{port}",
        "--preload",
    ]
    command += ["--workers", "2", "--threads", "4", "--keep-alive", "60", "--log-level", "warning"]
    with (base / "gunicorn.log").open("ab") as log:
        server = spawn("gunicorn", command, base / "run", stdout=log, stderr=subprocess.STDOUT)
    try:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        wait_for(port)

        def ask(visit, group: Group) -> None:
            headers = {"Host": "localhost", **visit.headers()}
            began = time.perf_counter()
            line.request(visit.method, visit.url, body=visit.data or None, headers=headers)
            response = line.getresponse()
            response.read()
            group.wall.append(1000 * (time.perf_counter() - began))
            assert response.status == 200, f"{visit.role} {visit.url}: {response.status}"

        yield ask
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def report(few: dict, many: dict[tuple[str, str, str], Group], judge: str) -> bool:
    """Print a line per route, with its slowest address;
    return whether all are within their limits.
    """
    routes: dict[str, list[tuple[tuple[str, str, str], Group]]] = {}
    for key, group in many.items():
        routes.setdefault(key[0], []).append((key, group))
    good = True
    print(
        f"     {'route':38} {'addr.':>5} {'p50':>6} {'p95':>6} {'worst':>6} {'cpu':>6}  "
        "queries  worst is"
    )
    for route, groups in routes.items():
        wall = [one for _, group in groups for one in group.wall]
        key, worst = max(groups, key=lambda found: p95(getattr(found[1], judge)))
        grown = [
            key for key, group in groups if max(group.queries) > max(few.get(key, group.queries))
        ]
        slow = p95(getattr(worst, judge)) > LIMIT_MS
        good &= not slow and not grown
        counts = sorted({count for _, group in groups for count in group.queries})
        word = "SLOW" if slow else "GROW" if grown else "ok  "
        print(
            f"{word} {route:38} {len(groups):5} {statistics.median(wall):6.1f}"
            f" {p95(wall):6.1f} {p95(worst.wall):6.1f} {p95(worst.cpu):6.1f}  "
            f"{counts[0]:3}-{counts[-1]:<3}"
            f"  {key[1]} {key[2]} {worst.bytes // 1000} kB"
        )
        for key in grown:
            print(
                f"       queries {sorted(few[key])} -> {sorted(many[key].queries)}: {key[1]} "
                f"{key[2]}"
            )
    everything = [one for group in many.values() for one in group.wall]
    print(
        f"all {len(everything):,} visits: p50 {statistics.median(everything):.1f} ms, p95 "
        f"{p95(everything):.1f} ms"
    )
    return good


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]


if __name__ == "__main__":
    main()
