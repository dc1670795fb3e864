"""The checks, then the tests: `make test`, `make test-fast`, `make lint`. More options go to pytest."""

import os
import subprocess
import sys
import time
from pathlib import Path

from dev.messages import SetupError, fail, say
from dev.processes import ROOT
from dev.system_parts import PARTS, PATH, install

BINARIES = Path(sys.executable).parent
# What production needs; no check connects to anything.
PRODUCTION = {
    "SECRET_KEY": "for the checks alone: fifty characters and more, none of them secret",
    "DATABASE_URL": "postgresql://opsportal@db.example.org/opsportal",
    "REDIS_URL": "rediss://redis.example.org/0",
    "PORTAL_URL": "https://opsportal.example.org",
}
MANAGE = [sys.executable, "-W", "ignore", "manage.py"]
CHECKS: dict[str, list[str | Path]] = {
    "ruff": [BINARIES / "ruff", "check", "--quiet", "."],
    "format": [BINARIES / "ruff", "format", "--quiet", "--check", "."],
    "imports": [BINARIES / "lint-imports", "--no-cache"],
    "templates": [BINARIES / "djlint", "--lint", "--quiet", "templates"],
    "deploy": [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"],
    "migrations": [*MANAGE, "makemigrations", "--check", "--dry-run"],
    "types": [BINARIES / "mypy", "apps", "opsportal", "dev"],
}


def run_checks() -> list[str]:
    """Run every check, all at once; print what the failing ones say and return their names."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_FILE")} | PRODUCTION
    began = time.monotonic()
    running = {
        name: subprocess.Popen(
            [str(part) for part in command], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for name, command in CHECKS.items()
    }  # fmt: skip
    failed = []
    for name, process in running.items():
        output, _ = process.communicate(timeout=600)
        verdict = f"failed:\n{output.rstrip()}" if process.returncode else "passed"
        say(f"check {name} {verdict}")
        failed += [name] if process.returncode else []
    say(f"checks took {time.monotonic() - began:.1f} s")
    return failed


def main() -> int:
    fast = "--fast" in sys.argv or "--checks" in sys.argv
    options = [option for option in sys.argv[1:] if option != "--fast"]
    try:
        if not fast:
            install(say)
        failed = run_checks()
    except (SetupError, OSError) as error:
        return fail(SetupError(str(error)))
    if sys.argv[1:] == ["--checks"]:
        return bool(failed)
    os.environ["PATH"] = f"{BINARIES}{os.pathsep}{PATH}"
    marks = ["-m", f"not ({' or '.join([*PARTS, 'slow'])})"] if fast else []
    say("running the tests")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "--durations", "5", *marks, *options]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if failed:
        print(f"error: failed checks: {', '.join(failed)}", file=sys.stderr)
    return status or bool(failed)


if __name__ == "__main__":
    sys.exit(main())
