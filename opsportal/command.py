"""The command line of the portal: `opsportal` of the package, `manage.py` of a checkout.

`capture` is a program of its own, which starts without Django and without the portal's packages.
"""

import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command that `sys.argv` names."""
    if sys.argv[1:] == ["version"]:  # which Django keeps for its own
        from opsportal.version import VERSION

        sys.stdout.write(f"opsportal {VERSION}\n")
        return
    if sys.argv[1:] == ["files"]:
        from opsportal.checkout import FILES

        sys.stdout.write(f"{FILES}\n")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    if sys.argv[1:2] == ["capture"]:
        from apps.archive.local_capture import start_capture

        start_capture(sys.argv[2:])
    if find_spec("django") is None:
        sys.exit("error: only capture is installed: pip install 'opsportal[portal]'")
    if sys.argv[1:2] == ["setup"]:  # there are no settings yet
        from opsportal.setup.main import main as set_up

        sys.exit(set_up(sys.argv[2:]))
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
