"""An upgrade while the portal is used: no request fails, no job is lost or kept twice."""

import os

import pytest

from tests.upgrade.rolling import RollingRun
from tests.upgrade.test_script import DATABASE, database  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.slow,
    pytest.mark.xdist_group("upgrade"),
    pytest.mark.timeout(1200),
]


def test_rolling_upgrade_of_a_host_and_the_way_back(database, tmp_path_factory):  # noqa: F811
    # A socket's path has 107 bytes at most.
    base = tmp_path_factory.mktemp("r")
    redis_url = os.environ["REDIS_URL"].partition("?")[0] + "?db=13"
    run = RollingRun(base, DATABASE, hosts=1, redis_url=redis_url)
    try:
        outcome = run.upgrade()
    finally:
        run.close()
    print(outcome.steps, len(outcome.answers), max(answer.seconds for answer in outcome.answers))
    upgraded, back = outcome.outputs
    assert "rolling: yes" in upgraded
    assert "99.0.0 runs again" in back
    assert outcome.failures == []
    assert outcome.refused_connections == 0
    assert len(outcome.answers) > 50
    assert set(outcome.posted.values()) == {1}
    assert set(outcome.jobs.values()) == {1}
    assert outcome.captured_jobs == len(outcome.jobs)
