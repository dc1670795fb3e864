"""Tables as files for spreadsheets."""

import csv
from collections.abc import Iterable, Sequence
from itertools import chain

from django.http import StreamingHttpResponse

from apps.core.domain.tables import table_cell


class _Line:
    """What `csv` writes to, a line at a time."""

    def write(self, text: str) -> str:
        return text


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> StreamingHttpResponse:
    """Return a CSV file (RFC 4180, UTF-8) of any number of rows; every cell is defused by `table_cell`."""
    writer = csv.writer(_Line())

    return StreamingHttpResponse(
        (writer.writerow(map(table_cell, row)) for row in chain([columns], rows)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )
