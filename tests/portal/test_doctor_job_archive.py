"""The doctor on the store of archived months: a directory, or a real S3 server."""

from datetime import date

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.jobs.domain.months.stores import object_store
from apps.jobs.models import ArchivedMonth
from apps.portal.pages.doctor import job_archive
from apps.portal.pages.doctor.findings import FindingLevel
from dev.processes import free_port
from tests.jobs.months.publish import publish

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("s3")]


@pytest.fixture(autouse=True)
def nothing_seen():
    cache.delete(job_archive._SEEN)
    yield
    cache.delete(job_archive._SEEN)


@pytest.fixture
def bucket(s3, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "PROBE_SECONDS", 25.0)  # a busy machine
    settings.VAR_DIR = tmp_path / "var"
    settings.JOB_ARCHIVE_ACCESS_KEY, settings.JOB_ARCHIVE_SECRET_KEY = s3.access_key, s3.secret_key
    settings.JOB_ARCHIVE = s3.new_url()
    return settings


def finding_of(check):
    (finding,) = check(timezone.now())
    return finding


def test_bucket_is_written_to_and_its_server_named_if_it_is_down(bucket, s3):
    finding = finding_of(job_archive.check_store)
    assert (finding.level, finding.check) == (
        FindingLevel.OK,
        f"JOB_ARCHIVE {bucket.JOB_ARCHIVE.partition('?')[0]}",
    )
    assert not s3.objects(bucket.JOB_ARCHIVE)
    server = f"http://127.0.0.1:{free_port()}"
    bucket.JOB_ARCHIVE = f"s3://portal/down?endpoint={server}"
    finding = finding_of(job_archive.check_store)
    assert finding.level == FindingLevel.PROBLEM
    assert f"at {server}: NETWORK_CONNECTION" in finding.seen
    assert s3.secret_key not in finding.seen


def test_directory_is_one_of_the_directories(settings, tmp_path):
    settings.JOB_ARCHIVE = tmp_path
    assert list(job_archive.check_store(timezone.now())) == []


@pytest.mark.parametrize("is_bucket", [False, True])
def test_months_that_this_host_does_not_see_are_named(db, is_bucket, request, settings, tmp_path):
    if is_bucket:
        request.getfixturevalue("bucket")
    else:
        settings.JOB_ARCHIVE = tmp_path / "of this host"
    now = timezone.now()
    assert finding_of(job_archive.check_months).level == FindingLevel.OK
    for number in range(1, 10):
        month = date(2026, number, 1)
        ArchivedMonth.objects.create(
            month=month, jobs=1, first_id=1, last_id=1, archived_at=now, dropped_at=now
        )
    publish(job_archive.job_archive(), {"jobs_job": "x"})
    finding = finding_of(job_archive.check_months)
    assert finding.level == FindingLevel.PROBLEM
    assert finding.seen.startswith(
        "2026-01, 2026-02, 2026-04, 2026-05, 2026-06, 2026-07 and 2 more"
    )
    ArchivedMonth.objects.exclude(month="2026-03-01").update(dropped_at=None, restored_at=now)
    assert finding_of(job_archive.check_months).level == FindingLevel.OK


def test_hosts_with_different_directories_are_named(settings, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()

    def check_on(host, directory):
        settings.JOB_ARCHIVE = tmp_path / directory
        monkeypatch.setattr("socket.gethostname", lambda: host)
        return finding_of(job_archive.check_hosts)

    assert check_on("web1", "one").level == FindingLevel.OK
    assert "web1 sees the same" in check_on("web2", "one").seen
    finding = check_on("web1", "two")
    assert finding.level == FindingLevel.PROBLEM
    assert finding.seen == f"web2 sees another one: {tmp_path}/one"
    settings.JOB_ARCHIVE = tmp_path / "not there yet"
    assert list(job_archive.check_hosts(timezone.now())) == []
