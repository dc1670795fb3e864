"""`make fmt`: apply the safe fixes of ruff, then format.

Not templates: every formatter changes their white space.
"""

import subprocess
import sys
from pathlib import Path

from dev.processes import ROOT

RUFF = str(Path(sys.executable).parent / "ruff")


def main() -> int:
    """Return ruff's exit status: 1 when it leaves problems, which it has printed."""
    fixed = subprocess.run([RUFF, "check", "--fix", "."], cwd=ROOT, check=False).returncode
    return subprocess.run([RUFF, "format", "."], cwd=ROOT, check=False).returncode or fixed


if __name__ == "__main__":
    sys.exit(main())
