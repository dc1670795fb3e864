"""Follow docs/production.md on a bare Debian 12, and print how long it takes.

    python -m benchmarks.installation [--setup] [--directory DIRECTORY]

Boots a Debian with systemd in a container, and runs the commands of the guide as they are written:
from the packages to a job of a real Slurm that is archived and has its verdict, and two restores.
It installs the last commit, and this version of the guide.
With `--setup`, `opsportal setup` does the middle part. Needs root, mmdebstrap and systemd-nspawn,
free ports 80, 443, 5432 and 6379, and some 5 minutes. DIRECTORY keeps the bare Debian.

Exits with 1 if a command fails, and prints what it printed.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.installation.debian import CommandFailed, Debian, missing_tools
from benchmarks.installation.site import CODE, Site
from dev.processes import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setup", action="store_true", help="by `opsportal setup`")
    parser.add_argument("--directory", type=Path, help="keeps the bare Debian for the next run")
    options = parser.parse_args()
    if os.geteuid():
        print("error: needs root", file=sys.stderr)
        return 2
    if missing := missing_tools():
        print(f"error: not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    directory = options.directory or Path(tempfile.mkdtemp(prefix="opsportal-debian-"))
    debian = Debian(directory.resolve())
    debian.prepare()
    try:
        debian.boot(f"{ROOT}:{CODE}")
        follow(Site(debian, say), by_setup=options.setup)
    except CommandFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        debian.stop()
        if not options.directory:
            shutil.rmtree(directory)
    return 0


def say(line: str) -> None:
    print(line, flush=True)


def follow(site: Site, *, by_setup: bool) -> None:
    begun = time.monotonic()
    if by_setup:
        site.install_by_setup()
    else:
        site.install_by_hand()
    installed = time.monotonic()
    site.start_slurm()
    cluster_seconds = time.monotonic() - installed
    site.run_failing_job()
    total = time.monotonic() - begun - cluster_seconds
    say(f"{total:6.1f} s  from a bare machine to the first verdict, without starting Slurm")
    site.restore()
    site.restore_to_moment()


if __name__ == "__main__":
    sys.exit(main())
