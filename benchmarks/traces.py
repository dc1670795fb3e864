"""What traces cost: CPU time of a cheap page without them, and with a share of them kept.

`python -m benchmarks.traces [--rounds N]`. The portals take turns, so that a busy machine slows all
of them alike.
"""

import argparse
import copy
import json
import os
import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import urllib3

from benchmarks.portal import Portal, family, portal
from dev.processes import free_port

PAGE = "/services/status/summary.json"
REQUESTS = 300  # a round


class Sink(BaseHTTPRequestHandler):
    """A collector that keeps nothing."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def collector():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def variants(endpoint: str) -> dict[str, dict[str, str]]:
    on = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    return {
        "off": {},
        "10 %": on,
        "100 %": on | {"OTEL_TRACES_SAMPLER_ARG": "1"},
        "100 %, collector down": {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
            "OTEL_TRACES_SAMPLER_ARG": "1",
        },
    }


def variant_of(base: Portal, settings: dict[str, str]) -> Portal:
    """Return a web server of its own on the same database."""
    other = copy.copy(base)
    other.port = free_port()
    other.environment = base.environment | settings
    other.environment |= {"PORTAL_URL": f"http://127.0.0.1:{other.port}", "PUBLIC_STATUS": "true"}
    return other


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for process in family(pid):
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the memory of a server and its processes, shared pages once."""
    kilobytes = 0
    for process in family(pid):
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        kilobytes += int(text.partition("\nPss:")[2].split()[0])
    return kilobytes / 1024


def measure(url: str, pid: int) -> dict[str, float]:
    """Send a round of requests; return the CPU time of one, and the slowest, in milliseconds."""
    http = urllib3.PoolManager()
    slowest = 0.0
    began = time.perf_counter()
    cpu = cpu_seconds(pid)
    for _ in range(REQUESTS):
        sent = time.perf_counter()
        assert http.request("GET", url + PAGE).status == 200
        slowest = max(slowest, time.perf_counter() - sent)
    return {
        "cpu_ms": 1000 * (cpu_seconds(pid) - cpu) / REQUESTS,
        "requests_s": REQUESTS / (time.perf_counter() - began),
        "slowest_ms": 1000 * slowest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traces")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with portal() as base, collector() as endpoint, ExitStack() as stack:
        servers = {}
        for name, settings in variants(endpoint).items():
            server = variant_of(base, settings)
            servers[name] = server.environment["PORTAL_URL"], stack.enter_context(server.serving())
        results = {name: [] for name in servers}
        for _ in range(rounds + 1):
            for name, (url, process) in servers.items():
                results[name].append(measure(url, process.pid))
        report = {"load": os.getloadavg()[0], "rounds": rounds}
        for name, all_rounds in results.items():
            measured = all_rounds[1:]
            report[name] = {
                key: round(median(result[key] for result in measured), 2) for key in measured[0]
            }
            report[name]["slowest_ms"] = round(max(result["slowest_ms"] for result in measured))
            report[name]["memory_mb"] = round(memory_mb(servers[name][1].pid))
        for name in servers:
            ratio = report["off"]["cpu_ms"] / report[name]["cpu_ms"]
            report[name]["requests_per_cpu_second_to_off"] = round(ratio, 3)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
