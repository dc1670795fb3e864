"""Months of job records in a real S3 server: listed, restored, and named if it is down."""

import time
from datetime import date
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.core.errors import InvalidTransition
from apps.jobs.domain.months.archive import archive_month
from apps.jobs.domain.months.archived_records import JobHistory, archived_rows
from apps.jobs.domain.months.retention import drop_due_months, drop_month
from apps.jobs.domain.months.stores import object_store
from apps.jobs.domain.months.stores.base import StoreUnavailable
from apps.jobs.domain.months.stores.object_store import ObjectStore
from apps.jobs.models import ArchivedMonth, Job
from tests.jobs.months.publish import publish
from tests.jobs.months.test_retention import AT, MARCH, everything, march
from tests.programs.certificates import self_signed
from tests.programs.relay import Relay, TLSRelay

__all__ = ["march"]

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("s3")]

APRIL = date(2026, 4, 1)


class RefusingServer(Relay):
    """A server that ends each connection, and counts them."""

    def __init__(self):
        self.connections = 0
        super().__init__(("127.0.0.1", 9))

    def _greet(self, client):
        self.connections += 1
        raise ConnectionAbortedError


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may need longer to start the client."""
    monkeypatch.setattr("apps.jobs.domain.months.archived_records.FETCH_SECONDS", 25.0)
    monkeypatch.setattr(object_store, "PROBE_SECONDS", 25.0)


@pytest.fixture
def url(s3, settings, tmp_path):
    settings.VAR_DIR = tmp_path / "var"
    settings.JOB_ARCHIVE_ACCESS_KEY, settings.JOB_ARCHIVE_SECRET_KEY = s3.access_key, s3.secret_key
    settings.JOB_ARCHIVE = s3.new_url()
    return settings.JOB_ARCHIVE


def run(*args):
    out = StringIO()
    call_command("jobs", *args, stdout=out)
    return out.getvalue()


def history_of(*months):
    reader = JobHistory(months)
    jobs = Job.objects.order_by("-ended_at", "-pk")
    return [job.job_id for job in reader.find(jobs, 100).rows], reader.unreadable


def test_month_is_dropped_listed_and_restored(march, url, s3, settings, tmp_path):
    before = everything()
    assert drop_month(month=MARCH, by="test", at=AT) == 2
    assert history_of(MARCH) == (["2", "1"], {})
    assert s3.objects(url).keys() >= {"2026-03/month.json"}
    # Another host has no copies yet.
    settings.VAR_DIR = tmp_path / "another host"
    assert history_of(MARCH) == (["2", "1"], {})
    (job,) = archived_rows(Job.objects.filter(job_id="1"), MARCH)
    assert job.user == march[0].user

    assert run("restore", "2026-03") == "2 jobs restored\n"
    assert everything() == before
    Job.objects.filter(job_id="1").update(name="renamed")
    assert f"{url.partition('?')[0]}/2026-03/jobs_job.parquet: 2 rows" in run("archive", "2026-03")
    (job,) = archived_rows(Job.objects.filter(job_id="1"), MARCH)
    assert job.name == "renamed"


def test_only_copy_is_not_replaced_by_an_empty_month(march, url):
    drop_month(month=MARCH, by="test", at=AT)
    with pytest.raises(InvalidTransition, match="its archive is the only copy"):
        archive_month(month=MARCH, at=AT)
    assert history_of(MARCH)[0] == ["2", "1"]


def test_harm_is_named_and_the_month_comes_back_with_its_objects(march, url, s3, client, shifter):
    drop_month(month=MARCH, by="test", at=AT)
    (name,) = [name for name in s3.objects(url) if "jobs_job" in name]
    path = s3.objects(url)[name]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    (unreadable,) = history_of(MARCH)[1].values()
    assert "March 2026" in unreadable
    assert f"{name} is not what was written" in unreadable
    with pytest.raises(CommandError, match="is not what was written"):
        run("restore", "2026-03")
    path.unlink()
    client.force_login(shifter)
    page = client.get("/jobs/archived/").content.decode()
    assert f"{name} is missing" in page
    path.write_bytes(content)
    assert history_of(MARCH) == (["2", "1"], {})


def test_store_that_is_down_costs_a_page_one_wait_and_drops_nothing(march, url, settings, caplog):
    server = RefusingServer()
    settings.JOB_ARCHIVE = url.partition("?")[0] + f"?endpoint=http://127.0.0.1:{server.port}"
    settings.JOB_RECORD_MONTHS = 2
    assert drop_due_months(at=AT) == 0
    assert "job records of 2026-03 are not dropped" in caplog.text
    assert "127.0.0.1" in caplog.text
    assert Job.objects.count() == 3
    assert not ArchivedMonth.objects.exists()
    with pytest.raises(CommandError, match=r"s3://portal/.*: NETWORK_CONNECTION"):
        run("archive", "2026-03")
    months = [date(year, 1, 1) for year in range(2000, 2026)]
    server.connections = 0
    jobs, unreadable = history_of(*months)
    assert jobs == []
    assert unreadable.keys() == set(months)
    assert all("NETWORK_CONNECTION" in reason for reason in unreadable.values())
    assert server.connections in {1, 2}
    assert settings.JOB_ARCHIVE_SECRET_KEY not in caplog.text + str(unreadable)
    server.close()


def test_store_that_hangs_is_given_up(march, url, s3, monkeypatch):
    drop_month(month=MARCH, by="test", at=AT)
    assert history_of(MARCH)[0] == ["2", "1"]
    monkeypatch.setattr("apps.jobs.domain.months.archived_records.FETCH_SECONDS", 1.0)
    with s3.frozen():
        began_at = time.monotonic()
        (unreadable,) = history_of(MARCH)[1].values()
        assert time.monotonic() - began_at < 10
    assert "is not fetched yet: no result within 1 s" in unreadable
    monkeypatch.setattr("apps.jobs.domain.months.archived_records.FETCH_SECONDS", 25.0)
    assert history_of(MARCH)[0] == ["2", "1"]


def test_pause_after_a_failure_ends(march, url, s3, settings, monkeypatch):
    drop_month(month=MARCH, by="test", at=AT)
    relay = Relay(("127.0.0.1", s3.port))
    settings.JOB_ARCHIVE = url.replace(str(s3.port), str(relay.port))
    monkeypatch.setattr(object_store, "PAUSE_SECONDS", 2.0)
    assert history_of(MARCH)[0] == ["2", "1"]
    began_at = time.monotonic()
    with relay.cut():
        assert history_of(MARCH)[0] == []
    while history_of(MARCH)[0] == []:
        assert time.monotonic() < began_at + 60
        time.sleep(0.1)
    assert time.monotonic() > began_at + 2
    assert history_of(MARCH) == (["2", "1"], {})
    relay.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"secret_key": "wrong"}, "SIGNATURE_DOES_NOT_MATCH"), ({"bucket": "none"}, "NO_SUCH_BUCKET")],
)
def test_what_the_store_refuses_is_named(s3, tmp_path, changes, reason):
    url = s3.new_url().replace("portal", changes.pop("bucket", "portal"))
    store = ObjectStore(s3.target(url, **changes), local=tmp_path, max_bytes=1 << 20)
    for do in (store.probe, lambda: publish(store, {"jobs_job": "x"})):
        with pytest.raises(StoreUnavailable, match=reason) as error:
            do()
        assert s3.secret_key not in str(error.value)
        assert f"at http://127.0.0.1:{s3.port}" in str(error.value)


def test_certificate_is_checked(s3, tmp_path):
    certificate = self_signed(tmp_path, "IP:127.0.0.1")
    relay = TLSRelay(("127.0.0.1", s3.port), certificate)
    url = s3.new_url().replace(f"http://127.0.0.1:{s3.port}", f"https://127.0.0.1:{relay.port}")
    store = ObjectStore(
        s3.target(url, ca=str(certificate[0])), local=tmp_path / "1", max_bytes=1 << 20
    )
    publish(store, {"jobs_job": "x"})
    assert store.months() == [MARCH]
    unknown = ObjectStore(s3.target(url), local=tmp_path / "2", max_bytes=1 << 20)
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        unknown.months()
    relay.close()


def test_months_of_a_directory_are_copied(march, url, settings, tmp_path):
    archive = settings.JOB_ARCHIVE
    settings.JOB_ARCHIVE = tmp_path / "months"
    archive_month(month=APRIL, at=AT)
    drop_month(month=MARCH, by="test", at=AT)
    settings.JOB_ARCHIVE = archive
    assert history_of(MARCH)[0] == []
    assert run("copy", str(tmp_path / "months")).splitlines()[-1] == "2 months copied"
    assert history_of(MARCH)[0] == ["2", "1"]
    assert run("copy", str(tmp_path / "months")) == "0 months copied\n"
    with pytest.raises(CommandError, match="is no directory"):
        run("copy", str(tmp_path / "nothing"))
