"""The steps of the drill, what each took, and what was wrong."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.database import set_up_django
from benchmarks.point_in_time.server import DATABASE, PASSPHRASE, BackupFailed, Server
from dev.processes import spawn
from dev.valkey import Valkey

if TYPE_CHECKING:
    from benchmarks.point_in_time.rows import Rows

MEGABYTE = 1_000_000
#: Jobs that are added before the incremental backup, and again before and after the moment.
NEW_JOBS = 20_000


class Drill:
    """Runs all steps on one server; prints the figures and the problems."""

    def __init__(self, base: Path, *, archive_timeout: int) -> None:
        self.server = Server(base, archive_timeout=archive_timeout)
        self.archive_timeout = archive_timeout
        self.problems: list[str] = []

    def close(self) -> None:
        self.server.close()

    def run(self, size_bytes: int) -> int:
        """Run the drill; return the exit status."""
        rows = self._fill(size_bytes)
        self._back_up(rows)
        expected, moment = self._write_and_lose(rows)
        self._restore(moment)
        self._check(rows, expected)
        self._damage_repository()
        for problem in self.problems:
            print(f"PROBLEM: {problem}")
        return int(bool(self.problems))

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        print(f"{time.monotonic() - start:8.1f} s   {step}", flush=True)

    def _fill(self, size_bytes: int) -> "Rows":
        with self._timed("database with generated rows"):
            self.server.start()
            self.server.postgres.create_database(DATABASE)
            self.server.back_up("stanza-create")
            self.server.back_up("check")
            base = self.server.base
            set_up_django(
                base,
                self.server.url,
                REDIS_URL=self._start_queue(),
                STATIC_DIR=str(base / "static"),
                LOG_LEVEL="ERROR",
            )
            from benchmarks.point_in_time.rows import Rows, start_portal

            rows = Rows()
            rows.fill(size_bytes)
            start_portal()
        print(f"{rows.size_bytes() / MEGABYTE:8,.0f} MB  database", flush=True)
        return rows

    def _start_queue(self) -> str:
        """Start what carries the portal's tasks; return its URL."""
        directory = self.server.base / "valkey"
        directory.mkdir()
        valkey = Valkey(directory, self.server.base)
        run = self.server.base / "run"
        spawn("valkey", valkey.command(), run, stdout=subprocess.DEVNULL)
        valkey.wait_ready()
        return valkey.url()

    def _back_up(self, rows: "Rows") -> None:
        with self._timed("full backup"):
            self.server.back_up("--type=full", "backup")
        self._print_repository("full backup in the repository", "backup")
        self._wal_of_filling = _size(self.server.repository / "archive")
        rows.mark("mark 1")
        rows.add_jobs(NEW_JOBS)
        with self._timed("incremental backup"):
            self.server.back_up("--type=incr", "backup")
        self._print_repository("both backups in the repository", "backup")

    def _print_repository(self, what: str, directory: str, *, without: int = 0) -> None:
        size = _size(self.server.repository / directory) - without
        print(f"{size / MEGABYTE:8,.0f} MB  {what}", flush=True)

    def _write_and_lose(self, rows: "Rows") -> tuple[dict[str, int], datetime]:
        """Commit marks before and after a moment, and lose the server.

        Return the counts of rows at the moment, and the moment.
        """
        from django.db import connection

        from benchmarks.point_in_time.rows import count_rows

        rows.mark("mark 2")
        rows.add_jobs(NEW_JOBS)
        moment = rows.mark("mark 3")
        expected = count_rows()
        rows.mark("mark 4")
        rows.add_jobs(NEW_JOBS)
        self._wait_until_archived()
        rows.mark("mark 5")
        self._print_repository(
            "WAL since the full backup, in the repository", "archive", without=self._wal_of_filling
        )
        connection.close()
        self.server.lose()
        return expected, moment

    def _wait_until_archived(self) -> None:
        (segment,) = self.server.ask("SELECT pg_walfile_name(pg_current_wal_lsn())")
        with self._timed(
            f"until the last commit was in the repository (archive_timeout {self.archive_timeout})"
        ):
            until = time.monotonic() + 2 * self.archive_timeout + 60
            while self.server.ask("SELECT last_archived_wal FROM pg_stat_archiver") < (segment,):
                if time.monotonic() > until:
                    self.problems.append("the WAL was not archived")
                    return
                time.sleep(0.2)

    def _restore(self, moment: datetime) -> None:
        with self._timed("restore: files"):
            target = f"--target={moment:%Y-%m-%d %H:%M:%S.%f%z}"
            self.server.restore("--type=time", target, "--target-action=promote")
        with self._timed("restore: WAL up to the moment"):
            self.server.start()
            while self.server.ask("SELECT pg_is_in_recovery()") == (True,):
                time.sleep(0.1)

    def _check(self, rows: "Rows", expected: dict[str, int]) -> None:
        from benchmarks.point_in_time.rows import count_rows, problems_of_portal, start_portal

        restored = count_rows()
        for table in sorted(expected.keys() | restored.keys()):
            before, after = expected.get(table), restored.get(table)
            if before != after:
                self.problems.append(f"{table}: {before} rows at the moment, {after} after")
        titles = rows.titles()
        if titles != ["mark 1", "mark 2", "mark 3"]:
            self.problems.append(f"restored are {', '.join(titles)}")
        with self._timed("portal notices the restore"):
            start_portal()
        self.problems += problems_of_portal(rows.operator)
        # The history goes on: a backup of the new timeline.
        with self._timed("incremental backup after the restore"):
            self.server.back_up("--type=incr", "backup")

    def _damage_repository(self) -> None:
        """Check that pgbackrest names a damaged file, a missing one, and a wrong passphrase."""
        from django.db import connection

        connection.close()
        self.server.lose()
        backups = self.server.repository / "backup"
        files = [path for path in backups.rglob("*") if path.is_file()]
        largest = max(files, key=lambda path: path.stat().st_size)
        with largest.open("r+b") as file:
            file.seek(largest.stat().st_size // 2)
            file.write(os.urandom(4096))
        self._expect_failure("damaged file", self.server.restore)
        largest.unlink()
        self._expect_failure("missing file", self.server.restore)
        text = self.server.configuration.read_text()
        self.server.configuration.write_text(text.replace(PASSPHRASE, "another passphrase"))
        self._expect_failure("wrong passphrase", self.server.restore)

    def _expect_failure(self, what: str, restore: Callable[[], None]) -> None:
        try:
            restore()
        except BackupFailed as error:
            lines = [line for line in str(error).splitlines() if "ERROR" in line]
            print(f"{'':8}     {what}: {lines[0] if lines else error}")
        else:
            self.problems.append(f"{what}: not noticed by the restore")


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
