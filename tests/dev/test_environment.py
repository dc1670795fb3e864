"""When the environment is made anew, and what is said when it cannot be."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dev import bytecode, environment, run
from dev.messages import SetupError
from dev.processes import ROOT
from dev.run import Preparation, demo_settings, read_procfile

REAL_WHICH = shutil.which


def set_project(root, monkeypatch):
    """Let the module under test make the environment of another project."""
    monkeypatch.setattr(environment, "ROOT", root)
    for name, value in {
        "VENV": "",
        "PYTHON": "bin/python",
        "STAMP": "installed.json",
        "LOG": "install.log",
    }.items():
        monkeypatch.setattr(environment, name, root / ".venv" / value)


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A project with two locks and an environment whose Python is there."""
    set_project(tmp_path, monkeypatch)
    (tmp_path / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:00\n")
    (tmp_path / "requirements-dev.lock").write_text("a==1\nb==2\n")
    environment.PYTHON.parent.mkdir(parents=True)
    environment.PYTHON.symlink_to(sys.executable)
    environment.STAMP.write_text(
        json.dumps(environment._wanted("requirements.lock") | {"lock": "an earlier one"})
    )
    installed = []
    monkeypatch.setattr(environment, "_install", installed.append)
    monkeypatch.setattr(environment, "_create", lambda: installed.append("created"))
    monkeypatch.setattr(environment, "compile_packages", lambda directory: None)
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
            environment,
            name,
            tmp_path / "moved" / getattr(environment, name).relative_to(tmp_path / ".venv"),
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


def test_environment_of_a_killed_setup_is_made_again_from_nothing(venv, monkeypatch):
    environment.ensure("requirements.lock")
    monkeypatch.setattr(environment, "_install", killed)
    with pytest.raises(KeyboardInterrupt):
        environment.ensure("requirements-dev.lock")
    monkeypatch.setattr(environment, "_install", venv.append)
    venv.clear()
    environment.ensure("requirements.lock")
    assert venv == ["created", "requirements.lock"]


def killed(lock_name):
    """Stand for an installer that dies when half of the packages are there."""
    raise KeyboardInterrupt


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a lock of one package, which installers find in a folder;
    there is no package index.
    """
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    digest = write_wheel(wheels / "tiny-1.0-py3-none-any.whl")
    (tmp_path / "requirements.lock").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
    (tmp_path / "requirements-dev.lock").write_text("absent==1\n")
    (tmp_path / "requirements-uv.lock").write_text("uv==0.0.1 --hash=sha256:00\n")
    set_project(tmp_path, monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


def uv_of_tests():
    """Return a real uv: that of the machine, or that which the setup has fetched."""
    uv = REAL_WHICH("uv") or Path(sys.executable).with_name("uv")
    if not Path(uv).exists():
        pytest.skip("there is no uv: pip has made this environment")
    return str(uv)


def write_wheel(path):
    """Write a wheel with a module `tiny`, and return its SHA-256."""
    files = {
        "tiny.py": "ANSWER = 42\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["tiny-1.0.dist-info/RECORD"] = (
        "".join(f"{name},,\n" for name in files) + "tiny-1.0.dist-info/RECORD,,\n"
    )
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def answer_of(project):
    """Return what a process of the environment prints, which also must not write any bytecode."""
    command = [project / ".venv/bin/python", "-c", "import tiny; print(tiny.ANSWER)"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_pip_installs_where_uv_cannot_be_had(project, capfd):
    environment.ensure("requirements.lock")
    assert answer_of(project) == "42\n"
    assert "installing 1 packages with pip" in capfd.readouterr().out
    packages = next(project.glob(".venv/lib/python*/site-packages"))
    assert not (packages / "pip").exists(), "pip runs from the wheel that comes with Python"
    assert list(packages.glob("__pycache__/tiny.*.pyc")), (
        "compiled, although processes must not write bytecode"
    )


def test_uv_installs_where_it_is_there(project, monkeypatch, capfd):
    monkeypatch.setattr(shutil, "which", lambda name: uv_of_tests() if name == "uv" else None)
    environment.ensure("requirements.lock")
    assert answer_of(project) == "42\n"
    assert "with pip" not in capfd.readouterr().out


def test_package_with_another_hash_is_refused_by_uv_and_pip(project, monkeypatch, capfd):
    monkeypatch.setattr(shutil, "which", lambda name: uv_of_tests() if name == "uv" else None)
    (project / "requirements.lock").write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(SetupError, match=r"could not install the packages: .*(?i:hash)"):
        environment.ensure("requirements.lock")
    assert "uv failed, trying pip" in capfd.readouterr().out
    assert not environment.STAMP.exists()


def test_changed_module_is_compiled_again(tmp_path):
    module = tmp_path / "apps/module.py"
    module.parent.mkdir()
    module.write_text("")
    bytecode.compile_project([module.parent])
    compiled = next(module.parent.glob("__pycache__/module.*.pyc"))
    first = compiled.read_bytes()
    bytecode.compile_project([module.parent])
    assert compiled.read_bytes() == first
    module.write_text("ANSWER = 42\n")
    os.utime(module, (0, 0))
    bytecode.compile_project([module.parent])
    assert compiled.read_bytes() != first


def test_module_with_a_syntax_error_stops_no_setup(tmp_path, capfd):
    (tmp_path / "broken.py").write_text("def")
    bytecode.compile_project([tmp_path])
    assert capfd.readouterr() == ("", "")


def test_missing_venv_module_is_said(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SetupError, match="no venv module: apt-get install python3-venv, or install uv"
    ):
        environment._create()


def test_installer_error_is_one_line():
    said = "Collecting a\nERROR: No space left on device\n\n[notice] A new release\n"
    assert environment._last_line(said) == "ERROR: No space left on device"


@pytest.mark.parametrize(
    ("variables", "line"),
    [("PORT=x", "error: PORT=x is no port: "), ("PYTHON=nopython3", "error: no nopython3: ")],
)
def test_make_says_what_is_wrong_in_one_line(variables, line, tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "run", f"VAR={tmp_path}", variables]
    done = subprocess.run(
        command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("status", "chosen"), [(0, True), (1, False)])
def test_make_prefers_the_python_of_the_distribution_if_it_suits(status, chosen, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", "install", f"DISTRIBUTION_PYTHON={python}"]
    done = subprocess.run(
        command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=30, check=True
    )
    assert f"exec {python if chosen else 'python3'} -m dev install" in done.stdout


def test_procfile_has_the_processes():
    assert list(read_procfile(ROOT / "Procfile")) == ["web", "worker", "archive", "beat", "capture"]
    assert list(read_procfile(ROOT / "Procfile.demo")) == ["web", "worker", "capture", "simulate"]


def test_demo_runs_web_and_capture_as_production_does():
    production, demo = (read_procfile(ROOT / name) for name in ("Procfile", "Procfile.demo"))
    assert (demo["web"], demo["capture"]) == (production["web"], production["capture"])


def test_worker_of_the_demo_takes_all_queues_and_the_schedule():
    production, demo = (read_procfile(ROOT / name) for name in ("Procfile", "Procfile.demo"))
    queues = [re.search(r"--queues (\S+)", production[name])[1] for name in ("worker", "archive")]
    assert re.search(r"--beat .*--queues (\S+)", demo["worker"])[1] == ",".join(queues)


def test_preparation_is_current_until_code_or_data_change(layout, monkeypatch):
    monkeypatch.setattr(run, "digest_of_code", lambda: "first")
    preparation = Preparation(layout)
    preparation.remember("logins of the demo")
    assert not preparation.is_current(), "there is neither database nor static files"
    layout.postgres.mkdir()
    (layout.postgres / "PG_VERSION").touch()
    (layout.var / "static").mkdir()
    assert preparation.is_current()
    assert preparation.logins() == "logins of the demo"
    monkeypatch.setattr(run, "digest_of_code", lambda: "second")
    preparation.remember("")
    changed = Preparation(layout)
    assert not changed.is_current(), "the first code was prepared, whatever has changed meanwhile"
    changed.remember("")
    assert changed.is_current()
    changed.forget()
    assert not changed.is_current()


def test_digest_of_the_code_knows_every_file(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    template = tmp_path / "templates/jobs/job.html"
    template.parent.mkdir(parents=True)
    template.write_text("a")
    digests = [run.digest_of_code()]
    template.write_text("ab")
    digests.append(run.digest_of_code())
    template.rename(template.with_name("other.html"))
    digests.append(run.digest_of_code())
    assert len(set(digests)) == 3
    (template.parent / "compiled.pyc").touch()
    assert run.digest_of_code() == digests[-1]
    (tmp_path / "requirements.lock").write_text("django==5.2\n")
    assert run.digest_of_code() != digests[-1]


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
