"""Differences between the clocks of hosts: heartbeats and deadlines compare their times."""

from datetime import datetime

from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning

WARNING_SECONDS = 1.0
PROBLEM_SECONDS = 10.0


def clock_finding(
    server: str, *, theirs: datetime, before: datetime, after: datetime
) -> DoctorFinding:
    """Compare a server's time with this host's time before and after reading it. All are aware."""
    name = f"clock and {server}"
    seconds = 0.0
    if theirs < before:
        seconds = (theirs - before).total_seconds()
    elif theirs > after:
        seconds = (theirs - after).total_seconds()
    seen = f"{server}'s clock differs by {seconds:+.1f} s"
    if abs(seconds) < WARNING_SECONDS:
        return ok(name, seen)
    judge = problem if abs(seconds) >= PROBLEM_SECONDS else warning
    return judge(name, seen, "Run a time service on both hosts: `timedatectl set-ntp true`.")
