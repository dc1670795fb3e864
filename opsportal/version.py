"""The version of the portal. It is written only in `pyproject.toml`.

A package has no such file: there it is part of what pip recorded.
"""

import tomllib
from importlib import metadata
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def _read_version() -> str:
    if _PROJECT.exists():
        return str(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"])
    return metadata.version("opsportal")


VERSION = _read_version()
