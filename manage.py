#!/usr/bin/env python
"""Django's command line. `capture` comes here a second time, by itself, and then without Django."""

import os
import sys


def main() -> None:
    if sys.argv[1:3] == ["capture", "--planned"]:
        from apps.archive.capture.run import run_planned

        sys.exit(run_planned(int(sys.argv[3])))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
