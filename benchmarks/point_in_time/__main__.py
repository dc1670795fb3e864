"""Lose a database, restore it to a moment by pgbackrest, and check what came back.

    python -m benchmarks.point_in_time [--size GB] [--archive-timeout SECONDS]
        [--directory DIRECTORY]

A PostgreSQL on disk with the portal's schema and generated requests, jobs and contents of the
archive. It archives its WAL into an encrypted repository, with the options of
`deploy/pgbackrest/pgbackrest.conf`. Then: a full backup, requests and jobs, an incremental backup,
requests before and after a moment, `kill -9`, the data directory removed, a restore to the moment.

Needs `pgbackrest` (apt-get install pgbackrest), PostgreSQL 15 or later, and free space of three
times the size. Prints seconds and sizes. Exits with 1 if something that was committed before the
moment is missing, something after it is there, production is not on hold, or a damaged repository
is not noticed.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.point_in_time.drill import Drill

GIGABYTE = 1_000_000_000
#: Of the size: the database, its copy in the repository, and WAL.
FREE_SPACE_FACTOR = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=float, default=0.2, metavar="GB", help="default: 0.2")
    parser.add_argument(
        "--archive-timeout", type=int, default=60, metavar="SECONDS", help="default: 60"
    )
    parser.add_argument("--directory", type=Path, help="where there is space (default: /tmp)")
    options = parser.parse_args()
    if shutil.which("pgbackrest") is None:
        print("error: pgbackrest is missing: apt-get install pgbackrest", file=sys.stderr)
        return 2
    size_bytes = int(options.size * GIGABYTE)
    base = Path(tempfile.mkdtemp(prefix="opsportal-drill-", dir=options.directory))
    free_bytes = shutil.disk_usage(base).free
    if free_bytes < FREE_SPACE_FACTOR * size_bytes + GIGABYTE:
        print(f"error: only {free_bytes / GIGABYTE:.1f} GB free in {base.parent}", file=sys.stderr)
        base.rmdir()
        return 2
    drill = Drill(base, archive_timeout=options.archive_timeout)
    try:
        return drill.run(size_bytes)
    finally:
        drill.close()


if __name__ == "__main__":
    sys.exit(main())
