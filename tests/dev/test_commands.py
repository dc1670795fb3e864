"""The smaller commands of the Makefile: `shell`, `types`, `lint`, `fmt`."""

import re
import socket
import subprocess
import sys

import pytest

from dev import checks
from dev.__main__ import COMMANDS
from dev.exports import read_exports, write_exports
from dev.layout import LONGEST_SOCKET_NAME
from dev.messages import SetupError
from dev.processes import ROOT
from dev.shell import shell_environment

ODD = {"ODD": 'it\'s a $HOME "path"', "EMPTY": "", "LINES": "one\ntwo = 2", "export": "export"}


@pytest.fixture
def listening(layout):
    """A database's socket under this VAR."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{layout.sockets}{LONGEST_SOCKET_NAME}")
        server.listen()
        yield layout


def test_make_knows_every_command():
    targets = re.search(r"^\.PHONY: (run .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert set(targets.split()) == set(COMMANDS)


def test_exports_are_read_by_a_shell_as_they_were(tmp_path):
    write_exports(tmp_path / "env", {"ODD": 'it\'s a $HOME "path"'})
    done = subprocess.run(
        ["sh", "-c", '. "$0"; printf %s "$ODD"', tmp_path / "env"], capture_output=True, check=True
    )
    assert done.stdout.decode() == 'it\'s a $HOME "path"'
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o600


def test_exports_are_read_as_they_were_written(tmp_path):
    write_exports(tmp_path / "env", ODD)
    assert read_exports(tmp_path / "env") == ODD


def test_shell_has_the_settings_of_the_run_whatever_is_set_outside(listening, monkeypatch):
    write_exports(
        listening.var / "env", {"DATABASE_URL": "postgresql:///demo", "SECRET_KEY": "demo"}
    )
    for name, value in {
        "DATABASE_URL": "postgresql:///real",
        "SECRET_KEY_FILE": "/real",
        "PGHOST": "real",
    }.items():
        monkeypatch.setenv(name, value)
    environment = shell_environment(listening)
    assert environment["DATABASE_URL"] == "postgresql:///demo"
    assert not {"SECRET_KEY_FILE", "PGHOST"} & set(environment)


def test_shell_without_a_set_up_portal_names_make_run(layout):
    with pytest.raises(
        SetupError, match=r"No such file or directory: start the portal first: make run"
    ):
        shell_environment(layout)


def test_shell_of_a_portal_that_is_stopped_names_make_run(layout):
    write_exports(layout.var / "env", {"DATABASE_URL": "postgresql:///demo"})
    with pytest.raises(SetupError, match=r"is not running: start it in another terminal: make run"):
        shell_environment(layout)


def test_named_checks_run_alone_and_failures_are_returned(monkeypatch, capfd):
    commands = {
        "good": [sys.executable, "-c", ""],
        "bad": [sys.executable, "-c", "exit('why')"],
        "other": ["/none"],
    }
    monkeypatch.setattr(checks, "CHECKS", commands)
    assert checks.run_checks(["good", "bad"]) == ["bad"]
    said = capfd.readouterr().out
    assert "check good passed" in said
    assert "check bad failed:\nwhy" in said
