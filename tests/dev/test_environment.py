"""When the environment is made anew, and what is said when it cannot be."""

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

from dev import environment
from dev.messages import SetupError
from dev.processes import ROOT
from dev.run import demo_settings, read_procfile


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A project with two locks and an environment whose Python is there."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    for name, value in {"VENV": "", "PYTHON": "bin/python", "STAMP": "installed.json", "LOG": "install.log"}.items():
        monkeypatch.setattr(environment, name, tmp_path / ".venv" / value)
    (tmp_path / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:00\n")
    (tmp_path / "requirements-dev.lock").write_text("a==1\nb==2\n")
    environment.PYTHON.parent.mkdir(parents=True)
    environment.PYTHON.symlink_to(sys.executable)
    installed = []
    monkeypatch.setattr(environment, "_install", installed.append)
    monkeypatch.setattr(environment, "_create", lambda: installed.append("created"))
    monkeypatch.setattr(environment, "_uv", lambda: "/usr/bin/uv")
    return installed


def test_environment_is_installed_once_for_a_lock(venv):
    environment.ensure("requirements.lock")
    environment.ensure("requirements.lock")
    assert venv == ["requirements.lock"]


def test_changed_lock_is_installed_again(venv, tmp_path):
    environment.ensure("requirements.lock")
    (tmp_path / "requirements.lock").write_text("a==2\n")
    environment.ensure("requirements.lock")
    assert venv == ["requirements.lock", "requirements.lock"]


def test_development_environment_serves_the_run_too(venv):
    environment.ensure("requirements-dev.lock")
    environment.ensure("requirements.lock")
    assert venv == ["requirements-dev.lock"]


def test_run_environment_does_not_serve_the_tests(venv):
    environment.ensure("requirements.lock")
    environment.ensure("requirements-dev.lock")
    assert venv == ["requirements.lock", "requirements-dev.lock"]


def test_environment_that_was_moved_is_made_anew(venv, tmp_path, monkeypatch):
    environment.ensure("requirements.lock")
    shutil.move(tmp_path / ".venv", tmp_path / "moved")
    for name in ("VENV", "PYTHON", "STAMP"):
        monkeypatch.setattr(
            environment, name, tmp_path / "moved" / getattr(environment, name).relative_to(tmp_path / ".venv")
        )
    environment.ensure("requirements.lock")
    assert venv == ["requirements.lock", "created", "requirements.lock"]


def test_environment_whose_python_is_gone_is_made_anew(venv):
    environment.ensure("requirements.lock")
    environment.PYTHON.unlink()
    environment.ensure("requirements.lock")
    assert venv == ["requirements.lock", "created", "requirements.lock"]


def test_no_space_is_said_before_anything_is_made(venv, monkeypatch):
    monkeypatch.setattr(environment, "NEEDED_BYTES", 1 << 62)
    with pytest.raises(SetupError, match="no space for the environment: free"):
        environment.ensure("requirements.lock")
    assert venv == []


def test_missing_venv_module_is_said(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="no venv module: apt-get install python3-venv, or install uv"):
        environment._create()


def test_installer_error_is_one_line():
    said = "Collecting a\nERROR: No space left on device\n\n[notice] A new release\n"
    assert environment._last_line(said) == "ERROR: No space left on device"


@pytest.mark.parametrize(
    ("variables", "line"), [("PORT=x", "error: PORT=x is no port: "), ("PYTHON=nopython3", "error: no nopython3: ")]
)
def test_make_says_what_is_wrong_in_one_line(variables, line, tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "run", f"VAR={tmp_path}", variables]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert "Traceback" not in done.stderr


def test_procfile_has_the_processes():
    assert list(read_procfile(ROOT / "Procfile")) == ["web", "worker", "archive", "beat", "capture"]
    assert list(read_procfile(ROOT / "Procfile.demo")) == ["simulate"]


def test_demo_settings_keep_their_secret(layout):
    first = demo_settings(8000, layout, "postgresql:///x", "unix:///y?db=0")
    again = demo_settings(8000, layout, "postgresql:///x", "unix:///y?db=0")
    assert first == again
    assert len(first["SECRET_KEY"]) > 60
    assert (layout.var / "secret").stat().st_mode & 0o777 == 0o600


def test_link_to_another_environment_is_not_emptied(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    (tmp_path / ".venv").symlink_to(other)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    with pytest.raises(SetupError, match="is a link"):
        environment._create()
    assert (other / "kept").exists()
