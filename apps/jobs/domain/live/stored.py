"""Replace the stored rows of a cluster by the rows of a new reading."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from django.db.models import Model, QuerySet

K = TypeVar("K")
M = TypeVar("M", bound=Model)


def replace_rows(
    stored: QuerySet[M],
    rows: Mapping[K, M],
    *,
    key_of: Callable[[M], K],
    changing: Sequence[str],
) -> int:
    """Make `stored` equal to `rows`, in the caller's transaction; return how many were written.

    Only rows that differ are written. `changing` are the fields that can change while the key stays
    the same.
    """
    known = {key_of(old): old for old in stored}
    new = [row for key, row in rows.items() if key not in known]
    gone = []
    changed = []
    for key, old in known.items():
        row = rows.get(key)
        if row is None:
            gone.append(old.pk)
        elif any(getattr(old, name) != getattr(row, name) for name in changing):
            row.pk = old.pk
            changed.append(row)

    if gone:
        stored.filter(pk__in=gone).delete()
    stored.bulk_create(new, batch_size=2000)
    stored.bulk_update(changed, list(changing), batch_size=500)
    return len(gone) + len(new) + len(changed)
