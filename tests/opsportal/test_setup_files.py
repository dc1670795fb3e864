"""Files that `opsportal setup` writes: closed, whole, never through a link; read alike by all."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opsportal.setup.database import DatabaseTarget, make_verifier, quote_name, quote_text
from opsportal.setup.errors import SetupError
from opsportal.setup.files import (
    Owner,
    check_directory,
    create_directory,
    create_file,
    env_faults,
    fits_env_file,
    format_env,
    parse_env,
    read_file,
)
from opsportal.setup.main import main
from opsportal.setup.portal import make_environment
from opsportal.setup.questions import holds_secret
from opsportal.setup.site import SetupSite

OWNER = Owner(name="portal", uid=os.geteuid(), gid=65534 if os.geteuid() == 0 else os.getegid())


@pytest.fixture
def closed(tmp_path):
    tmp_path.chmod(0o750)
    return tmp_path


@pytest.mark.parametrize("umask", [0, 0o077])
def test_file_is_closed_whatever_the_umask_is(closed, umask):
    before = os.umask(umask)
    try:
        create_file(closed / "secret", "x\n", OWNER)
        create_directory(closed / "d", mode=0o750, uid=OWNER.uid, gid=OWNER.gid)
    finally:
        os.umask(before)
    status = (closed / "secret").stat()
    assert (status.st_mode & 0o777, status.st_gid) == (OWNER.secret_mode, OWNER.gid)
    assert (closed / "d").stat().st_mode & 0o777 == 0o750
    assert read_file(closed / "secret") == "x"
    assert sorted(path.name for path in closed.iterdir()) == ["d", "secret"]


def test_file_is_never_replaced(closed):
    create_file(closed / "secret", "first", OWNER)
    with pytest.raises(SetupError, match="File exists"):
        create_file(closed / "secret", "second", OWNER)
    assert read_file(closed / "secret") == "first"


def test_leftover_of_a_killed_setup_is_no_file(closed):
    (closed / ".secret.new").write_text("hal")
    create_file(closed / "secret", "whole", OWNER)
    assert read_file(closed / "secret") == "whole"
    assert [path.name for path in closed.iterdir()] == ["secret"]


@pytest.mark.parametrize("name", ["secret", ".secret.new"])
def test_file_is_not_written_through_a_link(closed, tmp_path_factory, name):
    target = tmp_path_factory.mktemp("elsewhere") / "target"
    target.write_text("of someone")
    (closed / name).symlink_to(target)
    if name == "secret":
        with pytest.raises(SetupError, match="File exists"):
            create_file(closed / "secret", "x", OWNER)
        with pytest.raises(SetupError, match="symbolic link"):
            read_file(closed / "secret")
    else:
        create_file(closed / "secret", "x", OWNER)
        assert not (closed / "secret").is_symlink()
    assert target.read_text() == "of someone"


def test_directory_that_is_a_link_is_refused(closed, tmp_path_factory):
    link = closed / "link"
    link.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(SetupError, match="symbolic links are not followed"):
        check_directory(link)
    with pytest.raises(SetupError, match=r"symbolic|Too many levels|Not a directory"):
        create_file(link / "secret", "x", OWNER)


def test_settings_are_not_written_through_a_link(closed, tmp_path_factory, capsys):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (closed / "etc").symlink_to(elsewhere)
    (closed / "answers.toml").write_text('PORTAL_URL = "https://opsportal.example.org"')
    options = ["--answers", str(closed / "answers.toml"), "--env-file", str(closed / "etc/env")]
    for more in ([], ["--dry-run"]):
        assert main([*options, *more]) == 1
        assert "symbolic links are not followed" in capsys.readouterr().err
    assert not list(elsewhere.iterdir())


def test_directory_in_which_others_write_is_refused(closed):
    closed.chmod(0o770)
    with pytest.raises(SetupError, match="Other users can write"):
        check_directory(closed)


def test_secret_that_all_can_read_is_refused(closed):
    (closed / "secret").write_text("x")
    (closed / "secret").chmod(0o644)
    with pytest.raises(SetupError, match="chmod 640"):
        read_file(closed / "secret")
    (closed / "secret").chmod(0o640)
    assert read_file(closed / "secret") == "x"


def test_fifo_is_no_secret(closed):
    os.mkfifo(closed / "secret", 0o600)
    with pytest.raises(SetupError, match="is no file"):
        read_file(closed / "secret")


@settings(max_examples=50)
@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12))
@example("a'b")
@example("'a' # b")
@example('"$HOME"')
@example("a b")
def test_line_without_a_fault_is_read_alike_by_sh_and_as_systemd_does(tmp_path_factory, value):
    """`opsportal-manage` reads as systemd does; here it is compared with a real shell."""
    text = f"NAME={value}\n"
    if env_faults(text):
        return
    path = tmp_path_factory.mktemp("env") / "opsportal.env"
    path.write_text(text)
    sourced = subprocess.run(
        ["/bin/sh", "-c", '. "$1"; printf %s "$NAME"', "sh", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": "/root"},
    ).stdout
    assert sourced == parse_env(text, path).get("NAME")
    assert sourced == _as_systemd(value)


def _as_systemd(value: str) -> str:
    """Drop quotes around a value, and trailing blanks; nothing is expanded."""
    value = value.strip()
    if len(value) >= 2 and value[0] in "'\"" and value[-1] == value[0]:
        return value[1:-1]
    return value


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("A=b", False),
        ("A='b c $d'", False),
        ('A="b c"', False),
        ("# a comment, isn't it", False),
        ("A=b c", True),
        ("A=$b", True),
        ('A="$b"', True),
        ("A='it'\\''s'", True),
        ("A=b#c", True),
        ("export A=b", True),
    ],
)
def test_lines_that_are_read_differently_are_named(line, is_fault):
    assert env_faults(f"X=1\n\n{line}\n") == ({3: line.partition("=")[0]} if is_fault else {})


def test_example_of_the_guide_has_no_such_line():
    guide = (Path(__file__).parents[2] / "docs/production.md").read_text()
    example = guide.partition("Then `/etc/opsportal/opsportal.env`:\n\n")[2].partition("\n\n")[0]
    assert "REDIS_URL_FILE=" in example
    assert env_faults(example) == {}


@given(st.text().filter(fits_env_file))
def test_setup_writes_no_such_line(value):
    assert env_faults(format_env({"NAME": value})) == {}


@given(st.text().filter(fits_env_file))
def test_every_value_is_read_back(value):
    assert parse_env(format_env({"NAME": value}), "x") == {"NAME": value}


@pytest.mark.parametrize("value", ["", "a b", 'say "x"', "$HOME `id`", "a;b", "#no", "ä", "a=b"])
def test_shell_reads_the_same_value(tmp_path, value):
    assert fits_env_file(value)
    path = tmp_path / "env"
    path.write_text(format_env({"NAME": value}))
    script = 'set -a; . "$1"; exec printenv NAME'
    done = subprocess.run(["sh", "-c", script, "sh", path], capture_output=True, check=True)
    assert done.stdout.decode() == value + "\n"


@pytest.mark.parametrize("value", ["it's", "a\\b", "two\nlines"])
def test_value_that_shell_and_systemd_read_differently_gets_a_file(value, tmp_path):
    assert not fits_env_file(value)
    assert not holds_secret("SUPPORT_CONTACT")
    assert holds_secret("EMAIL_URL")
    assert SetupSite(tmp_path / "x.env").file_of("SUPPORT_CONTACT").name == "support-contact"


@pytest.mark.parametrize("line", ["no equals", "A='open", "A=two words", "2A=x"])
def test_bad_line_of_settings_is_named(line):
    with pytest.raises(SetupError, match=r"^x, line 3: "):
        parse_env(f"# first\n\n{line}\n", "x")


def test_commands_get_no_setting_of_the_shell(monkeypatch):
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("DEBUG", "true")
    monkeypatch.setenv("DATABASE_URL_FILE", "/x")
    environment = make_environment({"TIME_ZONE": "UTC"})
    assert not {"PGHOST", "DEBUG", "DATABASE_URL_FILE"} & environment.keys()
    assert environment["TIME_ZONE"] == "UTC"


def test_verifier_is_that_of_postgresql(db):
    """PostgreSQL makes the same of the same password and salt."""
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL password_encryption = 'scram-sha-256'")
        cursor.execute("CREATE ROLE verified LOGIN PASSWORD 'secret of a test'")
        cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'verified'")
        [verifier] = cursor.fetchone()
        transaction.set_rollback(True)
    import base64

    salt = base64.b64decode(verifier.split("$")[1].split(":")[1])
    assert make_verifier("secret of a test", salt) == verifier
    assert make_verifier("secret of a test") != verifier


@given(st.text(st.characters(exclude_characters="\x00", codec="utf-8")))
def test_names_and_texts_are_quoted(text):
    assert quote_name(text)[1:-1].replace('""', "") == text.replace('"', "")
    assert quote_text(text).endswith("'")


def test_database_reads_quoted_texts_back(db):
    from django.db import connection

    for text in ("it's", "a\\b", "\\'; DROP", 'say "x"'):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {quote_text(text)}, 1 AS {quote_name(text)}".replace("%", "%%"))
            assert cursor.fetchone()[0] == text
            assert cursor.description[1].name == text


@pytest.mark.parametrize(
    ("url", "becomes"),
    [
        ("postgresql://a@h:5432/n?sslmode=require", "postgresql://a:pw@h:5432/n?sslmode=require"),
        ("postgres://a%40b@/n?host=/s", "postgres://a%40b:pw@/n?host=/s"),
        ("postgresql://a:old@h/n", "postgresql://a:pw@h/n"),
    ],
)
def test_password_is_put_into_the_url(url, becomes):
    target = DatabaseTarget.parse(url).with_password("pw")
    assert target.url == becomes
    assert DatabaseTarget.parse(becomes) == target
