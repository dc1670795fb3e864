"""Runs the portal's own commands as processes, with the settings of the site and no others."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from opsportal.env import Environment
from opsportal.setup.errors import SetupError
from opsportal.setup.files import Owner

#: The directory that holds the packages `opsportal` and `apps`.
_CODE = Path(__file__).resolve().parents[2]


def run_portal(
    arguments: Sequence[str],
    *,
    settings: Mapping[str, str],
    owner: Owner,
    text: str = "",
    lock: int | None = None,
) -> str:
    """Run `opsportal ARGUMENTS` as this user, with `text` as its input; return what it prints.

    The command keeps the descriptor `lock` open as long as it runs. Raises `SetupError` with what
    it prints, if it fails.
    """
    command = [sys.executable, "-P", "-m", "opsportal", *arguments]
    user = group = groups = None
    if os.geteuid() == 0 and owner.uid != 0:
        user = owner.uid
        group = owner.gid
        groups = [owner.gid]
    done = subprocess.run(
        command,
        cwd="/",
        env=make_environment(settings),
        input=text,
        capture_output=True,
        text=True,
        check=False,
        pass_fds=[] if lock is None else [lock],
        user=user,
        group=group,
        extra_groups=groups,
        umask=0o022,  # nginx reads the static files
    )
    if done.returncode:
        raise SetupError(f"opsportal {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def make_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: this process's, except for settings and for libpq."""
    names = set(Environment.model_fields)
    names |= {f"{name}_FILE" for name in Environment.model_fields}
    environment = {}
    for name, value in os.environ.items():
        if name not in names and not name.startswith("PG"):
            environment[name] = value
    environment.update(settings)
    environment["DJANGO_SETTINGS_MODULE"] = "opsportal.settings"
    path = os.environ.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{_CODE}{os.pathsep}{path}" if path else str(_CODE)
    return environment


def has_admin(*, settings: Mapping[str, str], owner: Owner) -> bool:
    """Return whether the portal's database has an active admin; without tables it has none."""
    output = run_portal(["first_admin", "--exists"], settings=settings, owner=owner)
    return output.splitlines()[-1] == "yes"


def find_admin_faults(
    answers: Mapping[str, str], *, settings: Mapping[str, str], owner: Owner
) -> dict[str, str]:
    """Return what is wrong with the answers about the first admin, by their keys."""
    output = run_portal(
        ["first_admin", "--validate"], settings=settings, owner=owner, text=format_admin(answers)
    )
    faults = json.loads(output.splitlines()[-1])
    keys = {"username": "admin_name", "email": "admin_email", "password": "admin_password"}
    return {keys[field]: reason for field, reason in faults.items()}


def format_admin(answers: Mapping[str, str]) -> str:
    """Return the input of `first_admin`."""
    return json.dumps(
        {
            "username": answers["admin_name"],
            "email": answers["admin_email"],
            "password": answers["admin_password"],
        }
    )
