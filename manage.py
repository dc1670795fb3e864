#!/usr/bin/env python
"""Django's command line. `capture` is a program of its own, which starts without Django."""

import os
import sys


def main() -> None:
    from importlib.util import find_spec
    from pathlib import Path

    if not all(map(find_spec, ("django", "celery", "pydantic"))):
        continue_in_environment()
    if sys.argv[1:] not in (["version"], ["files"]) and sys.argv[1:2] != ["setup"]:
        from opsportal.checkout import adopt_settings

        adopt_settings(Path(__file__).resolve().parent, os.environ)
    from opsportal.command import main as run_command

    run_command()


def continue_in_environment() -> None:
    """Start again with the Python of `.venv`, which has the packages that this one lacks.

    Exits where there is none.
    """
    from pathlib import Path

    environment = Path(__file__).resolve().parent / ".venv"
    python = environment / "bin/python"
    if Path(sys.prefix).resolve() == environment.resolve() or not os.access(python, os.X_OK):
        sys.exit(
            "error: the packages of the portal are not installed: make install, or see README.md"
        )
    os.execv(python, [str(python), *sys.argv])  # noqa: S606 - there is no shell on purpose


if __name__ == "__main__":
    main()
