"""Tables as files for spreadsheets."""

import csv
from collections.abc import Iterable, Iterator, Sequence

from django.http import HttpResponse, StreamingHttpResponse

from apps.core.domain.exports.tables import table_cell


class _Line:
    """A file that returns what is written to it, so that a writer can stream."""

    def write(self, text: str) -> str:
        return text


def streamed_csv(
    name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> StreamingHttpResponse:
    """Return a CSV file as `csv_file` does, of any number of rows."""
    writer = csv.writer(_Line())

    def lines() -> Iterator[str]:
        yield writer.writerow(columns)
        for row in rows:
            yield writer.writerow(table_cell(cell) for cell in row)

    return StreamingHttpResponse(
        lines(),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """Return a CSV file (RFC 4180, UTF-8) of some thousand rows.

    Every cell passes through `table_cell`.
    """
    response = HttpResponse(
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )
    writer = csv.writer(response)
    writer.writerow(columns)
    writer.writerows(map(table_cell, row) for row in rows)
    return response
