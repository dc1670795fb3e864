"""`make shell`: Django's shell on the portal that `make run` has set up.

Runs inside the environment.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from dev.exports import read_exports
from dev.layout import LONGEST_SOCKET_NAME, Layout
from dev.messages import SetupError, fail
from dev.postgres import clean_environment
from dev.processes import ROOT


def shell_environment(layout: Layout) -> dict[str, str]:
    """Return our environment updated with the run's settings.

    Raises `SetupError` if no portal is running.
    """
    try:
        settings = read_exports(layout.var / "env")
    except OSError as error:
        raise SetupError(
            f"{error.filename}: {error.strerror}: start the portal first: make run"
        ) from error
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(f"{layout.sockets}{LONGEST_SOCKET_NAME}"):
            raise SetupError(
                f"the portal of {layout.var} is not running: start it in another terminal: make run"
            )
    replaced = {f"{name}_FILE" for name in settings}
    own = {name: value for name, value in clean_environment().items() if name not in replaced}
    return own | settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="make shell", add_help=False)
    parser.add_argument("--var", default="var")
    options, arguments = parser.parse_known_args()
    try:
        environment = shell_environment(Layout(Path(options.var or "var")))
    except SetupError as error:
        return fail(error)
    return os.execve(
        sys.executable, [sys.executable, str(ROOT / "manage.py"), "shell", *arguments], environment
    )


if __name__ == "__main__":
    sys.exit(main())
