"""Bundles of files, unpacked as users do it."""

import subprocess
from pathlib import Path


def unpack(content: bytes, directory: Path) -> None:
    """Unpack a tar file into a directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-f", "-", "-C", directory], input=content, check=True, timeout=60)
