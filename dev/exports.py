"""Settings of a run as a file for shells to source: `make run` writes it,
`manage.py` and `make shell` read it.
"""

import shlex
from pathlib import Path


def write_exports(path: Path, settings: dict[str, str]) -> None:
    """Write the settings with which a shell runs `manage.py` on this run.

    The file contains the secret key.
    """
    path.touch(mode=0o600)
    path.write_text(
        "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    )


def read_exports(path: Path) -> dict[str, str]:
    """Return the settings that `write_exports` wrote. Raises `OSError`."""
    assignments = [part for part in shlex.split(path.read_text()) if part != "export"]
    return dict(assignment.split("=", 1) for assignment in assignments)
