"""Watch a running demo: memory stays flat, no process logs an error, and the pages keep answering.

    make run PORT=8100 VAR=/tmp/soak &
    python benchmarks/soak.py --port 8100 --var /tmp/soak --minutes 60

Memory is the proportional set size (PSS) of each process of the run, summed by name. Flat means:
the median of the last quarter is at most 1.15 times that of the second quarter (the first warms
up), or 10 MB above it. Exits non-zero if it is not flat, if a page fails, or if a process logs an
error.
"""

import argparse
import http.cookiejar
import os
import re
import statistics
import sys
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from pathlib import Path

PAGES = (
    "/",
    "/jobs/",
    "/jobs/?state=failed",
    "/failures/",
    "/requests/",
    "/requests/queue/",
    "/services/",
    "/archive/",
    "/statistics/",
)
LIMIT = 1.15
SLACK_BYTES = 10_000_000
SAMPLE_SECONDS = 20
COMPLAINT = re.compile(r"Traceback|\b(ERROR|CRITICAL|Error|Exception)\b|FATAL|PANIC")


def processes(var: Path) -> dict[str, int]:
    """Return the PSS in bytes of every process of the run, by name."""
    memory_by_process: dict[str, int] = defaultdict(int)
    for pid, name in members(var).items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            memory_by_process[name] += 1024 * int(
                re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1]
            )
        except (OSError, TypeError):
            continue
    return dict(memory_by_process)


def members(var: Path) -> dict[int, str]:
    """Return the processes of the run by pid, with their names: those marked in their environment,
    and descendants.

    PostgreSQL's children overwrite their environment with a title; they get their parent's name.
    """
    mark = f"OPSPORTAL_RUN={var}/run".encode()
    names: dict[int, str] = {}
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                names[pid] = kind(Path(f"/proc/{pid}/cmdline").read_bytes())
            elif parent in names:
                names[pid] = names[parent]
        except (OSError, ValueError):
            continue
    return names


def kind(cmdline: bytes) -> str:
    words = cmdline.replace(b"\0", b" ").decode(errors="replace")
    names = {
        "gunicorn": "web",
        " worker": "worker",
        " beat": "beat",
        " capture": "capture",
        " simulate": "simulate",
    }
    names |= {"postgres": "postgres", "valkey": "valkey"}
    return next((name for part, name in names.items() if part in words), "other")


class Browser:
    """Logs in as the demo's shifter and visits pages."""

    def __init__(self, base: str, user: str, password: str) -> None:
        self.base = base
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )
        page = self.get("/accounts/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[1]
        form = {"csrfmiddlewaretoken": token, "username": user, "password": password}
        request = urllib.request.Request(
            f"{base}/accounts/login/", urllib.parse.urlencode(form).encode()
        )
        request.add_header("Referer", f"{base}/accounts/login/")
        self.opener.open(request, timeout=30).read()

    def get(self, path: str) -> str:
        return self.opener.open(self.base + path, timeout=30).read().decode()


def complaints(var: Path, since: dict[Path, int]) -> list[str]:
    messages = []
    for path in sorted((var / "log").glob("*.log")):
        with path.open("rb") as file:
            file.seek(min(since.get(path, 0), path.stat().st_size))
            messages += [
                f"{path.name}: {line}"
                for line in file.read().decode(errors="replace").splitlines()
                if COMPLAINT.search(line)
            ]
    return messages


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--var", type=Path, default=Path("var"))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--user", default="shifter")
    parser.add_argument("--password", default="demo")
    options = parser.parse_args()
    var = options.var.absolute()
    since = {path: path.stat().st_size for path in (var / "log").glob("*.log")}
    browser = Browser(f"http://localhost:{options.port}", options.user, options.password)
    samples: dict[str, list[int]] = defaultdict(list)
    seconds: list[float] = []
    failed: list[str] = []
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        for page in PAGES:
            started = time.monotonic()
            try:
                browser.get(page)
            except OSError as error:
                failed.append(f"{page}: {error}")
            seconds.append(time.monotonic() - started)
        for name, size in processes(var).items():
            samples[name].append(size)
        time.sleep(SAMPLE_SECONDS)
    return report(samples, seconds, failed + complaints(var, since))


def report(samples: dict[str, list[int]], seconds: list[float], problems: list[str]) -> int:
    flat = True
    print(
        f"{'process':10} {'second quarter':>15} {'last quarter':>13} {'ratio':>6} {'peak':>9}  "
        "(PSS, MB, medians)"
    )
    for name, sizes in sorted(samples.items()):
        quarter = max(1, len(sizes) // 4)
        early, late = (
            statistics.median(sizes[quarter : 2 * quarter] or sizes),
            statistics.median(sizes[-quarter:]),
        )
        flat &= late <= max(LIMIT * early, early + SLACK_BYTES)
        print(
            f"{name:10} {early / 1e6:15.1f} {late / 1e6:13.1f} {late / early:6.2f} "
            f"{max(sizes) / 1e6:9.1f}"
        )
    median, worst = statistics.median(seconds) * 1000, max(seconds) * 1000
    print(
        f"{len(seconds)} pages: median {median:.0f} ms, worst {worst:.0f} ms; "
        f"{os.cpu_count()} cores"
    )
    print(f"{len(problems)} complaints", *problems[:20], sep="\n  ")
    return 0 if flat and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
