"""Follow docs/production.md on a bare Debian 12, and print how long it takes.

    python -m benchmarks.installation [--setup] [--upgrade [--previous COMMIT]]
        [--directory DIRECTORY]

Boots a Debian with systemd in a container, and runs the commands of the guide as they are written:
from the packages to a job of a real Slurm that is archived and has its verdict, and two restores.
It installs the last commit, and this version of the guide.
With `--setup`, `opsportal setup` does the middle part. Needs root, mmdebstrap and systemd-nspawn,
free ports 80, 443, 5432 and 6379, and some 5 minutes. DIRECTORY keeps the bare Debian.

With `--upgrade`, it installs a former COMMIT in the same way, and follows *Upgrade* to the last
commit while users read pages, a program calls the API, and jobs run: first without downtime, and
back, then with a stop, and back with the dump. If the version of that commit is the one of the
last commit too, the benchmark gives it a lower one.

Exits with 1 if a command fails, and prints what it printed; also if a request fails while the site
is upgraded without downtime, or if a job of that time has no verdict.
"""

import argparse
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.installation.debian import CommandFailed, Debian, missing_tools
from benchmarks.installation.memory import Memory
from benchmarks.installation.repository import PREVIOUS_COMMIT, make_repository
from benchmarks.installation.site import CODE, REPOSITORY, Site
from benchmarks.installation.upgrade import Upgrade
from dev.processes import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setup", action="store_true", help="by `opsportal setup`")
    parser.add_argument("--upgrade", action="store_true", help="from a former commit to the last")
    parser.add_argument("--previous", metavar="COMMIT", default=PREVIOUS_COMMIT)
    parser.add_argument("--directory", type=Path, help="keeps the bare Debian for the next run")
    options = parser.parse_args()
    if os.geteuid():
        print("error: needs root", file=sys.stderr)
        return 2
    if missing := missing_tools():
        print(f"error: not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(TemporaryDirectory(prefix="opsportal-debian-")))
        repository = make_repository(temporary / "opsportal.git", options.previous)
        debian = Debian((options.directory or temporary).resolve())
        debian.prepare()
        stack.callback(debian.stop)
        try:
            debian.boot(f"{ROOT}:{CODE}", f"{repository.path}:{REPOSITORY}")
            if options.upgrade:
                site = Site(debian, repository.previous_version, say)
                install(site, by_setup=options.setup)
                upgrade(site, repository.version)
            else:
                site = Site(debian, repository.version, say)
                install(site, by_setup=options.setup)
                site.restore()
                site.restore_to_moment()
        except CommandFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


def say(line: str) -> None:
    print(line, flush=True)


def install(site: Site, *, by_setup: bool) -> None:
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


def upgrade(site: Site, version: str) -> None:
    to_version = Upgrade(site, version)
    memory = Memory(site.debian)
    try:
        to_version.upgrade_without_downtime()
        to_version.upgrade_with_stop()
    finally:
        memory.stop()
    for unit, megabytes in memory.peaks_mb.items():
        say(f"{megabytes:6} MB {unit}")


if __name__ == "__main__":
    sys.exit(main())
