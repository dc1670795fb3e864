"""Probe jobs of the portal on the simulated cluster.

Nothing runs there, so the simulation reports what a probe job would find: planted outages of
services, and a host that fails every job.
"""

import json
import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.demo.simulation.causes import CauseKind, SimulatedCause
from apps.demo.simulation.outages import SimulatedTrouble
from apps.demo.simulation.workload import SimulatedAttempt
from apps.demo.simulation.world import HOSTS, SAMWEB

log = logging.getLogger(__name__)

_RESULTS_PATH = "/api/v1/hosts/probe-results/"
_SECONDS = 6
#: The service that a shipped probe needs, by the name of the probe.
_SERVICES = {
    "cvmfs": "cvmfs",
    "storage": "dcache",
    "catalogue": SAMWEB,
    "database": "conditions-db",
}
#: What a probe of the host itself says, on a good host and on one that fails every job.
_OF_HOST = {
    "scratch": ("scratch: 182044 MB free", "scratch: Read-only file system"),
    "clock": ("0 s from the portal's clock", "0 s from the portal's clock"),
}


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe job posts to the portal, and where."""

    url: str
    token: str
    body: Mapping[str, Any]


def is_probe_job(values: Mapping[str, Any]) -> bool:
    """Return whether a submitted job, as the store has it, is a probe job of the portal."""
    return "OPSPORTAL_PROBES" in values["environment"]


def probe_attempts(
    values: Mapping[str, Any], raw_id: int, job_id: str, queued: int
) -> list[SimulatedAttempt]:
    """Return the single attempt of a probe job, on the host that it names."""
    short_name = values["host"].partition(".")[0]
    host = next((name for name in HOSTS if name.partition(".")[0] == short_name), "")
    if not host:
        return []
    cause = SimulatedCause(CauseKind.NONE, "")
    started = queued
    return [
        SimulatedAttempt(
            raw_id, job_id, 1, started, started + _SECONDS, host, cause, (), 0.2, 0.1, ()
        )
    ]


def report_of(
    variables: Sequence[str], attempt: SimulatedAttempt, trouble: SimulatedTrouble
) -> ProbeReport:
    """Return what a probe job with these variables reports at its end."""
    environment = dict(variable.split("=", 1) for variable in variables)
    phases = []
    for name in environment["OPSPORTAL_PROBES"].split():
        note = _trouble_of(name, attempt, trouble)
        good_note, _ = _OF_HOST.get(name, (f"{_SERVICES.get(name, name)} answers", ""))
        phases.append(
            {
                "name": name,
                "started_at": attempt.started,
                "ended_at": attempt.ended,
                "exit_code": 1 if note else 0,
                "note": note or good_note,
            }
        )
    body = {"job_id": attempt.job_id, "host": attempt.host, "phases": phases}
    url = environment["OPSPORTAL_URL"].rstrip("/") + _RESULTS_PATH
    return ProbeReport(url, environment["OPSPORTAL_PHASE_TOKEN"], body)


def _trouble_of(probe: str, attempt: SimulatedAttempt, trouble: SimulatedTrouble) -> str:
    """Return what a probe finds wrong; an empty text if nothing is."""
    bad_host = trouble.bad_host_at(attempt.ended)
    if probe == "scratch" and bad_host is not None and bad_host.host == attempt.host:
        return _OF_HOST["scratch"][1]
    service = _SERVICES.get(probe, "")
    if service and trouble.outage_at(service, attempt.ended):
        return f"{service} does not answer"
    return ""


def log_of_probes(report: ProbeReport) -> Iterator[str]:
    """Yield the lines of the log of a probe job."""
    for phase in report.body["phases"]:
        yield f"==> {phase['name']}\n{phase['note']}\n<== exit code {phase['exit_code']}\n"


class ReportSender(threading.Thread):
    """Posts reports in the background. What the portal does not take is lost, as on a host."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._reports: queue.SimpleQueue[ProbeReport] = queue.SimpleQueue()

    def send(self, report: ProbeReport) -> None:
        self._reports.put(report)

    def run(self) -> None:
        while True:
            report = self._reports.get()
            try:
                post_report(report)
            except (OSError, ValueError) as error:
                log.warning("probe job %s: %s", report.body["job_id"], error)


def post_report(report: ProbeReport) -> None:
    """Post a report. Raises `OSError` if the portal does not take it."""
    headers = {"Authorization": f"Bearer {report.token}", "Content-Type": "application/json"}
    body = json.dumps(report.body).encode()
    request = urllib.request.Request(report.url, body, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=10):  # noqa: S310
        pass
