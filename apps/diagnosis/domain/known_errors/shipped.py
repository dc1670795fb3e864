"""Load the shipped known errors into the database.

Rows that a site has edited are kept; new shipped values for them become proposals.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.diagnosis.domain.known_errors.changes import PORTAL, changed_fields, values_of
from apps.diagnosis.engine.base import Pattern
from apps.diagnosis.engine.evidence.catalogue import KnownErrorCatalogue, built_in
from apps.diagnosis.enums import ChangeState
from apps.diagnosis.models import CatalogueState, KnownError, KnownErrorChange

COLUMNS = ("title", "category", "service", "regex", "role", "advice", "example", "where")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load: rows added, rows changed, and proposals for rows edited by the site."""

    added: int = 0
    changed: int = 0
    offered: int = 0


@transaction.atomic
def load_shipped(*, at: datetime, catalogue: KnownErrorCatalogue | None = None) -> Loaded:
    """Load the shipped catalogue; do nothing if this version was loaded before.

    A row no longer shipped is disabled, unless the site edited it. New rows are valid, since the
    catalogue is checked when it is read.
    """
    catalogue = catalogue or built_in()
    CatalogueState.objects.get_or_create(pk=1)
    state = CatalogueState.objects.select_for_update().get(pk=1)
    if state.shipped == catalogue.version:
        return Loaded()
    rows = {
        known_error.id: known_error
        for known_error in KnownError.objects.select_related("experiment")
    }
    new = []
    changed = []
    changes = []
    for pattern in catalogue.patterns:
        shipped = _values(pattern)
        known_error = rows.get(pattern.id)
        if known_error is None:
            known_error = KnownError(id=pattern.id, version=1, shipped=shipped, **shipped)
            new.append(known_error)
            changes.append(_change(known_error, at, "Shipped with the portal."))
        elif known_error.shipped != shipped:
            changes.append(_update(known_error, shipped, at))
            changed.append(known_error)
    ids = {pattern.id for pattern in catalogue.patterns}
    for known_error in rows.values():
        if (
            known_error.shipped
            and known_error.id not in ids
            and known_error.enabled
            and not _is_edited(known_error)
        ):
            known_error.enabled = False
            known_error.version = known_error.version + 1
            changed.append(known_error)
            changes.append(_change(known_error, at, "No longer shipped with the portal."))
    KnownError.objects.bulk_create(new)
    KnownError.objects.bulk_update(changed, [*COLUMNS, "enabled", "version", "shipped"])
    KnownErrorChange.objects.bulk_create(changes)
    number = max((change.pk for change in changes if change.version), default=state.number)
    CatalogueState.objects.filter(pk=1).update(number=number, shipped=catalogue.version)
    offered = sum(change.state == ChangeState.PROPOSED for change in changes)
    return Loaded(len(new), len(changed) - offered, offered)


def _values(pattern: Pattern) -> dict[str, Any]:
    return {name: str(getattr(pattern, name)) for name in COLUMNS}


def _is_edited(known_error: KnownError) -> bool:
    return known_error.shipped is None or any(
        getattr(known_error, name) != known_error.shipped.get(name) for name in COLUMNS
    )


def _update(known_error: KnownError, shipped: dict[str, Any], at: datetime) -> KnownErrorChange:
    """Change a row to its shipped values; for a row edited or created here, return a proposal."""
    edited = _is_edited(known_error)
    fields = changed_fields(known_error.shipped or {}, shipped)
    known_error.shipped = shipped
    if edited:
        values = values_of(known_error) | {name: shipped[name] for name in fields}
        reason = "A new version of the portal ships these values; this row was edited here."
        return KnownErrorChange(
            known_error=known_error.id,
            state=ChangeState.PROPOSED,
            values=values,
            fields=fields,
            by=PORTAL,
            at=at,
            reason=reason,
        )
    for name, value in shipped.items():
        setattr(known_error, name, value)
    known_error.version += 1
    return _change(known_error, at, "Shipped with a new version of the portal.")


def _change(known_error: KnownError, at: datetime, reason: str) -> KnownErrorChange:
    return KnownErrorChange(
        known_error=known_error.id,
        version=known_error.version,
        state=ChangeState.APPLIED,
        values=values_of(known_error),
        by=PORTAL,
        at=at,
        reason=reason,
    )
