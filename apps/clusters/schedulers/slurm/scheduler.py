"""The Slurm adapter: its parts put together behind the protocol of `base`."""

from collections.abc import Mapping
from pathlib import Path

from .spool import MAX_FILE_BYTES, SlurmSpool


class Slurm:
    """One Slurm cluster. Options: `conf`, `bin`, `timeout_seconds`, `max_file_bytes`."""

    name = "slurm"

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.max_file_bytes = int(options.get("max_file_bytes", MAX_FILE_BYTES))

    def spool(self, directory: Path) -> SlurmSpool:
        """Return the spool at `directory`, slurmctld's StateSaveLocation."""
        return SlurmSpool(directory, max_file_bytes=self.max_file_bytes)
