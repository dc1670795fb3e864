"""Creates `.venv` from a hashed lock, with uv if found, else pip; only if the lock has changed."""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dev.messages import SetupError, say

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin/python"
STAMP = VENV / "installed.json"
LOG = VENV / "install.log"
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NEEDED_BYTES = 900_000_000


def ensure(lock_name: str) -> Path:
    """Return the Python of the environment, with everything in the lock installed. Raises `SetupError`."""
    with _alone():
        stamp = _read_stamp()
        if not is_current(stamp, lock_name):
            _make_room()
            if not _usable(stamp):
                _create()
            _install(lock_name)
            STAMP.write_text(json.dumps(_wanted(lock_name)))
    return PYTHON


def is_current(stamp: dict[str, str], lock_name: str) -> bool:
    """Return whether the environment matches this lock, or the development lock, which includes it."""
    locks = {lock_name, "requirements-dev.lock"}
    return os.access(PYTHON, os.X_OK) and stamp in [_wanted(name) for name in locks]


def _wanted(lock_name: str) -> dict[str, str]:
    digest = hashlib.sha256((ROOT / lock_name).read_bytes()).hexdigest()
    return {"home": str(VENV), "python": ".".join(map(str, sys.version_info[:2])), "lock": digest}


def _read_stamp() -> dict[str, str]:
    with suppress(OSError, ValueError):
        return dict(json.loads(STAMP.read_text()))
    return {}


@contextmanager
def _alone() -> Iterator[None]:
    """Let only one command at a time create the environment of a working tree."""
    directory = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command that makes the environment")
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _make_room() -> None:
    if not os.access(ROOT, os.W_OK):
        raise SetupError(f"no permission to write in {ROOT}: clone the project to a directory of your own")
    if shutil.disk_usage(ROOT).free < NEEDED_BYTES:
        raise SetupError(f"no space for the environment: free {NEEDED_BYTES // 1_000_000} MB on the disk of {ROOT}")


def _uv() -> str | None:
    own = VENV / "bin/uv"
    return str(own) if own.exists() else shutil.which("uv")


def _usable(stamp: dict[str, str]) -> bool:
    """Return whether packages can be installed into the existing environment."""
    ours = stamp.get("home", str(VENV)) == str(VENV)
    with_pip = any(VENV.glob("lib/python*/site-packages/pip"))
    return ours and os.access(PYTHON, os.X_OK) and (with_pip or _uv() is not None)


def _create() -> None:
    if VENV.is_symlink():
        raise SetupError(".venv is a link, and what it points to would be emptied: remove the link")
    uv = shutil.which("uv")
    if uv:
        say("making .venv with uv")
        command = [uv, "venv", "--quiet", "--no-project", "--clear", "--python", sys.executable, str(VENV)]
    else:
        if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
            raise SetupError("this Python has no venv module: apt-get install python3-venv, or install uv")
        say("making .venv")
        command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    done = subprocess.run(command, env=_tool_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"could not make .venv: {_last_line(done.stderr or done.stdout)}")


def _install(lock_name: str) -> None:
    count = sum(" --hash=" not in line and "==" in line for line in (ROOT / lock_name).read_text().splitlines())
    options = ["install", "--require-hashes", "-r", str(ROOT / lock_name)]
    if uv := _uv():
        say(f"installing {count} packages with uv")
        if _run([uv, "pip", *options, "--python", str(PYTHON)]):
            return
        say("uv did not succeed, trying pip")
    if not any(VENV.glob("lib/python*/site-packages/pip")):
        raise SetupError(f"could not install the packages: {_last_line(LOG.read_text())}")
    say(f"installing {count} packages with pip; the first time that takes up to a minute")
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-compile"]
    if not _run([str(PYTHON), "-m", "pip", *options, *quiet], count):
        raise SetupError(f"could not install the packages: {_last_line(LOG.read_text())} (all of it: {LOG})")


def _run(command: list[str], count: int = 0) -> bool:
    """Run an installer with its output in the log; print progress every few seconds."""
    fetched, told_at = 0, time.monotonic()
    with (
        LOG.open("w") as log,
        subprocess.Popen(
            command, env=_tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as installer,
    ):
        for line in installer.stdout or ():
            log.write(line)
            fetched += line.startswith("Collecting ")
            if count and time.monotonic() - told_at > 5:
                told_at = time.monotonic()
                say(f"{fetched} of {count} packages fetched")
    return installer.returncode == 0


def _tool_environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
    environment.setdefault("UV_PYTHON_DOWNLOADS", "never")
    if SYSTEM_CERTIFICATES.exists():  # the administrator's word on whom to trust, also for a proxy that looks in
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    return environment


def _last_line(text: str) -> str:
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("[notice]", "WARNING"))
    ]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1]
