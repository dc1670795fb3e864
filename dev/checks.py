"""The static checks: `make lint` runs all of them, `make types` one.

`python -m dev.checks [NAME …]`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dev.messages import say
from dev.processes import ROOT

BINARIES = Path(sys.executable).parent
# What production needs; no check connects to anything.
PRODUCTION = {
    "SECRET_KEY": "for the checks alone: fifty characters and more, none of them secret",
    "DATABASE_URL": "postgresql://opsportal@db.example.org/opsportal",
    "REDIS_URL": "rediss://redis.example.org/0",
    "PORTAL_URL": "https://opsportal.example.org",
    "TRUST_PROXY": "true",
}
MANAGE = [sys.executable, "-W", "ignore", "manage.py"]
CHECKS: dict[str, list[str | Path]] = {
    "ruff": [BINARIES / "ruff", "check", "--quiet", "."],
    "format": [BINARIES / "ruff", "format", "--quiet", "--check", "."],
    "imports": [BINARIES / "lint-imports", "--no-cache"],
    "plain": [sys.executable, "-m", "dev.plain"],
    "templates": [BINARIES / "djlint", "--lint", "--quiet", "templates"],
    "deploy": [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"],
    "migrations": [sys.executable, "-W", "ignore", "-m", "dev.migrations"],
    "vulnerabilities": [sys.executable, "-m", "dev.audit"],
    "types": [BINARIES / "mypy", "apps", "capture", "opsportal", "dev", "clients/opsctl/opsctl"],
}


#: Checks whose only line of output, without their name, is shown even if they pass.
_WITH_RESULT = ("plain", "vulnerabilities")


def run_checks(
    names: Sequence[str] = tuple(CHECKS), *, report: Callable[[str], object] = say
) -> list[str]:
    """Run these checks in parallel; report their results, and return the names of failed ones."""
    own = {name: value for name, value in os.environ.items() if not name.endswith("_FILE")}
    environment = own | PRODUCTION
    began = time.monotonic()
    running = {name: _start(CHECKS[name], environment) for name in names}
    failed = []
    for name, process in running.items():
        output, _ = process.communicate(timeout=600)
        result = "passed"
        if process.returncode:
            result = f"failed:\n{output.rstrip()}"
            failed.append(name)
        elif name in _WITH_RESULT:
            result = output.strip().partition(": ")[2]
        report(f"check {name} {result}")
    report(f"checks took {time.monotonic() - began:.1f} s")
    return failed


def _start(command: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


if __name__ == "__main__":
    sys.exit(bool(run_checks(sys.argv[1:] or tuple(CHECKS))))
