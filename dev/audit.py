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
    """Return whether the check passes, and its result as a text, from the output of pip-audit."""
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last_error = (errors.strip().splitlines() or ["no output"])[-1]
        return True, f"skipped, no answer of the database: {last_error[:200]}"

    flaws = []
    skip_reasons = []
    for package in packages:
        for flaw in package.get("vulns", []):
            fixed_in = ", ".join(flaw["fix_versions"]) or "none"
            name = f"{package['name']} {package['version']}"
            flaws.append(f"{name}: {flaw['id']}, fixed in {fixed_in}")
        if "skip_reason" in package:
            skip_reasons.append(package["skip_reason"])
    if flaws:
        return False, "\n".join(flaws)
    if skip_reasons:
        count = f"{len(skip_reasons)} of {len(packages)}"
        return True, f"skipped for {count} packages: {skip_reasons[0]}"
    return True, f"none known in {len(packages)} packages"


def main() -> int:
    audit = [str(Path(sys.executable).parent / "pip-audit"), *COMMAND, "--timeout", "5"]
    try:
        done = subprocess.run(
            audit, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        passed, result = verdict(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        passed = True
        result = "skipped, the database did not answer within 120 s"
    say(f"vulnerabilities: {result}")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
