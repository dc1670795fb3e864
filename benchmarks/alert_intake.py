"""Alerts over HTTP, also while the database is down:
`python -m benchmarks.alert_intake [--seconds N] [--rate N]`.

Gunicorn as in the Procfile, a PostgreSQL on disk with fsync, and a sender that posts one alert a
request at a fixed rate over connections that are kept, as Alertmanager does. The database is
stopped after a sixth of a minute, for `--away` seconds; meanwhile one web process is killed (`kill
-9`). A request without an answer of 202 is sent again, as monitoring systems do; its time is from
when it was due to its last answer.

Prints one JSON object last: `lost` alerts that were answered with 202 and are not in the database
in the end, `p99_ms`, alerts sent `again`, and `stored_s`, the time until the database had them all
after it was back.
"""

import argparse
import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles

import psycopg

from benchmarks.database import database, set_up_django, settings
from benchmarks.portal import family, wait_until
from dev.postgres import Postgres
from dev.processes import free_port, spawn
from dev.valkey import Valkey

ROOT = Path(__file__).parents[1]
BEFORE = 10
CONNECTIONS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="alerts a second (%(default)s)")
    parser.add_argument("--seconds", type=int, default=80, help="of sending (%(default)s)")
    parser.add_argument(
        "--away", type=int, default=60, help="seconds without the database (%(default)s)"
    )
    arguments = parser.parse_args()
    with database() as (base, url), web(base, url) as (port, master):
        from apps.statusboard.domain.monitoring.sources import create_source

        _, token = create_source(slug="benchmark", by="benchmark", at=datetime.now(UTC))
        sender = Sender(port, token, arguments.rate, arguments.seconds)
        figures = asyncio.run(run(sender, base, master, arguments.away))
        back = time.monotonic()
        with psycopg.connect(url, autocommit=True) as connection:
            figures["stored_s"] = round(stored_all(connection, len(sender.taken)) - back, 1)
            query = (
                "SELECT convert_from(body, 'UTF8')::json->'alerts'->0->>'fingerprint' FROM "
                "statusboard_rawpayload"
            )
            stored = [int(key) for (key,) in connection.execute(query)]
    figures["lost"] = len(sender.taken - set(stored))
    figures["stored_twice"] = len(stored) - len(set(stored))
    print(json.dumps(figures))


def stored_all(connection: psycopg.Connection, wanted: int) -> float:
    """Wait until so many alerts are stored, or for as long as nothing more arrives; return when."""
    count = "SELECT count(DISTINCT receipt) FROM statusboard_rawpayload"

    def found() -> bool:
        row = connection.execute(count).fetchone()
        return row is not None and row[0] >= wanted

    try:
        return wait_until(found, timeout=180, step=0.2)
    except TimeoutError:
        return time.monotonic()


@contextmanager
def web(base: Path, url: str):
    """Start Valkey and the web server of the Procfile; yield its port and its process."""
    (base / "valkey").mkdir()
    valkey = Valkey(base / "valkey", base)
    spawn(
        "valkey",
        valkey.command(),
        base / "run",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    valkey.wait_ready()
    broker = valkey.url()
    set_up_django(base, url, REDIS_URL=broker)
    port = free_port()
    lines = (ROOT / "Procfile").read_text().splitlines()
    line = next(line for line in lines if line.startswith("web: ")).removeprefix("web: ")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        *shlex.split(line.replace("${PORT:-8000}", str(port))),
    ]
    environment = (
        os.environ | settings(base, url) | {"REDIS_URL": broker, "PORTAL_URL": "http://127.0.0.1"}
    )
    environment |= {"ALLOWED_HOSTS": "127.0.0.1"}
    with (base / "web.log").open("wb") as log:
        process = spawn(
            "web", command, base / "run", stdout=log, stderr=log, cwd=ROOT, env=environment
        )
    try:
        wait_until(lambda: answers(port), timeout=60)
        yield port, process
    finally:
        process.terminate()
        process.wait(60)
        if text := (base / "web.log").read_text():
            print(text[-2000:], file=sys.stderr)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


async def run(
    sender: "Sender", base: Path, master: subprocess.Popen, away: int
) -> dict[str, object]:
    loads, used = [os.getloadavg()[0]], cpu_seconds(family(master.pid))
    sending = asyncio.create_task(sender.send())
    await asyncio.sleep(min(BEFORE, sender.seconds / 4))
    await asyncio.to_thread(stop_database, base)
    await asyncio.sleep(away / 2)
    await asyncio.to_thread(kill_one, master)
    loads.append(os.getloadavg()[0])
    await asyncio.sleep(away / 2)
    await asyncio.to_thread(start_database, base)
    await sending
    loads.append(os.getloadavg()[0])
    times = sorted(sender.times)
    used = cpu_seconds(family(master.pid)) - used
    return {
        "p99_ms": round(1000 * quantiles(times, n=100)[-1], 1),
        "p50_ms": round(1000 * quantiles(times, n=2)[0], 1),
        "slowest_ms": round(1000 * times[-1], 1),
        "accepted": len(sender.taken),
        "accepted_a_second": round(len(sender.taken) / sender.took, 1),
        "again": sender.again,
        "cpu_ms_an_alert": round(1000 * used / len(sender.taken), 2),
        "without_database_s": away,
        "load": [round(load, 1) for load in loads],
        "processors": os.cpu_count(),
    }


def kill_one(master: subprocess.Popen) -> None:
    os.kill(family(master.pid)[1], signal.SIGKILL)


def cpu_seconds(pids: list[int]) -> float:
    """Return the processor seconds of these processes, and of the children that they waited for."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(sum(map(int, stat[11:15])) for stat in stats) / os.sysconf("SC_CLK_TCK")


def stop_database(base: Path) -> None:
    pid = int((base / "run/postgres.pid").read_text().split()[0])
    os.kill(pid, signal.SIGINT)
    wait_until(
        lambda: (
            not Path(f"/proc/{pid}/stat").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()
        )
    )


def start_database(base: Path) -> None:
    postgres = Postgres(base / "postgres", base / "s")
    with (base / "postgres.log").open("ab") as log:
        server = spawn(
            "postgres", postgres.command(), base / "run", stdout=log, stderr=subprocess.STDOUT
        )
    postgres.wait_ready(server.poll)


class Sender:
    """Posts alerts when they are due, whatever became of the ones before."""

    def __init__(self, port: int, token: str, rate: int, seconds: int) -> None:
        self.port, self.rate, self.seconds = port, rate, seconds
        self.head = (
            "POST /api/v1/feeds/benchmark/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            f"{token}\r\n"
        )
        self.taken: set[int] = set()
        self.times: list[float] = []
        self.again = 0
        self.took = 0.0

    async def send(self) -> None:
        self.began = time.monotonic()
        self.waiting: asyncio.Queue[int | None] = asyncio.Queue()
        connections = [asyncio.create_task(self._connection()) for _ in range(CONNECTIONS)]
        for number in range(self.rate * self.seconds):
            if (early := self._due(number) - time.monotonic()) > 0:
                await asyncio.sleep(early)
            self.waiting.put_nowait(number)
        for _ in connections:
            self.waiting.put_nowait(None)
        await asyncio.gather(*connections)
        self.took = time.monotonic() - self.began

    def _due(self, number: int) -> float:
        return self.began + number / self.rate

    async def _connection(self) -> None:
        streams = None
        while (number := await self.waiting.get()) is not None:
            while True:
                try:
                    if streams is None or streams[1].is_closing():
                        streams = await asyncio.open_connection("127.0.0.1", self.port)
                    is_taken = await self._post(number, *streams)
                except (OSError, asyncio.IncompleteReadError):
                    is_taken, streams = False, None
                if is_taken:
                    break
                self.again += 1
                await asyncio.sleep(0.05)
            self.taken.add(number)
            self.times.append(time.monotonic() - self._due(number))

    async def _post(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        body = alert(number)
        writer.write(f"{self.head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if b"connection: close" in head.lower():
            writer.close()
        return head.startswith(b"HTTP/1.1 202")


def alert(number: int) -> bytes:
    labels = {
        "alertname": "Outage",
        "instance": f"node{number % 5000}",
        "service": "storage",
        "severity": "critical",
    }
    one = {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "It does not answer"},
        "startsAt": datetime.now(UTC).isoformat(),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "https://prometheus.example/graph",
        "fingerprint": str(number),
    }
    return json.dumps(
        {"version": "4", "status": "firing", "receiver": "portal", "alerts": [one]}
    ).encode()


if __name__ == "__main__":
    main()
