"""The backup with a point in time: programs read its files, and the guide fits them.

`python -m benchmarks.point_in_time` backs up and restores; `tests/failover/test_timelines.py` holds
that production is on hold after a restore to a moment.
"""

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.installation.guide import text_of
from tests.deploy.test_deploy import DEPLOY, PAGE, program, run

FILES = DEPLOY / "pgbackrest"
UNITS = sorted(path.name for path in FILES.glob("opsportal-backup@*"))
STANZA = "--stanza=opsportal"


@pytest.fixture
def info(tmp_path: Path) -> list[str]:
    """A command that asks an empty repository, with the options of `deploy/`."""
    text = (FILES / "pgbackrest.conf").read_text()
    text = text.replace("=/var/lib/pgbackrest", f"={tmp_path}")
    (tmp_path / "pgbackrest.conf").write_text(text)
    (tmp_path / "conf.d").mkdir()
    options = [f"--config={tmp_path}/pgbackrest.conf", f"--config-include-path={tmp_path}/conf.d"]
    return [program("pgbackrest"), *options, STANZA, "info"]


@pytest.mark.pgbackrest
def test_pgbackrest_knows_each_option(info, tmp_path):
    cipher = "[global]\nrepo1-cipher-pass=a passphrase\n"
    (tmp_path / "conf.d/cipher.conf").write_text(cipher)
    printed = run(*info)
    assert "status: error (missing stanza path)" in printed
    assert "WARN" not in printed


@pytest.mark.pgbackrest
def test_pgbackrest_makes_no_repository_without_a_passphrase(info):
    done = subprocess.run(info, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "requires option: repo1-cipher-pass" in done.stdout + done.stderr


def test_systemd_takes_the_timers(tmp_path):
    analyze = program("systemd-analyze")
    for name in UNITS:
        text = (FILES / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/sbin/opsportal-backup", "/bin/true"))
    units = []
    for kind in ("full", "incr"):
        units += [f"{tmp_path}/opsportal-backup@{kind}.{part}" for part in ("service", "timer")]
    assert run(analyze, "verify", "--man=no", *units).strip() == ""


def test_all_parts_name_the_same_stanza_and_directory():
    configuration = configparser.ConfigParser()
    configuration.read(FILES / "pgbackrest.conf")
    directory = configuration["opsportal"]["pg1-path"].removeprefix("/var/lib/postgresql")
    assert f"/etc/postgresql{directory}/conf.d" in text_of("pgbackrest")
    texts = [(FILES / name).read_text() for name in ("postgresql.conf", "opsportal-backup")]
    texts += [text_of("first full backup"), text_of("restore to a moment")]
    for text in texts:
        assert set(re.findall(r"--stanza=\S+", text)) == {STANZA}


def test_guide_installs_each_file_and_explains_what_it_costs():
    commands = text_of("pgbackrest")
    for path in FILES.iterdir():
        assert path.name.partition("@")[0] in commands
    timeout = re.search(
        r"^archive_timeout = .*", (FILES / "postgresql.conf").read_text(), re.MULTILINE
    )
    retention = re.search(
        r"^repo1-retention-full=.*", (FILES / "pgbackrest.conf").read_text(), re.MULTILINE
    )
    assert f"`{timeout[0]}`" in PAGE
    assert f"`{retention[0]}`" in PAGE


def test_secrets_are_restored_as_they_were_kept():
    script = (FILES / "opsportal-backup").read_text()
    restore = text_of("restore of secrets")
    copy = re.search(r"^copy=(.*)", script, re.MULTILINE)[1]
    assert f"-in {copy} " in restore
    for option in ("-aes-256-cbc", "-pbkdf2", "-pass file:/etc/pgbackrest/cipher-pass"):
        assert option in script
        assert option in restore


def test_moment_is_restored_with_production_on_hold():
    commands = text_of("restore to a moment").splitlines()
    assert "--target-action=promote restore" in commands[2], "else PostgreSQL accepts no changes"
    hold = commands.index("opsportal-manage after_restore")
    assert hold < commands.index("systemctl start opsportal.target")
