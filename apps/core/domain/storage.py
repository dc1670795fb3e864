"""How large the tables of the database are, and how fast they grow."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import connection

from apps.core.models import TableSize

#: Growth is measured over this time at most.
GROWTH_DAYS = 30
#: Smaller tables are not measured: they grow by nothing that counts.
LEAST_BYTES = 1 << 20
KEPT = timedelta(days=400)
#: Sizes with indexes and long values. The numbers of rows are estimates of the planner.
_SIZES = """
SELECT relname, greatest(reltuples, 0)::bigint, pg_total_relation_size(oid)
FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
"""


@dataclass(frozen=True, slots=True)
class TableNow:
    """The size of a table: approximate rows, bytes with indexes, and bytes added per day.

    `daily_bytes` is None until it has been measured for a day.
    """

    name: str
    rows: int
    size_bytes: int
    daily_bytes: float | None


def measure_tables(*, at: datetime) -> None:
    """Store the sizes of today's tables, once a day, and forget old ones."""
    TableSize.objects.filter(day__lt=(at - KEPT).date()).delete()
    sizes = []
    for name, (_, size_bytes) in _sizes().items():
        if size_bytes >= LEAST_BYTES:
            sizes.append(TableSize(day=at.date(), table=name, size_bytes=size_bytes))
    TableSize.objects.bulk_create(sizes, ignore_conflicts=True)


def tables_now(*, at: datetime) -> list[TableNow]:
    """Return the tables, largest first."""
    earlier = _earlier_sizes(at.date())
    tables = []
    for name, (rows, size_bytes) in _sizes().items():
        daily_bytes = None
        if name in earlier:
            day, before_bytes = earlier[name]
            daily_bytes = (size_bytes - before_bytes) / (at.date() - day).days
        tables.append(TableNow(name, rows, size_bytes, daily_bytes))
    return sorted(tables, key=lambda table: (-table.size_bytes, table.name))


def last_measured() -> date | None:
    """Return the day for which sizes were stored last."""
    return TableSize.objects.order_by("-day").values_list("day", flat=True).first()


def _sizes() -> dict[str, tuple[int, int]]:
    """Return the number of rows, about, and the bytes of each table."""
    with connection.cursor() as cursor:
        cursor.execute(_SIZES)
        return {name: (rows, size_bytes) for name, rows, size_bytes in cursor.fetchall()}


def _earlier_sizes(today: date) -> Mapping[str, tuple[date, int]]:
    """Return the oldest size within `GROWTH_DAYS` before today of each table, with its day."""
    rows = TableSize.objects.filter(
        day__gte=today - timedelta(days=GROWTH_DAYS), day__lt=today
    ).order_by("table", "day")
    earlier: dict[str, tuple[date, int]] = {}
    for name, day, size_bytes in rows.values_list("table", "day", "size_bytes"):
        earlier.setdefault(name, (day, size_bytes))
    return earlier
