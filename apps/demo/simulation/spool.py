"""Write and purge spool entries as slurmctld does; entries of the past appear complete."""

import os
import shutil
from pathlib import Path

_STAGING = ".staging"


class SpoolWriter:
    """The spool of a simulated cluster at `root`, its StateSaveLocation."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(root / _STAGING, ignore_errors=True)

    def path_of(self, job_id: int) -> Path:
        """Return the directory of a job."""
        return self.root / f"hash.{job_id % 10}" / f"job.{job_id}"

    def write(self, job_id: int, environment: list[bytes], script: bytes) -> None:
        """Write an entry in slurmctld's order: variables one by one, then script and NUL."""
        path = self.path_of(job_id)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        # A killed process may have left half of it.
        shutil.rmtree(path, ignore_errors=True)
        _write_entry(path, environment, script)

    def backfill(
        self, job_id: int, environment: list[bytes], script: bytes, submitted: float
    ) -> None:
        """Add a complete entry that was submitted in the past, with its times."""
        path = self.path_of(job_id)
        staged = self.root / _STAGING / f"job.{job_id}"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists():
            return
        staged.parent.mkdir(mode=0o700, exist_ok=True)
        _write_entry(staged, environment, script)
        for written in (staged / "environment", staged / "script", staged):
            os.utime(written, (submitted, submitted))
        staged.rename(path)

    def purge(self, job_id: int) -> None:
        """Remove an entry, files first, as slurmctld does."""
        path = self.path_of(job_id)
        for name in ("environment", "script"):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def _write_entry(path: Path, environment: list[bytes], script: bytes) -> None:
    path.mkdir(mode=0o700)
    with open(
        path / "environment",
        "wb",
        buffering=0,
        opener=lambda name, flags: os.open(name, flags, 0o600),
    ) as file:
        file.writelines(environment)
    with open(
        path / "script", "wb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o700)
    ) as file:
        file.write(script + b"\0")
