"""Report phases and output files of a batch job from Python, with the standard library alone.

    from ops_phase import output, phase

    with phase("reco"):
        reconstruct()
    output("reco.root", events=4990)

Settings and behaviour are those of the program `ops-phase`: it never fails the job, keeps phases
while the portal is unavailable, and prints a marker to the log. Phases wait in memory, and are sent again
with the next one and at exit.
"""

import atexit
import json
import os
import re
import resource
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_TIMEOUT, _WAIT = 10, 60
#: Answers that repeating the report cannot change.
_REFUSED = {400, 401, 403, 404, 409, 413, 422}


class _Sender:
    """Keeps the phases that the portal does not have yet."""

    path = "/api/v1/phases/"
    what = "phases"
    most = 200

    def __init__(self) -> None:
        self.waiting: list[dict[str, object]] = []
        self.retry_at = 0.0

    def report(self, sent: list[dict[str, object]]) -> dict[str, object]:
        """Return the report of these phases, without the ID of the job."""
        return {"host": os.uname().nodename, "cpu_model": _cpu_model(), "phases": sent}

    def send(self, *, now: bool = False) -> None:
        """Send what waits; after a failure nothing for a minute, unless it must be `now`."""
        url, token, job = (
            os.environ.get("OPSPORTAL_URL"),
            os.environ.get("OPSPORTAL_PHASE_TOKEN"),
            job_id(),
        )
        if not (url and token and job) or (time.monotonic() < self.retry_at and not now):
            return
        while self.waiting:
            sent = self.waiting[: self.most]
            try:
                _post(url.rstrip("/") + self.path, token, {"job_id": job, **self.report(sent)})
            except urllib.error.HTTPError as error:
                if error.code not in _REFUSED:
                    self.retry_at = time.monotonic() + _WAIT
                    return
                if self.is_split(error.code, len(sent)):
                    continue
                sys.stderr.write(
                    f"ops-phase: the portal refused the {self.what} (HTTP {error.code})\n"
                )
            except Exception:  # whatever happens on the way to the portal, the job goes on
                self.retry_at = time.monotonic() + _WAIT
                return
            del self.waiting[: len(sent)]

    def is_split(self, code: int, number: int) -> bool:
        """Whether reports that were refused together are sent one by one."""
        return False


class _FileSender(_Sender):
    """Keeps the output files that the portal does not have yet."""

    path = "/api/v1/job-files/"
    what = "file"
    most = 100

    def report(self, sent: list[dict[str, object]]) -> dict[str, object]:
        return {"files": sent}

    def is_split(self, code: int, number: int) -> bool:
        if number == 1 or code not in {400, 413}:
            return False
        self.most = 1
        return True


_sender = _Sender()
_file_sender = _FileSender()


def output(
    path: str | os.PathLike[str],
    *,
    events: int | None = None,
    run: int | None = None,
    parents: Sequence[str] = (),
) -> None:
    """Report that the job has written a file, made of these input files.

    Size and checksum are computed, which reads the file once. Neither an unreadable file nor the
    portal fails the job.
    """
    name = Path(path).name
    checksum = 1
    try:
        with Path(path).open("rb") as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                checksum = zlib.adler32(part, checksum)
            size = file.tell()
    except OSError as error:
        sys.stderr.write(f"ops-phase: {name!a} is not reported: {error.strerror}\n")
        return
    if not name.isprintable() or name.strip() != name or len(name) > 200:
        sys.stderr.write(f"ops-phase: {name!a} is a name that cannot be reported\n")
        return
    _print_marker("output", name)
    file_report: dict[str, object] = {
        "name": name,
        "size_bytes": size,
        "events": events,
        "run": run,
        "checksum": f"adler32:{checksum:08x}",
        "parents": [Path(parent).name for parent in parents],
    }
    _file_sender.waiting.append(file_report)
    _file_sender.send()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Report the block as one phase; an exception in it makes it a failed one."""
    one: dict[str, object] = {
        "name": re.sub(r"[^\x20-\x7e]", "_", name)[:64],
        "started_at": int(time.time()),
    }
    _report(one, "start")
    before, code = _cpu_seconds(), 1
    try:
        yield
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
    finally:
        used = round(_cpu_seconds() - before, 2)
        _report(one | {"ended_at": int(time.time()), "exit_code": code, "cpu_seconds": used}, "end")


def flush() -> None:
    """Send what could not be sent yet."""
    _sender.send(now=True)
    _file_sender.send(now=True)


def job_id() -> str:
    """Return the ID of this job; an empty text if the scheduler's variables do not have it."""
    given = os.environ.get
    if name := given("OPS_PHASE_JOB"):
        return name
    if array := given("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{given('SLURM_ARRAY_TASK_ID', '0')}"
    if (
        name := given("SLURM_JOB_ID")
        or given("PBS_JOBID")
        or given("JOBSUBJOBID", "").partition("@")[0]
    ):
        return name
    try:
        text = Path(given("_CONDOR_JOB_AD", "")).read_text("utf-8", "replace")
    except OSError:
        return ""
    found = [re.search(rf"(?im)^{name} *= *(\d+)", text) for name in ("ClusterId", "ProcId")]
    return ".".join(each[1] for each in found if each)


def _print_marker(what: str, name: object) -> None:
    if not os.environ.get("OPS_PHASE_QUIET"):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = str(name).encode("ascii", "replace").decode()
        sys.stdout.write(f"==> ops-phase {at} {what} {text}\n")
        sys.stdout.flush()


def _report(one: dict[str, object], what: str) -> None:
    _print_marker(what, one["name"])
    _sender.waiting.append(one)
    _sender.send()


def _post(address: str, token: str, report: dict[str, object]) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(report).encode(), headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT):
        pass


def _cpu_model() -> str:
    """Return the model of the first CPU; an empty text where /proc does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    found = re.search(r"(?m)^model name\s*: *(.*)$", text)
    return found[1][:255] if found else ""


def _cpu_seconds() -> float:
    """Return the CPU time of this process and its finished children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


atexit.register(flush)
