"""Creates `.venv` from a hashed lock: with uv, which it fetches where there is none, else with pip.

It does so only if the lock has changed. The stamp is written last and removed first, so that an
environment without one is half made: it is made again from nothing.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dev.bytecode import compile_packages
from dev.messages import SetupError, say

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin/python"
STAMP = VENV / "installed.json"
LOG = VENV / "install.log"
#: uv itself, which pip installs.
UV_LOCK = "requirements-uv.lock"
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NEEDED_BYTES = 900_000_000


def ensure(lock_name: str) -> Path:
    """Return the Python of the environment, with everything in the lock installed.

    Raises `SetupError`.
    """
    with _alone():
        stamp = _read_stamp()
        if not is_current(stamp, lock_name):
            _make_room()
            if not _usable(stamp):
                _create()
            STAMP.unlink(missing_ok=True)
            _install(lock_name)
            say("compiling the packages")
            compile_packages(VENV)
            STAMP.write_text(json.dumps(_wanted(lock_name)))
    return PYTHON


def is_current(stamp: dict[str, str], lock_name: str) -> bool:
    """Return whether the environment matches this lock, or the development lock,
    which includes it.
    """
    locks = {lock_name, "requirements-dev.lock"}
    return os.access(PYTHON, os.X_OK) and stamp in [_wanted(name) for name in locks]


def _wanted(lock_name: str) -> dict[str, str]:
    digest = hashlib.sha256((ROOT / lock_name).read_bytes()).hexdigest()
    return {"home": str(VENV), "python": _python_version(), "lock": digest}


def _python_version() -> str:
    return ".".join(str(number) for number in sys.version_info[:2])


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
        raise SetupError(
            f"no permission to write in {ROOT}: clone the project to a directory of your own"
        )
    if shutil.disk_usage(ROOT).free < NEEDED_BYTES:
        raise SetupError(
            f"no space for the environment: free {NEEDED_BYTES // 1_000_000} MB on the disk "
            f"of {ROOT}"
        )


def _usable(stamp: dict[str, str]) -> bool:
    """Return whether packages can be installed into the existing environment: it is whole,
    and was made here.
    """
    made_here = stamp.get("home") == str(VENV) and stamp.get("python") == _python_version()
    return made_here and os.access(PYTHON, os.X_OK)


def _create() -> None:
    """Make an environment without pip, which takes a moment; pip alone would take seconds."""
    if VENV.is_symlink():
        raise SetupError(".venv is a link, and what it points to would be emptied: remove the link")
    can_install = shutil.which("uv") or importlib.util.find_spec("ensurepip")
    if importlib.util.find_spec("venv") is None or not can_install:
        raise SetupError(
            "this Python has no venv module: apt-get install python3-venv, or install uv"
        )
    say("making .venv")
    command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)]
    done = subprocess.run(
        command, env=_tool_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"could not make .venv: {_last_line(done.stderr or done.stdout)}")


def _install(lock_name: str) -> None:
    """Install the lock with uv; with pip where uv cannot be had, or fails."""
    lock = ROOT / lock_name
    count = sum("==" in line for line in lock.read_text().splitlines())
    if uv := _provide_uv():
        say(f"installing {count} packages with uv")
        if _run(
            [uv, "pip", "install", "--require-hashes", "-r", str(lock), "--python", str(PYTHON)],
            _uv_environment(),
        ):
            return
        say("uv failed, trying pip")
    say(f"installing {count} packages with pip; the first time that takes up to a minute")
    if not _run_pip(lock, count):
        raise SetupError(
            f"could not install the packages: {_last_line(LOG.read_text())} (all of it: {LOG})"
        )


def _provide_uv() -> str | None:
    """Return the uv of the environment or of the system.

    Where there is none, fetch it; None if that fails.
    """
    own = VENV / "bin/uv"
    if own.exists():
        return str(own)
    if uv := shutil.which("uv"):
        return uv
    say("fetching uv")
    return str(own) if _run_pip(ROOT / UV_LOCK) and own.exists() else None


def _run_pip(lock: Path, count: int = 0) -> bool:
    """Install a lock into the environment with the pip that comes with Python;
    return whether it succeeded.
    """
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-compile"]
    command = [str(PYTHON), "-m", "pip", "install", "--require-hashes", "-r", str(lock), *options]
    return _run(command, _pip_environment(), count)


def _pip_environment() -> dict[str, str]:
    """Return an environment in which `python -m pip` runs from the wheel of `ensurepip`,
    without being installed.
    """
    environment = _tool_environment()
    directories = [Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/nonexistent")]
    if spec := importlib.util.find_spec("ensurepip"):
        directories += [Path(home) / "_bundled" for home in spec.submodule_search_locations or []]
    for directory in directories:
        wheels = sorted(directory.glob("pip-*.whl"))
        if wheels:
            environment["PYTHONPATH"] = str(wheels[0])
            break
    return environment


def _uv_environment() -> dict[str, str]:
    """Return an environment for uv with pip's package index,
    since uv does not read pip's configuration.
    """
    environment = _tool_environment()
    environment.setdefault("UV_PYTHON_DOWNLOADS", "never")
    # The administrator says whom to trust, also for a proxy that inspects traffic.
    if SYSTEM_CERTIFICATES.exists():
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    if "UV_DEFAULT_INDEX" not in environment and (
        index := environment.get("PIP_INDEX_URL") or _configured_index()
    ):
        environment["UV_DEFAULT_INDEX"] = index
    return environment


def _configured_index() -> str:
    """Return the package index in pip's configuration files, or an empty text."""
    command = [str(PYTHON), "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(
        command, env=_pip_environment(), capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def _run(command: list[str], environment: dict[str, str], count: int = 0) -> bool:
    """Run an installer with its output in the log; print progress every few seconds if it
    installs `count` packages.
    """
    fetched = 0
    reported_at = time.monotonic()
    with (
        LOG.open("w") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as installer,
    ):
        for line in installer.stdout or ():
            log.write(line)
            fetched += line.startswith("Collecting ")
            if count and time.monotonic() - reported_at > 5:
                reported_at = time.monotonic()
                say(f"{fetched} of {count} packages fetched")
    return installer.returncode == 0


def _tool_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONHOME")
    }


def _last_line(text: str) -> str:
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith(("[notice]", "WARNING"))
    ]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1]
