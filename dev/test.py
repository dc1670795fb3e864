"""The checks, then the tests: `make test`, `make test-fast`. More options go to pytest."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from dev.checks import BINARIES, run_checks
from dev.messages import SetupError, fail, say
from dev.processes import ROOT
from dev.system_parts import PARTS, PATH, install


def main() -> int:
    fast = "--fast" in sys.argv
    options = [option for option in sys.argv[1:] if option != "--fast"]
    checked: list[str] = []
    with ThreadPoolExecutor(1) as thread:
        checks = thread.submit(run_checks, report=checked.append)
        try:
            if not fast:
                install(say)
        except (SetupError, OSError) as error:
            return fail(SetupError(str(error)))
        status = run_tests(options, fast=fast)
        failed = checks.result()
    print(*checked, sep="\n", flush=True)
    if failed:
        print(f"error: failed checks: {', '.join(failed)}", file=sys.stderr)
    return status or bool(failed)


def run_tests(options: Sequence[str], *, fast: bool) -> int:
    """Return the exit status of pytest."""
    environment = os.environ | {"PATH": f"{BINARIES}{os.pathsep}{PATH}"}
    # pytest rewrites the modules of the tests, and keeps them only where it may write bytecode.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    marks = ["-m", f"not ({' or '.join([*PARTS, 'slow'])})"] if fast else []
    compile_tests(environment)
    say("running the tests, and the checks beside them")
    # Five on two processors: many tests wait for programs, and would leave one idle.
    # A test that fails once in thousands of runs should not cost a run of all. Three in a run are
    # no accident. pytest-xdist would start a test that kills its process again and again.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "5",
        "--dist",
        "loadgroup",
        "--reruns",
        "1",
        "--max-suite-reruns",
        "2",
        "--rerun-show-tracebacks",
        "--max-worker-restart",
        "0",
        "--durations",
        "5",
        *marks,
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def compile_tests(environment: Mapping[str, str]) -> None:
    """Let pytest rewrite the modules of the tests once; else each of its processes does it.

    That is 9 of the 16 seconds of CPU after which a process has its tests.
    """
    if any((ROOT / "tests").rglob("*-pytest-*.pyc")):
        return
    say("compiling the tests")
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "--quiet"]
    # The run that follows reports what cannot be collected.
    subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
    # Hypothesis keeps which characters are text, too, for all processes: a second of CPU.
    command = [sys.executable, "-c", "from hypothesis.strategies import text; text().validate()"]
    subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
