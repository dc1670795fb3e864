"""The page of storage: what each table costs, what it grows by, and what keeps it."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.apps import apps
from django.db import connection

from apps.core.domain.storage import GROWTH_DAYS, LEAST_BYTES, measure_tables, tables_now
from apps.core.models import TableSize
from apps.portal.pages.health.storage import FOR_EVER, growth_by_model, storage_page

AT = datetime(2026, 11, 28, 9, tzinfo=UTC)


def of(name: str, at: datetime = AT):
    return {table.name: table for table in tables_now(at=at)}[name]


@pytest.mark.django_db
def test_sizes_are_those_of_the_database():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('jobs_job')")
        (size,) = cursor.fetchone()
    assert of("jobs_job").size_bytes == size
    tables = tables_now(at=AT)
    sizes = [table.size_bytes for table in tables]
    assert sizes == sorted(sizes, reverse=True)
    assert {model._meta.db_table for model in apps.get_models()} <= {row.name for row in tables}


@pytest.mark.django_db
def test_growth_is_that_since_the_oldest_measure_of_the_last_weeks():
    now = of("jobs_job").size_bytes
    assert of("jobs_job").daily_bytes is None
    for days, size in ((GROWTH_DAYS + 1, 0), (10, now - 5_000), (2, now - 100), (0, 1)):
        day = AT.date() - timedelta(days=days)
        TableSize.objects.create(day=day, table="jobs_job", size_bytes=size)
    assert of("jobs_job").daily_bytes == 500
    assert of("jobs_job", AT + timedelta(days=21)).daily_bytes == pytest.approx(100 / 23)


@pytest.mark.django_db
def test_each_day_is_measured_once_and_forgotten_after_a_year():
    TableSize.objects.create(day=date(2025, 1, 1), table="jobs_job", size_bytes=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE large_one AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)"
        )
    for _ in range(2):
        measure_tables(at=AT)
    rows = TableSize.objects.filter(table="large_one")
    assert [(row.day, row.size_bytes >= LEAST_BYTES) for row in rows] == [(AT.date(), True)]
    assert not TableSize.objects.filter(day__lt=date(2025, 12, 1)).exists()


@pytest.mark.django_db
def test_page_names_models_that_exist_and_says_what_keeps_them(settings):
    settings.JOB_RECORD_MONTHS = 12
    settings.LOG_EXCERPT_DAYS = 0
    known = {model._meta.label for model in apps.get_models()}
    assert set(growth_by_model()) <= known
    kept = {table.model: table.growth.kept for table in storage_page(at=AT).tables}
    assert kept["jobs.Job"].startswith("12 months (JOB_RECORD_MONTHS)")
    assert kept["diagnosis.LogExcerpt"] == f"{FOR_EVER}: LOG_EXCERPT_DAYS is not set"
    assert kept["production.Request"] == FOR_EVER
    assert kept["diagnosis.CompletedLog"] == "until it is done"


def test_page_is_for_the_opg(client, shifter, liaison):
    client.force_login(liaison)
    assert client.get("/health/storage/").status_code == 403
    client.force_login(shifter)
    page = client.get("/health/storage/").content.decode()
    assert "jobs_job" in page
    assert "growth is known a day after" in page
    assert "/health/storage/" in client.get("/health/").content.decode()
