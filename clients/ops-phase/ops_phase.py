"""Report the phases of a batch job to opsportal from Python, with the standard library alone.

    from ops_phase import phase

    with phase("reco"):
        reconstruct()

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TIMEOUT, _WAIT = 10, 60
#: Answers that repeating the report cannot change.
_REFUSED = {400, 401, 403, 404, 409, 413, 422}


class _Sender:
    """Keeps the phases that the portal does not have yet."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, object]] = []
        self.retry_at = 0.0

    def send(self, *, now: bool = False) -> None:
        """Send what waits; after a failure nothing for a minute, unless it must be `now`."""
        url, token, job = (
            os.environ.get("OPSPORTAL_URL"),
            os.environ.get("OPSPORTAL_PHASE_TOKEN"),
            job_id(),
        )
        if not (url and token and job and self.waiting) or (
            time.monotonic() < self.retry_at and not now
        ):
            return
        sent = self.waiting[:200]
        try:
            _post(
                url,
                token,
                {
                    "job_id": job,
                    "host": os.uname().nodename,
                    "cpu_model": _cpu_model(),
                    "phases": sent,
                },
            )
        except urllib.error.HTTPError as error:
            if error.code not in _REFUSED:
                self.retry_at = time.monotonic() + _WAIT
                return
            sys.stderr.write(f"ops-phase: the portal refused the phases (HTTP {error.code})\n")
        except Exception:  # whatever happens on the way to the portal, the job goes on
            self.retry_at = time.monotonic() + _WAIT
            return
        del self.waiting[: len(sent)]


_sender = _Sender()


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


def _report(one: dict[str, object], what: str) -> None:
    if not os.environ.get("OPS_PHASE_QUIET"):
        sys.stdout.write(
            f"==> ops-phase {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {what} "
            f"{one['name']}\n"
        )
        sys.stdout.flush()
    _sender.waiting.append(one)
    _sender.send()


def _post(url: str, token: str, report: dict[str, object]) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    address = url.rstrip("/") + "/api/v1/phases/"
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
