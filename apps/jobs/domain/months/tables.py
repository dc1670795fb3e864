"""Tables of a month's job records: jobs, rows that cascade from them, and links to them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from django.db import connection, models

from apps.jobs.domain.records.calendar_months import next_month, start_of
from apps.jobs.models import Job

_OF_MONTH = "ended_at >= %(since)s AND ended_at < %(until)s"


@dataclass(frozen=True)
class MonthTable:
    """A table whose rows are archived with the jobs of a month, and the condition for them."""

    model: type[models.Model]
    condition: str

    @property
    def name(self) -> str:
        return self.model._meta.db_table

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Fields by column."""
        return {str(field.column): field for field in self.model._meta.concrete_fields}

    @property
    def key(self) -> str:
        return str(self.model._meta.pk.column)


@dataclass(frozen=True)
class MonthLink:
    """A column by which rows that are kept refer to archived rows."""

    table: MonthTable
    column: str
    target: MonthTable

    def __str__(self) -> str:
        return f"{self.table.name}.{self.column}"


def parameters_of_month(month: date) -> Mapping[str, Any]:
    """Return the SQL parameters of the conditions for a month."""
    return {"since": start_of(month), "until": start_of(next_month(month))}


def list_tables(condition: str = _OF_MONTH) -> list[MonthTable]:
    """Return the table of jobs and all tables that cascade from it, parents first."""
    cascading = [MonthTable(Job, condition)]
    # The list grows while it is iterated, to follow cascades of cascades.
    for parent in cascading:
        for relation in _relations(parent.model):
            is_listed = any(table.model is relation.related_model for table in cascading)
            if relation.on_delete is models.CASCADE and not is_listed:
                refers_to_parent = _refers_to(parent, relation.field.column)
                cascading.append(MonthTable(relation.related_model, refers_to_parent))
    return cascading


def list_links(condition: str = _OF_MONTH) -> list[MonthLink]:
    """Return the columns that refer to archived rows and are set to NULL when those are deleted."""
    links = []
    for parent in list_tables(condition):
        for relation in _relations(parent.model):
            if relation.on_delete is models.SET_NULL:
                column = relation.field.column
                table = MonthTable(relation.related_model, _refers_to(parent, column))
                links.append(MonthLink(table, column, parent))
    return links


def _refers_to(parent: MonthTable, column: str) -> str:
    """Return the condition that a column refers to an archived row of a table."""
    return f'"{column}" IN (SELECT "{parent.key}" FROM "{parent.name}" WHERE {parent.condition})'


def _relations(model: type[models.Model]) -> Iterator[Any]:
    for field in model._meta.get_fields(include_hidden=True):
        if field.auto_created and not field.concrete and (field.one_to_many or field.one_to_one):
            yield field


def count_and_digest(table: str, condition: str, parameters: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of matching rows and a checksum that does not depend on their order."""
    with connection.cursor() as cursor:
        cursor.execute(
            (
                f'SELECT count(*), coalesce(sum(hashtextextended(r::text, 0)), 0) FROM "{table}" '
                f"r WHERE {condition}"
            ),
            parameters,
        )
        count, digest = cursor.fetchone()
        return count, str(digest)
