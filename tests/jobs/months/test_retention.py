"""Months of job records: archived as Parquet, verified, dropped and restored,
with every figure as before.
"""

import json
from datetime import UTC, date, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyarrow import parquet

from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidTransition
from apps.diagnosis.domain.causes.totals import recount_dirty_hours, wrong_hours
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, Evidence, LogHarvest, Verdict
from apps.jobs.domain.collection.accounting import store_read
from apps.jobs.domain.collection.record_import import import_read
from apps.jobs.domain.months import archive
from apps.jobs.domain.months.archive import BadArchive, archive_month, restore_month
from apps.jobs.domain.months.retention import drop_due_months, drop_month, list_months
from apps.jobs.domain.months.tables import list_tables
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.statistics.cube import CubeQuery
from apps.jobs.domain.statistics.levels import SUMS
from apps.jobs.domain.statistics.monthly import compact_months
from apps.jobs.domain.totals.rollups import mark_dirty, recompute_dirty_hours
from apps.jobs.enums import Counted, RecordSource
from apps.jobs.models import (
    ArchivedMonth,
    Collection,
    DirtyHour,
    FlaggedRecord,
    HourlyTotals,
    Job,
    StatisticsBlock,
)
from apps.search.domain import line_totals
from tests.factories.jobs import bare, failed, store
from tests.factories.verdicts import verdict
from tests.jobs.test_statistics import counted as statistics
from tests.jobs.test_totals import counted as totals
from tests.jobs.test_totals import recount

MARCH = date(2026, 3, 1)
SINCE, UNTIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
AT = datetime(2026, 6, 10, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def directory(settings, tmp_path):
    settings.JOB_ARCHIVE = tmp_path / "months"
    return settings.JOB_ARCHIVE


def ended(number, at, **changes):
    values = {
        "cpus": 2,
        "wall_seconds": 600,
        "cpu_seconds": 1000.5,
        "host": "wn1",
        "account": "nova",
        **changes,
    }
    return bare(
        number, submitted_at=datetime(2026, 2, 27, tzinfo=UTC), **{"ended_at": at, **values}
    )


def of_the_year():
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    return statistics(CubeQuery(begin, end, ("host",), sums=frozenset(SUMS)))


def count_all():
    while recompute_dirty_hours(at=AT):
        pass
    compact_months(at=AT)
    recount_dirty_hours()
    line_totals.recount_dirty_hours()


def everything():
    """Return all figures, and all rows of the jobs of March and of what hangs on them."""
    figures = (totals(), of_the_year(), list(CauseTotals.objects.order_by("pk").values()))
    return figures, {
        table.name: list(table.model._base_manager.order_by("pk").values())
        for table in list_tables()
    }


def causes():
    return sorted(
        map(
            str, CauseTotals.objects.values_list("hour", "verdict", "cause", "jobs", "core_seconds")
        )
    )


moments = st.one_of(
    st.integers(-50, 50).map(lambda minutes: SINCE + timedelta(minutes=minutes)),
    st.integers(-50, 50).map(lambda minutes: UNTIL + timedelta(minutes=minutes)),
    st.integers(0, 60).map(lambda hours: SINCE + timedelta(days=9, hours=hours, microseconds=1)),
)
records = st.builds(
    ended,
    st.integers(1, 8),
    moments,
    state=st.sampled_from([JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED]),
    attempt=st.integers(1, 2),
    host=st.sampled_from(["wn1", "wn2", ""]),
    name=st.sampled_from(["", "a\tb\nc\\N|", "\N{SNOWMAN}"]),
    max_memory_bytes=st.sampled_from([None, 1 << 40]),
    # Their sums are exact in any order.
    cpu_seconds=st.integers(0, 4_000_000).map(lambda quarters: quarters / 4),
)


@examples(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    before=st.lists(st.lists(records, max_size=6), max_size=3), late=st.lists(records, max_size=6)
)
def test_every_figure_equals_a_recount_over_dropping_and_restoring(alps, nova, before, late):
    for model in (
        StatisticsBlock,
        HourlyTotals,
        CauseTotals,
        DailyCauseTotals,
        DirtyHour,
        ArchivedMonth,
        Job,
    ):
        model.objects.all().delete()
    Collection.objects.get_or_create(cluster=alps, defaults={"collected_until": AT})
    for batch in before:
        store_read(cluster=alps, read=batch, source=RecordSource.SENT, at=AT)
    for job in Job.objects.filter(state=JobState.FAILED):
        mark_dirty([hour_of(verdict(job, at=AT).ended_at)], Counted.JOBS, Counted.CAUSES)
    count_all()
    whole = recount()
    assert totals() == whole
    in_march = Job.objects.filter(ended_at__gte=SINCE, ended_at__lt=UNTIL).count()
    if not in_march:
        with pytest.raises(InvalidTransition):
            drop_month(month=MARCH, by="test", at=AT)
        return
    complete, hours = everything(), {hour_of(job.ended_at) for job in Job.objects.all()}
    assert drop_month(month=MARCH, by="test", at=AT) == in_march
    assert not Job.objects.filter(ended_at__gte=SINCE, ended_at__lt=UNTIL).exists()
    # Late, repeated and corrected records of the month are refused; what asks for a recount finds
    # the same figures.
    too_late = [one for one in late if SINCE <= one.ended_at < UNTIL]
    assert store_read(cluster=alps, read=too_late, source=RecordSource.SENT, at=AT) == (
        0,
        0,
        len(too_late),
    )
    mark_dirty(hours, Counted.JOBS, Counted.CAUSES)
    count_all()
    assert (totals(), of_the_year()) == complete[0][:2]
    assert restore_month(month=MARCH, by="test", at=AT) == in_march
    assert everything()[1] == complete[1]
    of_causes = causes()
    mark_dirty(hours, Counted.JOBS, Counted.CAUSES)
    count_all()
    assert totals() == recount() == whole
    assert of_the_year() == complete[0][1]
    assert causes() == of_causes
    assert wrong_hours() == []


@pytest.fixture
def march(alps, nova):
    """A completed and a failed job of March, the latter with a verdict, and one of April;
    all counted.
    """
    jobs = store(
        alps,
        ended(1, SINCE),
        failed(2, ended_at=UNTIL - timedelta(seconds=1)),
        ended(3, UNTIL),
        at=AT,
    )
    mark_dirty([hour_of(verdict(jobs[1], at=AT).ended_at)], Counted.CAUSES)
    count_all()
    return jobs


def run(*args):
    out = StringIO()
    call_command("jobs", *args, stdout=out)
    return out.getvalue()


def test_archive_is_a_parquet_file_per_table_with_every_row(march, directory):
    archive_month(month=MARCH, at=AT)
    found = {
        path.stem: parquet.read_table(path) for path in (directory / "2026-03").glob("*.parquet")
    }
    assert found["jobs_job"].column("job_id").to_pylist() == ["1", "2"]
    assert found["jobs_job"].schema.field("ended_at").type.tz == "UTC"
    assert found["diagnosis_verdict"].column("job_id").to_pylist() == [march[1].pk]
    assert (
        json.loads((directory / "2026-03/month.json").read_text())["tables"]["jobs_job"]["rows"]
        == 2
    )
    assert Job.objects.count() == 3


def test_every_row_that_hangs_on_a_job_goes_and_comes_back(march):
    harvest = LogHarvest.objects.create(job=march[1], due_at=AT)
    values = {
        "role": "cause",
        "category": "site",
        "offset": 7,
        "text": "a\tb\\N",
        "stream": "stdout",
        "pattern": "X",
    }
    Evidence.objects.create(harvest=harvest, **values)
    before = everything()
    assert drop_month(month=MARCH, by="test", at=AT) == 2
    assert [model.objects.count() for model in (Job, Verdict, LogHarvest, Evidence)] == [1, 0, 0, 0]
    restore_month(month=MARCH, by="test", at=AT)
    assert everything() == before


def test_month_that_changes_while_it_is_archived_is_kept(march, monkeypatch):
    read = archive.read_manifest

    def meanwhile(month):
        Job.objects.filter(pk=march[0].pk).update(cpu_seconds=1)
        return read(month)

    monkeypatch.setattr("apps.jobs.domain.months.retention.read_manifest", meanwhile)
    with pytest.raises(BadArchive, match=r"jobs_job has changed since 2026-03 was archived"):
        drop_month(month=MARCH, by="test", at=AT)
    assert Job.objects.count() == 3
    assert not ArchivedMonth.objects.exists()


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_harmed_archive_is_not_restored(march, directory, harm):
    drop_month(month=MARCH, by="test", at=AT)
    path = directory / "2026-03/diagnosis_verdict.parquet"
    path.unlink() if harm == "missing" else path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CommandError, match=r"diagnosis_verdict.parquet"):
        run("restore", "2026-03")
    assert Job.objects.count() == 1


def test_month_is_not_dropped_before_it_is_over_and_counted(march):
    with pytest.raises(InvalidTransition, match=r"2026-06 is not over"):
        drop_month(month=AT.date().replace(day=1), by="test", at=AT)
    mark_dirty([SINCE])
    with pytest.raises(InvalidTransition, match=r"wait to be counted"):
        drop_month(month=MARCH, by="test", at=AT)
    assert Job.objects.count() == 3


def test_late_record_of_a_dropped_month_is_flagged_and_can_be_sent_again_after_restoring(
    march, alps
):
    drop_month(month=MARCH, by="test", at=AT)
    late = [
        ended(1, SINCE),
        ended(9, UNTIL - timedelta(hours=1)),
        ended(3, UNTIL - timedelta(days=1)),
    ]
    done = import_read(cluster=alps, read=late, at=AT)
    assert (done.new, done.changed, done.rejected) == (0, 0, 3)
    assert set(FlaggedRecord.objects.values_list("reason", "stored")) == {
        ("It ended in 2026-03, whose job records are archived. Restore the month first.", False)
    }
    restore_month(month=MARCH, by="test", at=AT)
    done = import_read(cluster=alps, read=late, at=AT)
    assert (done.new, done.changed, done.unchanged) == (1, 1, 1)
    count_all()
    assert totals() == recount()


def test_attempt_stored_again_in_another_month_stays_and_the_hours_are_counted_anew(march, alps):
    drop_month(month=MARCH, by="test", at=AT)
    store(alps, ended(1, UNTIL + timedelta(hours=5)), at=AT)
    assert restore_month(month=MARCH, by="test", at=AT) == 1
    count_all()
    assert totals() == recount()
    assert Job.objects.count() == 3


def test_retention_drops_the_oldest_month_and_leaves_a_restored_one(march, settings):
    assert drop_due_months(at=AT) == 0
    settings.JOB_RECORD_MONTHS = 2
    assert [(str(stored.month), stored.jobs, stored.is_due) for stored in list_months(at=AT)] == [
        ("2026-04-01", 1, False),
        ("2026-03-01", 2, True),
    ]
    assert (drop_due_months(at=AT), drop_due_months(at=AT)) == (2, 0)
    restore_month(month=MARCH, by="test", at=AT)
    assert drop_due_months(at=AT) == 0
    assert Job.objects.count() == 3


def test_killed_deletion_goes_on(march, settings, monkeypatch):
    settings.JOB_RECORD_MONTHS = 2
    monkeypatch.setattr("apps.jobs.domain.months.retention.BATCH", 1)
    monkeypatch.setattr("apps.jobs.domain.months.retention._delete", lambda month: 0)
    drop_due_months(at=AT)
    assert Job.objects.count() == 3
    monkeypatch.undo()
    settings.JOB_RECORD_MONTHS = 2
    assert drop_due_months(at=AT) == 2
    assert Job.objects.count() == 1


def test_command_says_what_it_would_drop_and_drops_and_restores(march):
    assert (
        run("drop", "2026-03", "--dry-run")
        == "would archive and delete 2 jobs; nothing was changed\n"
    )
    assert Job.objects.count() == 3
    assert run("drop", "2026-03").startswith("2 jobs deleted; archived in ")
    assert "2 archived, dropped" in run("months")
    assert run("restore", "2026-03") == "2 jobs restored\n"
    with pytest.raises(CommandError, match="2026-03 is not dropped"):
        run("restore", "2026-03")


def test_page_of_an_archived_job_says_so_to_those_who_could_see_it(
    march, client, liaison, other_liaison
):
    drop_month(month=MARCH, by="test", at=AT)
    client.force_login(liaison)
    pages = [
        f"/jobs/{march[1].pk}/{page}" for page in ("log/", "log/compare/", "log/raw/", "verdict/")
    ]
    for page in [*pages, f"/debug-runs/{march[1].pk}/", f"/debug-runs/{march[1].pk}/bundle/"]:
        answer = client.get(page)
        assert answer.status_code == 410, page
        assert f'href="/jobs/{march[1].pk}/">Archived record' in answer.content.decode()
    assert client.get(f"/jobs/{march[1].pk}/").status_code == 200
    assert client.get("/jobs/999999/log/").status_code == 404
    assert client.get(f"/jobs/{march[2].pk}/").status_code == 200
    assert client.get("/jobs/999999/").status_code == 404
    answer = client.get(f"/api/v1/jobs/{march[1].pk}/")
    address = f"/api/v1/job-history/{march[1].pk}/"
    assert (answer.status_code, address in answer.json()["detail"]) == (410, True)
    assert [
        client.get(f"/api/v1/jobs/{pk}/").status_code for pk in (march[2].pk, 999999, 2**70)
    ] == [200, 404, 404]
    answer = client.get(f"/api/v1/jobs/{march[1].pk}/log/")
    address = f"/api/v1/job-history/{march[1].pk}/"
    assert (answer.status_code, address in answer.json()["detail"]) == (410, True)
    client.force_login(other_liaison)
    assert client.get(f"/jobs/{march[1].pk}/").status_code == 404
    assert client.get(f"/jobs/{march[1].pk}/log/").status_code == 404
    assert client.get(f"/api/v1/jobs/{march[1].pk}/").status_code == 404
    assert client.get(f"/api/v1/jobs/{march[1].pk}/log/").status_code == 404


def test_job_list_names_the_months_that_it_cannot_list(march, client, liaison):
    client.force_login(liaison)
    assert "Not listed" not in client.get("/jobs/").content.decode()
    drop_month(month=MARCH, by="test", at=AT)
    assert "job records of March 2026" in client.get("/jobs/").content.decode()
    assert (
        "job records of March 2026" in client.get("/jobs/?ended_from=2026-03-31").content.decode()
    )
    assert "Not listed" not in client.get("/jobs/?ended_from=2026-04-01T00:00:00Z").content.decode()
    assert "job records of March 2026" in client.get("/failures/jobs/").content.decode()
    april = "/failures/jobs/?start=2026-04-01T00:00:00Z"
    assert "Not listed" not in client.get(april).content.decode()
