"""The checks, then the tests: `make test`, `make test-fast`. More options go to pytest."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from dev.checks import BINARIES, run_checks
from dev.messages import SetupError, fail, say
from dev.processes import ROOT
from dev.system_parts import PARTS, PATH, install


def main() -> int:
    fast = "--fast" in sys.argv
    options = [option for option in sys.argv[1:] if option != "--fast"]
    try:
        failed = run_checks() if fast else install_and_check()
    except (SetupError, OSError) as error:
        return fail(SetupError(str(error)))
    # pytest rewrites the modules of the tests, and keeps them only where it may write bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PATH"] = f"{BINARIES}{os.pathsep}{PATH}"
    marks = ["-m", f"not ({' or '.join([*PARTS, 'slow'])})"] if fast else []
    say("running the tests")
    # Four on two processors: many tests wait for programs, and would leave one idle.
    command = [sys.executable, "-m", "pytest", "-n", "4", "--dist", "loadgroup", "--durations", "5", *marks, *options]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if failed:
        print(f"error: failed checks: {', '.join(failed)}", file=sys.stderr)
    return status or bool(failed)


def install_and_check() -> list[str]:
    """Run the checks while the parts of the system are fetched, and return the names of those that failed."""
    with ThreadPoolExecutor(1) as thread:
        installation = thread.submit(install, say)
        failed = run_checks()
        installation.result()
    return failed


if __name__ == "__main__":
    sys.exit(main())
