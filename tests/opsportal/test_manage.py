"""`manage.py` in a checkout: which settings and which Python it takes, and its version."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dev.exports import write_exports
from opsportal.checkout import adopt_settings
from opsportal.version import VERSION

ROOT = Path(__file__).parents[2]
DEMO = {
    "DATABASE_URL": "postgresql:///demo",
    "SECRET_KEY": "demo",
    "LOG_LEVEL": "INFO",
    "PATH": "/demo",
}


@pytest.fixture
def checkout(tmp_path):
    """A checkout in which `make run` and `make run VAR=second` have each set up a portal."""
    for var in ("var", "second"):
        (tmp_path / var).mkdir()
        write_exports(tmp_path / var / "env", DEMO | {"VAR_DIR": str(tmp_path / var)})
    return tmp_path


def test_settings_of_the_run_fill_an_environment_that_has_none(checkout):
    environment = {"PATH": "/usr/bin", "LOG_LEVEL": "DEBUG"}
    adopt_settings(checkout, environment)
    assert environment == DEMO | {
        "VAR_DIR": str(checkout / "var"),
        "PATH": "/usr/bin",
        "LOG_LEVEL": "DEBUG",
    }


@pytest.mark.parametrize("absolute", [False, True])
def test_var_chooses_the_run(checkout, absolute):
    environment = {"VAR": str(checkout / "second") if absolute else "second"}
    adopt_settings(checkout, environment)
    assert environment["VAR_DIR"] == str(checkout / "second")


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "SECRET_KEY_FILE", "MASKING_KEY", "CAPTURE_SPOOL", "PORTAL_URL"]
)
def test_one_setting_of_another_portal_keeps_the_environment_as_it_is(checkout, name):
    environment = {name: "given"}
    adopt_settings(checkout, environment)
    assert environment == {name: "given"}


def test_nothing_is_taken_where_nothing_was_set_up(tmp_path):
    environment = {"VAR": "var"}
    adopt_settings(tmp_path, environment)
    assert environment == {"VAR": "var"}


def test_manage_needs_no_sourcing(checkout):
    write_exports(
        checkout / "var/env",
        {name: os.environ[name] for name in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")},
    )
    code = "from django.conf import settings; print(settings.DATABASES['default']['ENGINE'])"
    done = run(ROOT / "manage.py", "shell", "--no-imports", "-c", code, VAR=str(checkout / "var"))
    assert done.stdout == "opsportal.postgresql\n"


def test_manage_goes_on_with_the_python_of_the_checkout(bare):
    python = bare / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = run(bare / "manage.py", "migrate", "--plan", isolated=True)
    assert done.stdout == f"{bare / 'manage.py'} migrate --plan\n"


def test_manage_without_packages_says_how_to_install_them(bare):
    done = run(bare / "manage.py", "migrate", isolated=True)
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: the packages of the portal are not installed: make install, or see README.md\n"
    )


def test_version_is_that_of_the_project():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    done = run(ROOT / "manage.py", "version")
    assert (done.stdout, done.stderr) == (f"opsportal {VERSION}\n", "")


@pytest.fixture
def bare(tmp_path):
    """A directory that holds `manage.py` alone."""
    shutil.copy(ROOT / "manage.py", tmp_path)
    return tmp_path


def run(
    script, *arguments: str, isolated: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with these variables alone; `isolated`: with a Python that has no packages."""
    command = [sys.executable, *(["-S"] if isolated else []), str(script), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
