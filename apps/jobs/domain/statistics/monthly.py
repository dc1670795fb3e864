"""Monthly blocks: the sums of daily blocks in fewer rows, for questions over long periods.

A month that has them has a mark at each of its days, in a column of the daily blocks. The recount
of an hour removes the daily blocks of its day, and the mark with them. A release that knows no
monthly blocks does so, too: during an upgrade, its recounts do not leave wrong months behind.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

import numpy as np
import psycopg
import zstandard
from django.db import connection, transaction

from apps.jobs.domain.records.calendar_months import month_of, next_month, start_of
from apps.jobs.domain.statistics.blocks import (
    column_of,
    compress_values,
    days_to_recount,
    days_without_blocks,
    lock_day,
)
from apps.jobs.domain.statistics.columns import Column, Columns, codes_of, first_rows, sum_by_code
from apps.jobs.domain.statistics.levels import DAILY, KIND, MONTHLY, SUMS, BlockLevel
from apps.jobs.models import StatisticsBlock

MONTHS_A_RUN = 6
_ROWS_AT_ONCE = 1_000_000
#: The level and the column of the marks. Each recount removes all columns of this level.
_MARKED = DAILY[0].name
_MARK = "in_month"
_DAY = timedelta(days=1)
_READ = """
SELECT "column", rows, data FROM jobs_statisticsblock
WHERE level = %(level)s AND bucket = %(month)s AND "column" = ANY(%(columns)s)
  AND %(days)s = (
    SELECT count(*) FROM jobs_statisticsblock
    WHERE level = %(marked)s AND "column" = %(mark)s AND bucket >= %(month)s AND bucket < %(end)s)
"""


def end_of_month(at: datetime) -> datetime:
    """Return the end of the UTC month of a time."""
    return start_of(next_month(month_of(at)))


def is_month(since: datetime, until: datetime) -> bool:
    """Return whether this period is one UTC month."""
    return since == start_of(month_of(since)) and until == end_of_month(since)


def read_month(
    level: BlockLevel, month: datetime, columns: Collection[str]
) -> dict[str, tuple[int, bytes]]:
    """Return rows and data of these columns of a month; nothing if it must be read by day."""
    end = end_of_month(month)
    values = {
        "level": level.name,
        "month": month,
        "end": end,
        "columns": sorted(columns),
        "days": (end - month).days,
        "marked": _MARKED,
        "mark": _MARK,
    }
    connection.ensure_connection()
    # Django's cursors cannot fetch in binary format; as text, the bytes would take twice the space.
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(_READ, values, binary=True)
        return {name: (rows, data) for name, rows, data in cursor}


def compact_months(*, at: datetime, limit: int = MONTHS_A_RUN) -> int:
    """Write missing monthly blocks of finished months, newest first; return their number."""
    this_month = start_of(month_of(at))
    months = _months_without(before=this_month)
    if months:
        waiting = days_without_blocks(before=this_month) | days_to_recount(before=this_month)
        months -= {start_of(month_of(day)) for day in waiting}
    chosen = sorted(months, reverse=True)[:limit]
    for month in chosen:
        compact_month(month=month)
    return len(chosen)


def _months_without(*, before: datetime) -> set[datetime]:
    """Return the months with daily blocks and without valid monthly ones."""
    days: dict[datetime, int] = {}
    marks: dict[datetime, int] = {}
    blocks = StatisticsBlock.objects.filter(
        level=_MARKED, column__in=[KIND, _MARK], bucket__lt=before
    )
    for column, day in blocks.values_list("column", "bucket"):
        counts = marks if column == _MARK else days
        month = start_of(month_of(day))
        counts[month] = counts.get(month, 0) + 1
    return {month for month in days if marks.get(month) != (end_of_month(month) - month).days}


@transaction.atomic
def compact_month(*, month: datetime) -> None:
    """Write the monthly blocks of a month from its daily blocks, if all its days have theirs."""
    end = end_of_month(month)
    days = [month + number * _DAY for number in range((end - month).days)]
    for day in days:
        lock_day(day, shared=False)
    levels = [level.name for level in MONTHLY.values()]
    StatisticsBlock.objects.filter(bucket=month, level__in=levels).delete()
    StatisticsBlock.objects.filter(level=_MARKED, column=_MARK, bucket__in=days).delete()
    if days_without_blocks(since=month, before=end):
        return

    for daily, monthly in MONTHLY.items():
        _write_month(daily, monthly, month)
    StatisticsBlock.objects.bulk_create(
        StatisticsBlock(level=_MARKED, column=_MARK, bucket=day, rows=0, data=b"") for day in days
    )


def _write_month(daily: BlockLevel, monthly: BlockLevel, month: datetime) -> None:
    """Write a level of a month: one column after the other, as many days may have many rows."""
    names = sorted(daily.columns)
    columns = {name: np.concatenate(_read_days(daily, name, month)) for name in names}
    codes, count = _codes_by_parts(columns, names)
    first = first_rows(codes, count)
    for name in names:
        _write_column(monthly, name, month, columns.pop(name)[first])
    for name in SUMS:
        total = np.zeros(count, np.int64)
        start = 0
        for column in _read_days(daily, name, month):
            end = start + len(column)
            total += sum_by_code(codes[start:end], column, count)
            start = end
        _write_column(monthly, name, month, total)


def _codes_by_parts(columns: Columns, names: Collection[str]) -> tuple[Column, int]:
    """Return what `codes_of` does, in another order of the groups and with less memory."""
    rows = len(columns[KIND])
    parts = rows // _ROWS_AT_ONCE + 1
    codes = np.zeros(rows, np.int64)
    count = 0
    for part in range(parts):
        at = np.flatnonzero(columns[KIND] % parts == part)
        of_part = {name: columns[name][at] for name in names}
        codes_of_part, groups = codes_of(of_part, names, len(at))
        codes[at] = codes_of_part + count
        count += groups
    return codes, count


def _read_days(level: BlockLevel, name: str, month: datetime) -> list[Column]:
    """Return a column of each day of a month; what older blocks lack is 0."""
    decompress = zstandard.ZstdDecompressor().decompress
    blocks = StatisticsBlock.objects.filter(
        level=level.name,
        column__in={name, KIND},
        bucket__gte=month,
        bucket__lt=end_of_month(month),
    )
    rows: dict[datetime, int] = dict(
        blocks.filter(column=KIND).order_by("bucket").values_list("bucket", "rows")
    )
    stored = {}
    for day, data in blocks.filter(column=name).values_list("bucket", "data"):
        stored[day] = column_of(rows[day], bytes(data), decompress)
    days = []
    for day, count in rows.items():
        days.append(stored[day] if day in stored else np.zeros(count, np.int64))
    return days


def _write_column(level: BlockLevel, name: str, month: datetime, column: Column) -> None:
    StatisticsBlock.objects.create(
        level=level.name,
        column=name,
        bucket=month,
        rows=len(column),
        data=compress_values(column),
    )
