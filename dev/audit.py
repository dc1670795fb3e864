"""Known vulnerabilities of the locked packages, by pip-audit;
skipped if its database cannot be reached.
"""

import json
import subprocess
import sys
from pathlib import Path

from dev.messages import say
from dev.processes import ROOT

#: pip-audit installs nothing: it looks up names and versions of the hashed lock.
COMMAND = [
    "-r",
    "requirements-dev.lock",
    "--disable-pip",
    "--require-hashes",
    "--progress-spinner",
    "off",
    "-f",
    "json",
]


def verdict(output: str, errors: str) -> tuple[bool, str]:
    """Return whether the check passes, and its result in words, from the output of pip-audit."""
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return (
            True,
            (
                "skipped, no answer of the database: "
                f"{(errors.strip().splitlines() or ['no output'])[-1][:200]}"
            ),
        )
    known = [
        (
            f"{package['name']} {package['version']}: {flaw['id']}, fixed in "
            f"{', '.join(flaw['fix_versions']) or 'none'}"
        )
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    if known:
        return False, "\n".join(known)
    unknown = [package for package in packages if "skip_reason" in package]
    if unknown:
        return (
            True,
            f"skipped for {len(unknown)} of {len(packages)} packages: {unknown[0]['skip_reason']}",
        )
    return True, f"none known in {len(packages)} packages"


def main() -> int:
    audit = [str(Path(sys.executable).parent / "pip-audit"), *COMMAND, "--timeout", "5"]
    try:
        done = subprocess.run(
            audit, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        passed, words = verdict(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        passed, words = True, "skipped, the database did not answer within 120 s"
    say(f"vulnerabilities: {words}")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
