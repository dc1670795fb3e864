"""Jobs of archived months: listed as before they were archived, by the same filters."""

import random
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pytest
from django.http import QueryDict
from pyarrow import parquet

from apps.clusters.schedulers.base import JobState
from apps.core.bounded_pool import BoundedPool
from apps.core.domain.pagination import newest_first
from apps.diagnosis.models import Verdict
from apps.jobs.domain.months import archived_records, parquet_sql
from apps.jobs.domain.months.archived_records import JobHistory, MonthUnreadable, archived_rows
from apps.jobs.domain.months.parquet_sql import FileColumn, FileTable
from apps.jobs.domain.months.retention import drop_month
from apps.jobs.enums import PROBE_JOB_PREFIX
from apps.jobs.filters import JobFilter
from apps.jobs.models import Job
from apps.jobs.web.archived_jobs import months_of
from tests.factories.jobs import bare, failed, store
from tests.factories.verdicts import verdict
from tests.jobs.months.test_retention import count_all
from tests.search.kept_logs import keep_log

FEBRUARY = date(2026, 2, 1)
MARCH = date(2026, 3, 1)
SINCE = datetime(2026, 2, 1, tzinfo=UTC)
AT = datetime(2026, 6, 10, 9, tzinfo=UTC)
SEED = 20_261_128


@pytest.fixture(autouse=True)
def directory(settings, tmp_path):
    settings.JOB_ARCHIVE = tmp_path / "months"
    return settings.JOB_ARCHIVE


@pytest.fixture
def years(alps, jura, nova, dune):
    """Sixty jobs of February and March of two experiments, some with a verdict."""
    chance = random.Random(SEED)
    # Each hour is counted before its month is archived, so there are few.
    hours = [SINCE + timedelta(hours=chance.randrange(59 * 24)) for _ in range(8)]
    records = {alps: [], jura: []}
    for number in range(1, 61):
        ended_at = chance.choice(hours) + timedelta(seconds=chance.choice([0, 30, 1800]))
        values = {
            "account": chance.choice(["nova", "dune"]),
            "host": chance.choice(["wn1", "wn1.example.org", "wn2", ""]),
            "user": chance.choice(["ann", "ben"]),
            "state": chance.choice([JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT]),
            "exit_code": chance.choice([0, 1, 65]),
            "name": f"{PROBE_JOB_PREFIX}{number}" if number % 9 == 0 else "reco",
            "submitted_at": ended_at - timedelta(hours=3),
            "started_at": ended_at - timedelta(hours=chance.randrange(1, 3)),
            "ended_at": ended_at,
        }
        records[chance.choice([alps, jura])].append(bare(number, **values))
    for cluster, of_cluster in records.items():
        for row in store(cluster, *of_cluster, at=AT):
            if row.is_failed and chance.random() < 0.7:
                verdict(row, chance.choice(["service", "code"]), at=AT, cause="SAMWEB-5XX")
    count_all()


def drop_both():
    for month in (FEBRUARY, MARCH):
        drop_month(month=month, by="test", at=AT)


def listed(user, query, *, size=1_000, reader=None):
    """The primary keys of the job list, page by page; with a reader, those of archived jobs."""
    keys = []
    parameters = QueryDict(query)
    for _ in range(500):
        visible = Job.objects.visible_to(user)
        jobs = JobFilter(parameters, queryset=visible, request=SimpleNamespace(user=user))
        assert jobs.is_valid(), jobs.errors
        find = None
        if reader is not None:
            reader.months = months_of(jobs, parameters)
            find = reader.find
        page = newest_first(jobs.qs, by="ended_at", query=parameters, size=size, find=find)
        keys += [job.pk for job in page.rows]
        if not page.next_query:
            return keys
        parameters = QueryDict(page.next_query.removeprefix("?"))
    raise AssertionError("the list never ends")


FILTERS = [
    "",
    "job=7",
    "state=failed",
    "state=any_failure&experiment=NOVA",
    "cluster=jura&user=ann",
    "host=wn1",
    "host=wn1.example.org",
    "host=-",
    "exit_code=65",
    "verdict=service",
    "verdict=-&state=failed",
    "cause=SAMWEB-5XX&user=ben",
    *(f"weekday={day}" for day in ("Mon", "Wed", "Sat")),
    *(f"hour={hour:02d}&state=failed" for hour in range(0, 24, 6)),
    *(f"started_hour={hour:02d}" for hour in range(1, 24, 6)),
    "started_from=2026-02-10&ended_to=2026-03-10T12:00:00Z",
    "ended_from=2026-02-28 23:30",
    "site=-",
    "request=-&stage=-",
    "reason=-",
    "claims=NOVA-0001",
    "probes=hide",
    "probes=only",
]


def test_list_of_archived_jobs_is_that_of_before(years, shifter, liaison):
    questions = [(shifter, query) for query in FILTERS]
    questions += [(liaison, query) for query in FILTERS[:4]]
    before = [listed(user, query) for user, query in questions]
    drop_both()
    with_jobs = 0
    for (user, query), expected in zip(questions, before, strict=True):
        assert listed(user, query) == []
        assert listed(user, query, reader=JobHistory([])) == expected, query
        with_jobs += bool(expected)
    assert with_jobs > 15


def test_page_of_archived_jobs_hides_probe_jobs_until_it_has_filters(years, shifter, client):
    drop_both()
    client.force_login(shifter)

    def names(query):
        rows = client.get(f"/jobs/archived/?{query}").context["page"].rows
        return {job.name.startswith(PROBE_JOB_PREFIX) for job in rows}

    assert names("") == {False}
    assert names("probes=only") == {True}
    assert names("ended_from=2026-02-01") == {True, False}


def test_pages_of_any_size_and_time_have_the_same_jobs(years, shifter, monkeypatch):
    before = listed(shifter, "")
    drop_both()
    for size in (3, 25):
        assert listed(shifter, "", size=size, reader=JobHistory([])) == before
    monkeypatch.setattr(archived_records, "PAGE_SECONDS", 0)
    assert listed(shifter, "", size=40, reader=JobHistory([])) == before


def test_a_row_comes_back_as_it_was(years):
    row = Job.objects.filter(verdict__isnull=False).first()
    opinion = Verdict.objects.get(job=row)
    before = [vars(row).copy(), vars(opinion).copy()]
    month = date(row.ended_at.year, row.ended_at.month, 1)
    drop_both()
    (again,) = archived_rows(Job.objects.filter(pk=row.pk), month)
    (opinion_again,) = archived_rows(Verdict.objects.filter(job=row.pk), month)
    after = [vars(again), vars(opinion_again)]
    for old, new in zip(before, after, strict=True):
        assert {**old, "_state": None} == {**new, "_state": None}


def test_months_are_read_with_the_others_if_one_is_damaged(years, shifter, directory, client):
    march = [job.pk for job in Job.objects.filter(ended_at__month=3).order_by("-ended_at", "-pk")]
    february = [
        job.pk for job in Job.objects.filter(ended_at__month=2).order_by("-ended_at", "-pk")
    ]
    drop_both()
    damaged = directory / "2026-03" / "jobs_job.parquet"
    content = damaged.read_bytes()
    reader = JobHistory([])
    damaged.write_bytes(content[:100])
    assert listed(shifter, "", reader=reader) == february
    assert "March 2026" in reader.unreadable[MARCH]
    damaged.unlink()
    reader = JobHistory([])
    assert listed(shifter, "", reader=reader) == february
    assert "is missing" in reader.unreadable[MARCH]
    client.force_login(shifter)
    page = client.get("/jobs/archived/").content.decode()
    assert "March 2026 could not be read" in page
    assert "is missing" in page
    answer = client.get("/api/v1/job-history/").json()
    assert [month["month"] for month in answer["unreadable"]] == ["2026-03-01"]
    damaged.write_bytes(content)
    assert listed(shifter, "", reader=JobHistory([])) == [*march, *february]


def test_a_question_that_needs_too_much_says_so_and_the_next_one_works(years, shifter, monkeypatch):
    drop_both()
    monkeypatch.setattr(archived_records, "MONTH_SECONDS", 0.001)
    with pytest.raises(MonthUnreadable, match="no result within"):
        archived_rows(Job.objects.all(), MARCH)
    monkeypatch.undo()
    monkeypatch.setattr(archived_records, "POOL", BoundedPool(memory_bytes=100 * 1024**2))
    with pytest.raises(MonthUnreadable, match="March 2026"):
        archived_rows(Job.objects.all(), MARCH)


def test_process_that_was_killed_costs_one_question(years):
    drop_both()
    assert archived_rows(Job.objects.all(), MARCH)
    for process in archived_records.POOL._idle:
        process._process.kill()
    with pytest.raises(MonthUnreadable, match="its process died"):
        archived_rows(Job.objects.all(), MARCH)
    assert archived_rows(Job.objects.all(), MARCH)


def test_columns_that_an_old_archive_lacks_have_their_defaults(years, directory):
    drop_both()
    path = directory / "2026-03" / "jobs_job.parquet"
    content = parquet.read_table(path)
    parquet.write_table(content.drop_columns(["release", "files_in", "suspended_seconds"]), path)
    (directory / "2026-03" / f"{Verdict._meta.db_table}.parquet").unlink()
    rows = archived_rows(Job.objects.all(), MARCH)
    assert len(rows) == content.num_rows
    assert {(row.release, row.files_in, row.suspended_seconds) for row in rows} == {("", None, 0)}
    assert archived_rows(Verdict.objects.all(), MARCH) == []
    assert archived_rows(Job.objects.filter(verdict__verdict="code"), MARCH) == []


def test_a_query_reaches_no_other_file(tmp_path):
    path = tmp_path / "t'1.parquet"
    parquet.write_table(pa.table({"id": [1]}), path)
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"id": [2]}), other)
    table = FileTable("numbers", (FileColumn("id", "BIGINT"),), str(path))
    assert parquet_sql.run("SELECT id, 7 %% 4 FROM numbers WHERE id = %s", [1], [table]) == [(1, 3)]
    for sql in (
        f"SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SET enable_external_access = true",
        f"COPY numbers TO '{tmp_path}/copy.parquet'",
        "INSTALL httpfs",
    ):
        with pytest.raises(duckdb.Error):
            parquet_sql.run(sql, [], [table])


def test_page_of_an_archived_job_has_its_record_verdict_and_log(alps, nova, client, liaison, dune):
    (row,) = store(alps, failed(2, ended_at=datetime(2026, 3, 5, tzinfo=UTC)), at=AT)
    verdict(row, "code", at=AT, summary="<b>Segmentation violation</b> in reco")
    keep_log(row, b"first line\n<script>alert(1)</script>\nlast line\n")
    count_all()
    drop_month(month=MARCH, by="test", at=AT)
    client.force_login(liaison)
    answer = client.get(f"/jobs/{row.pk}/")
    page = answer.content.decode()
    assert answer.status_code == 200
    for text in ("March 2026 was archived", "last line", "exit code 1", "&lt;b&gt;Segmentation"):
        assert text in page
    assert "<script>alert(1)" not in page
    assert client.get(f"/api/v1/job-history/{row.pk}/").json()["job_id"] == "2"
    assert client.get("/api/v1/job-history/").json()["results"][0]["id"] == row.pk
    assert f'href="/jobs/{row.pk}/"' in client.get("/jobs/archived/").content.decode()


def test_archived_jobs_of_others_do_not_exist(years, client, other_liaison, nova):
    of_nova = Job.objects.filter(experiment=nova).first()
    drop_both()
    client.force_login(other_liaison)
    assert client.get(f"/jobs/{of_nova.pk}/").status_code == 404
    assert client.get(f"/api/v1/job-history/{of_nova.pk}/").status_code == 404
    answer = client.get("/api/v1/job-history/").json()
    assert {job["experiment"] for job in answer["results"]} == {"DUNE"}
    assert client.get("/api/v1/job-history/?state=nonsense").status_code == 400
    assert client.get("/api/v1/job-history/x/").status_code == 404
    assert client.get(f"/api/v1/job-history/{2**70}/").status_code == 404


def test_list_says_what_is_missing(years, client, shifter):
    client.force_login(shifter)
    assert "No archived months" in client.get("/jobs/archived/").content.decode()
    drop_both()
    april = client.get("/jobs/archived/?ended_from=2026-04-01").content.decode()
    assert "No archived months" in april
    assert "No matching jobs" in client.get("/jobs/archived/?job=nothing").content.decode()
    assert "Invalid filter" in client.get("/jobs/archived/?state=nonsense").content.decode()
    link = client.get("/jobs/?user=ann").content.decode()
    assert 'href="/jobs/archived/?user=ann"' in link
