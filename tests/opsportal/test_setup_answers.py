"""The answers of `opsportal setup`: what is wrong with them is named before anything is changed."""

import os
import pty
import select
import sys
from pathlib import Path

import pytest

from opsportal.setup.answers import SetupAnswers, read_answers
from opsportal.setup.errors import BadAnswers, SetupError
from opsportal.setup.main import main
from opsportal.setup.questions import ASKED
from tests.deploy.portal_site import bare_environment

ROOT = Path(__file__).parents[2]
GOOD = 'PORTAL_URL = "https://opsportal.example.org"\n'


@pytest.fixture
def refuse(tmp_path, capsys):
    """Run the setup with this file of answers; return what it says, and expect no file of it."""

    def refuse(text, mode=0o600):
        path = tmp_path / "answers.toml"
        path.write_text(text)
        path.chmod(mode)
        env_file = tmp_path / "etc/opsportal.env"
        assert main(["--answers", str(path), "--env-file", str(env_file)]) == 1
        assert list(tmp_path.iterdir()) == [path]
        return capsys.readouterr().err.replace(str(path), "FILE")

    return refuse


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('PORTAL_URL = "opsportal.example.org"', "FILE, line 3: PORTAL_URL: "),
        ('TIME_ZONE = "Mars/Olympus"', "FILE, line 3: TIME_ZONE: is not a time zone"),
        ('DATABASE_URL = "mysql://x@y/z"', "FILE, line 3: DATABASE_URL: must begin with "),
        ('DATABASE_URL = "postgresql://db/opsportal"', "line 3: DATABASE_URL: names no role"),
        ('DATABASE_URL = "postgresql://me@db"', "line 3: DATABASE_URL: names no database"),
        ('REDIS_URL = ""', "line 3: REDIS_URL: is missing"),
        ('database_admin = "root"', "line 3: database_admin: must be local, none or begin"),
        ('system_user = "no-such-user"', "line 3: system_user: there is no user no-such-user: use"),
        ('VAR_DIR = "var"', "line 3: VAR_DIR: must begin with /"),
        ("LOG_ROOTS = [1, 2]", "line 3: LOG_ROOTS: must be a text, a number"),
        ("DEMO = true", "line 3: DEMO: is never set on a site"),
        ('admin_nmae = "ann"', "line 3: admin_nmae: is no question; did you mean admin_name?"),
        ("[admin_name]\nx = 1", "line 3: admin_name: must be a text"),
        ("HOST_PROBE_HOURS = 10_000", "line 3: HOST_PROBE_HOURS: "),
        ("TIME_ZONE = Berlin", "FILE: Invalid value (at line 3, column 13)"),
    ],
)
def test_bad_answer_is_named_with_its_line(refuse, line, says):
    said = refuse(f"# of a test\nHOST_PROBE_MINUTES = 5\n{line}\n")
    assert says in said
    assert "Nothing was changed." in said
    assert "Traceback" not in said


def test_all_bad_answers_are_listed_at_once(refuse):
    said = refuse('TIME_ZONE = "x"\nPORTAL_URL = "y"\n')
    assert said.index("line 1: TIME_ZONE") < said.index("line 2: PORTAL_URL")


def test_missing_answer_is_named(refuse):
    assert "FILE: PORTAL_URL: is missing.\n" in refuse("system_user = 'root'\n")


def test_redis_that_does_not_answer_is_named(refuse):
    said = refuse(f'{GOOD}system_user = "root"\nREDIS_URL = "unix:///no/such/socket"\n')
    assert "line 3: REDIS_URL: Redis does not answer" in said


def test_admin_who_cannot_connect_is_named(refuse):
    said = refuse(
        f'{GOOD}system_user = "root"\nREDIS_URL = "{os.environ["REDIS_URL"]}"\n'
        'DATABASE_URL = "postgresql://a@/a?host=/no/such"\n'
        'database_admin = "postgresql://b:of-the-admin@/b?host=/no/such"\n'
    )
    assert "line 5: database_admin: connection " in said
    assert "of-the-admin" not in said


def test_secrets_that_all_can_read_are_refused(refuse):
    said = refuse(f'{GOOD}admin_password = "x"\n', mode=0o644)
    assert "every user of this host can read it, and it holds admin_password" in said


def test_answers_file_that_is_missing(tmp_path, capsys):
    assert main(["--answers", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'}: No such file or directory\n"


def test_values_of_toml_become_settings(tmp_path):
    path = tmp_path / "answers.toml"
    path.write_text('TRUST_PROXY = false\nLOG_ROOTS = ["/a", "/b"]\nHOST_PROBE_HOURS = 3\n')
    assert read_answers(path).values == {
        "TRUST_PROXY": "false",
        "LOG_ROOTS": "/a,/b",
        "HOST_PROBE_HOURS": "3",
    }


def test_defaults_follow_the_answers():
    answers = SetupAnswers(
        {"PORTAL_URL": "https://portal.example.org", "VAR_DIR": "/srv/portal"}, file="x"
    )
    answers.values["system_user"] = "root" if os.geteuid() == 0 else os.environ["USER"]
    answers.complete(ASKED)
    assert answers.values["EMAIL_FROM"] == "opsportal@portal.example.org"
    assert answers.values["STATIC_DIR"] == "/srv/portal/static"


def test_reject_names_what_has_no_line():
    with pytest.raises(BadAnswers, match=r"^x: is wrong\.\nNothing was changed\.$"):
        SetupAnswers().reject({"x": "is wrong", "y": ""})


def test_nobody_can_be_asked_without_a_terminal(monkeypatch):
    monkeypatch.setattr(os, "isatty", lambda descriptor: False)
    with pytest.raises(SetupError, match="give --answers FILE"):
        SetupAnswers().complete(ASKED)


def test_questions_are_asked_at_a_terminal(tmp_path):
    """A bad answer is asked for again; at the end of the input nothing was changed."""
    env_file = tmp_path / "etc/opsportal.env"
    command = [sys.executable, str(ROOT / "manage.py"), "setup", "--env-file", str(env_file)]
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, command, bare_environment())
    talk = [
        ("System user that runs the portal [", "root" if os.geteuid() == 0 else ""),
        ("Address of the portal, such as", "opsportal"),
        ("PORTAL_URL: ", ""),
        ("PORTAL_URL: is missing", "https://opsportal.example.org"),
        ("Time zone of the site [", ""),
        ("Directories of job logs", "\x04"),
    ]
    said = ""
    for text, answer in talk:
        said = read_until(terminal, text)
        os.write(terminal, answer.encode() + (b"" if answer == "\x04" else b"\n"))
    said = read_until(terminal, "No answer. Nothing was changed.")
    assert "Traceback" not in said
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1
    os.close(terminal)
    assert not env_file.parent.exists()


def read_until(terminal, text):
    """Return what the terminal shows, from here to this text and the end of its prompt."""
    said = ""
    while text not in said:
        assert select.select([terminal], [], [], 60)[0], said
        said += os.read(terminal, 10_000).decode()
    return said
