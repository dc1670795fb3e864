"""The supervisor, with real processes."""

import math
import os
import signal
import sys
import time

import pytest

from dev.processes import read_stat, session_members, spawn, stop_all
from dev.supervisor import LOG_BYTES, Log, Stopped, Supervisor, describe


@pytest.fixture
def supervisor(layout):
    made = Supervisor(layout.run, layout.log, layout.var)
    made.environment = {**os.environ, "OPSPORTAL_RUN": str(layout.run)}
    yield made
    made.stop()


def until(condition, supervisor, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        supervisor.pump(0.01)


def shell(supervisor, name, script, **options):
    return supervisor.start(name, ["/bin/sh", "-c", script], supervisor.environment, **options)


def test_process_killed_is_started_again(supervisor, layout):
    child = shell(supervisor, "worker", "echo up; exec sleep 60")
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: child.process and child.process.pid != first, supervisor)
    assert (layout.run / "worker.pid").read_text().startswith(f"{child.process.pid} ")
    assert (
        "*** worker was killed by signal 9; starting it again in 1 s"
        in (layout.log / "worker.log").read_text()
    )


def test_process_killed_leaves_no_child_behind(supervisor):
    child = shell(supervisor, "worker", "sleep 60 & sleep 60 & wait")
    session = child.process.pid
    until(lambda: len(session_members(session)) == 3, supervisor)
    os.kill(session, signal.SIGKILL)
    until(lambda: child.process is None, supervisor)
    until(lambda: not session_members(session), supervisor)


def test_process_that_keeps_dying_is_started_ever_later(supervisor):
    child = shell(supervisor, "worker", "exit 3")
    delays = []
    for failures in (1, 2, 3):
        until(lambda wanted=failures: child.failures == wanted, supervisor)
        delays.append(math.ceil(child.retry_at - time.monotonic()))
        child.retry_at = time.monotonic()
    assert delays == [1, 2, 4]


def test_program_that_does_not_exist_is_said(supervisor, layout):
    supervisor.start("web", ["/does/not/exist"], {})
    assert "could not start: " in (layout.log / "web.log").read_text()


def test_command_run_once_keeps_its_status_and_words(supervisor):
    child = shell(supervisor, "migrate", "echo one; printf two; exit 4", restart=False)
    until(lambda: child.process is None, supervisor)
    assert (child.status, child.tail) == (4, [b"one", b"two"])


def test_stop_ends_a_process_that_ignores_sigterm(supervisor, monkeypatch):
    monkeypatch.setattr("dev.processes.PROCESS_GRACE_SECONDS", 0.3)
    child = shell(supervisor, "worker", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
    session = child.process.pid
    until(lambda: child.tail == [b"deaf"], supervisor)
    supervisor.stop()
    until(lambda: not session_members(session), supervisor)  # a signal is sent, not waited for


def test_stop_asked_raises_in_the_loop(supervisor):
    supervisor.ask_stop()
    with pytest.raises(Stopped):
        supervisor.pump()


def test_terminal_that_nobody_reads_stops_nothing(supervisor, layout):
    reader, writer = os.pipe()
    supervisor.terminal.descriptor = writer
    child = shell(
        supervisor,
        "worker",
        f'{sys.executable} -c \'print("x" * 99 + "\\n", end="") or None\'',
        restart=False,
    )
    until(lambda: child.process is None, supervisor)
    noisy = shell(supervisor, "noisy", "seq 1 40000; echo done", restart=False)
    until(lambda: noisy.process is None, supervisor)
    assert noisy.tail[-1] == b"done"
    assert supervisor.terminal.lost > 1000
    os.read(reader, 1 << 20)
    shell(supervisor, "last", "echo seen", restart=False)
    until(lambda: supervisor.terminal.lost == 0, supervisor)
    assert b"lines not shown here" in os.read(reader, 1 << 20)
    os.close(reader)
    os.close(writer)


def test_log_is_bounded(tmp_path):
    log = Log(tmp_path / "web.log")
    line = b"x" * 99_999
    for _ in range(50):
        log.write(line)
    log.file.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"web.log", "web.log.1"}
    assert max(sizes.values()) <= LOG_BYTES + 200_000


def test_stop_all_spares_a_stranger_with_a_reused_pid(layout):
    process = spawn("worker", ["sleep", "60"], layout.run)
    (layout.run / "worker.pid").write_text(f"{process.pid} another-boot:1\n")
    assert stop_all(layout.run) == 0
    assert read_stat(process.pid)
    assert not (layout.run / "worker.pid").exists()
    process.kill()
    process.wait()


def test_stop_all_ends_children_whose_leader_was_killed(supervisor, layout):
    environment = {**os.environ, "OPSPORTAL_RUN": str(layout.run)}
    process = spawn(
        "worker", ["/bin/sh", "-c", "sleep 60 & sleep 60 & wait"], layout.run, env=environment
    )
    until(lambda: len(session_members(process.pid)) == 3, supervisor)
    process.kill()
    process.wait()
    stop_all(layout.run)
    until(lambda: not session_members(process.pid), supervisor)  # a signal is sent, not waited for


@pytest.mark.parametrize(
    ("status", "words"),
    [(None, "did not start"), (-9, "was killed by signal 9"), (2, "ended with status 2")],
)
def test_describe(status, words):
    assert describe(status) == words
