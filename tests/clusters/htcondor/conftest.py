import shutil
import tempfile
from pathlib import Path

import pytest

from apps.clusters.schedulers.htcondor.spool import HTCondorSpool
from tests.factories.htcondor_spool import Schedd


@pytest.fixture
def schedd(tmp_path):
    return Schedd(tmp_path / "spool")


@pytest.fixture
def spool(schedd):
    return HTCondorSpool(schedd.spool)


@pytest.fixture
def home():
    """A directory that the jobs' owner may enter, which is not so below `tmp_path` where the
    tests are root's.
    """
    directory = Path(tempfile.mkdtemp(prefix="home-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def entry_of(spool, number):
    (entry,) = [entry for entry in spool.scan() if entry.job_id == str(number)]
    return entry


@pytest.fixture
def read(spool):
    return lambda number: spool.read(entry_of(spool, number))
