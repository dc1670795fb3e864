"""`make release`: build what a site installs into `dist/`, then tag the commit.

It refuses before it builds anything. The tag is its last step, so a release that failed leaves
none.
"""

import argparse
import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.environment import ROOT
from dev.messages import SetupError, fail, say
from opsportal.version import VERSION

DIST = ROOT / "dist"
TAG = f"v{VERSION}"
LOCK = ROOT / "requirements.lock"


def main() -> int:
    """Return the exit status: 1 with a reason when there is no release."""
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("--wheels", action="store_true", help="add the wheels of all dependencies")
    options = parser.parse_args()
    try:
        refuse_unready()
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        os.environ["SOURCE_DATE_EPOCH"] = _run("git", "log", "-1", "--format=%ct").strip()
        build_wheel()
        write_parts_list()
        shutil.copyfile(LOCK, DIST / f"opsportal-{VERSION}.requirements.lock")
        if options.wheels:
            download_wheels()
        write_checksums()
        _run("git", "tag", "--annotate", "--message", f"opsportal {VERSION}", TAG)
    except SetupError as error:
        return fail(error)
    say(f"tagged {TAG}: git push origin {TAG}")
    return 0


def refuse_unready() -> None:
    """Raise `SetupError` unless the commit is one that can be released."""
    changes = _run("git", "status", "--porcelain").splitlines()
    if changes:
        raise SetupError(f"files differ from the commit, first {changes[0].strip()}: commit them")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(VERSION)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise SetupError(
            f"CHANGELOG.md has no section of this version: add ## {VERSION} - YYYY-MM-DD"
        )
    if _run("git", "tag", "--list", TAG):
        raise SetupError(f"the tag {TAG} exists: raise the version in pyproject.toml")


def build_wheel() -> None:
    """Build the wheel twice, and raise `SetupError` if the two differ."""
    say("building the wheel twice")
    with tempfile.TemporaryDirectory() as second:
        for directory in (DIST, Path(second)):
            _run_module("hatchling", "build", "--target", "wheel", "--directory", str(directory))
        wheel = DIST / f"opsportal-{VERSION}-py3-none-any.whl"
        if not filecmp.cmp(wheel, Path(second) / wheel.name, shallow=False):
            raise SetupError(f"two builds of {wheel.name} differ: find what changes between them")


def write_parts_list() -> None:
    """Write the packages of the lock with their versions and hashes, in the format CycloneDX."""
    say("listing the parts")
    path = DIST / f"opsportal-{VERSION}.cdx.json"
    options = ["--output-reproducible", "--pyproject", "pyproject.toml", "--output-file", str(path)]
    # The addresses of a mirror that this machine uses are not part of the release.
    _run_module("cyclonedx_py", "requirements", *options, "--short-PURLs", str(LOCK))


def download_wheels() -> None:
    """Download each package of the lock, so that a site can install without a network."""
    say("downloading the wheels of all dependencies")
    options = ["--quiet", "--require-hashes", "--only-binary=:all:", "--dest", str(DIST / "wheels")]
    _run_module("pip", "download", *options, "--requirement", str(LOCK))


def write_checksums() -> None:
    """Write `SHA256SUMS` for `sha256sum --check`, and say what the release consists of."""
    lines = []
    for path in sorted(DIST.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest}  {path.relative_to(DIST)}\n")
            say(f"dist/{path.relative_to(DIST)} ({path.stat().st_size / 1e6:.1f} MB)")
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    say("dist/SHA256SUMS")


def _run_module(module: str, *arguments: str) -> str:
    return _run(sys.executable, "-m", module, *arguments)


def _run(*command: str) -> str:
    """Return what a command prints. Raises `SetupError` with the last line of its errors."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise SetupError(f"{Path(command[0]).name} {' '.join(command[1:4])}: {lines[-1]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
