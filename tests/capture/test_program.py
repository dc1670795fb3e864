"""What the program loads, and how `manage.py capture` starts it beside the portal."""

import os
import stat
import subprocess
import sys

import pytest

from apps.archive.domain.capture_hosts import host_of
from apps.archive.local_capture import CREDENTIALS, prepare_environment
from apps.archive.models import CaptureHost
from capture.configuration import BadConfiguration, parse_options
from opsportal.env import Environment
from tests.archive.conftest import ROOT, archived, capture_arguments, until_killed, wait_for
from tests.archive.spool_writer import write_job

LOADED = """
import sys
import capture.main
from apps.clusters.schedulers.registry import SCHEDULERS
for name in ("slurm", "torque", "htcondor"):
    SCHEDULERS.get(name)
print(*{"django", "celery", "pydantic", "psycopg", "redis", "rest_framework", "opsportal"} & sys.modules.keys())
"""


def test_nothing_of_django_is_loaded_to_read_a_spool():
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "\n"


def test_first_start_beside_the_portal_makes_a_token_and_the_second_does_without_django(
    portal, spool
):
    write_job(spool, 1)
    command = ("capture", *capture_arguments(spool))
    with until_killed(portal.start(*command)):
        wait_for(lambda: archived() == 1)
    with until_killed(portal.start(*command, DJANGO_SETTINGS_MODULE="nowhere")):
        write_job(spool, 2)
        wait_for(lambda: archived() == 2)
    host = CaptureHost.objects.get()
    assert (host.clusters, host.trusted, host.beside_portal) == (["alps"], True, True)


def environment_of_program(tmp_path, *arguments, **environment):
    """Return the environment that `manage.py capture` starts the program with."""
    arguments = ("--cluster", "alps", "--journal", str(tmp_path), *arguments)
    prepare_environment(environment, parse_options(arguments, environment))
    return environment


@pytest.mark.django_db
def test_token_is_made_once_for_each_cluster_and_only_its_user_can_read_it(tmp_path):
    database = os.environ["DATABASE_URL"]
    tokens = set()
    for cluster in ("alps", "jura", "alps"):
        environment = environment_of_program(
            tmp_path, "--cluster", cluster, DATABASE_URL=database, PORTAL_URL="https://portal"
        )
        path = tmp_path / cluster / "token"
        assert environment["ARCHIVE_PORTAL_TOKEN_FILE"] == str(path)
        assert environment["CAPTURE_PORTAL"] == "https://portal"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        tokens.add(path.read_text())
    assert [host_of(token).clusters for token in tokens] == [["alps", "jura"]] * 2


def test_another_portal_gets_no_token_of_this_one(tmp_path):
    environment = environment_of_program(
        tmp_path, DATABASE_URL="postgresql:///none", CAPTURE_PORTAL="https://another"
    )
    assert "ARCHIVE_PORTAL_TOKEN_FILE" not in environment


def test_program_gets_no_credentials_but_its_own(tmp_path):
    secrets = {
        name
        for name, setting in Environment.model_fields.items()
        if "SecretStr" in str(setting.annotation)
    }
    assert set(CREDENTIALS) == secrets - {"MASKING_KEY", "ARCHIVE_PORTAL_TOKEN"}

    (tmp_path / "secret").write_text("key\n")
    environment = environment_of_program(
        tmp_path, SECRET_KEY_FILE=str(tmp_path / "secret"), REDIS_URL="redis://queue", LANG="C"
    )
    del environment["PYTHONPATH"]
    assert environment == {"MASKING_KEY": "key", "LANG": "C"}


def test_token_needs_a_cluster(tmp_path):
    with pytest.raises(BadConfiguration, match="Set the cluster"):
        environment_of_program(tmp_path, "--cluster", "a/b", DATABASE_URL="postgresql:///none")
