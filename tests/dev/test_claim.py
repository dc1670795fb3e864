"""What is taken or missing is one clear line; what a killed run left is stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dev import claim, processes
from dev.layout import Layout
from dev.messages import SetupError
from dev.processes import ROOT, read_stat


@pytest.fixture
def free_port():
    return processes.free_port()


def test_port_taken_is_said_with_the_mend(layout):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            SetupError, match=f"port {port} is taken: choose another: make run PORT={port + 1}"
        ):
            claim.claim(port, layout)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "eighty", ""])
def test_port_that_cannot_be_one_is_refused(port):
    with pytest.raises(SetupError, match=f"PORT={port} is no port"):
        claim.parse_options([f"--port={port}"])


def test_two_runs_on_one_var_are_refused(layout, free_port):
    lock = claim.claim(free_port, layout)
    with pytest.raises(
        SetupError, match=rf"another run \(pid {os.getpid()}\) uses {layout.var}: stop it"
    ):
        claim.claim(free_port, layout)
    os.close(lock)
    os.close(claim.claim(free_port, layout))


def test_no_space_is_said(layout, free_port, monkeypatch):
    monkeypatch.setattr(claim, "NEEDED_BYTES", 1 << 62)
    with pytest.raises(SetupError, match=f"no space: free .* on the disk of {layout.var}"):
        claim.claim(free_port, layout)


def test_var_that_is_a_file_is_said(tmp_path):
    (tmp_path / "var").write_text("")
    with pytest.raises(SetupError, match="choose another directory: make run VAR=DIR"):
        Layout(tmp_path / "var").create()


def test_long_or_odd_var_has_its_sockets_in_a_short_directory(tmp_path):
    for name in ("x" * 120, "with space"):
        layout = Layout(tmp_path / name)
        assert len(os.fsencode(layout.sockets)) < 60
        layout.create()
        assert layout.sockets.stat().st_mode & 0o777 == 0o700
        layout.leave()
        assert not layout.sockets.exists()


def test_sockets_of_somebody_else_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    layout = Layout(tmp_path / ("x" * 120))
    layout.sockets.symlink_to(tmp_path)
    with pytest.raises(SetupError, match="belongs to another user"):
        layout.create()


RUNNER = """
import sys, time
from pathlib import Path
from dev.layout import Layout
from dev import claim, processes
from dev.processes import guard, spawn
layout = Layout(Path(sys.argv[1]))
lock = claim.claim(int(sys.argv[2]), layout)
spawn("worker", ["sleep", "600"], layout.run)
if sys.argv[3] == "guarded":
    guard(layout.run, keep_open=(lock,))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("guarded", ["guarded", "alone"])
def test_run_killed_leaves_nothing_for_the_next(layout, free_port, guarded):
    command = [sys.executable, "-c", RUNNER, str(layout.var), str(free_port), guarded]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as runner:
        assert runner.stdout.readline() == b"ready\n"
        pid = int(Path(layout.run / "worker.pid").read_text().split()[0])
        runner.send_signal(signal.SIGKILL)
    if guarded == "guarded":
        end = time.monotonic() + 60
        while read_stat(pid):
            assert time.monotonic() < end, "the watchdog did not stop the process"
            time.sleep(0.02)
    else:
        assert read_stat(pid)
    os.close(claim.claim(free_port, layout))
    assert read_stat(pid) is None
