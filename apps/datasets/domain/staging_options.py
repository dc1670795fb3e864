"""Where a catalogue brings datasets to: options of its row that the portal itself reads."""

from dataclasses import dataclass
from datetime import timedelta

from apps.core.domain.plugins import UnknownPlugin
from apps.datasets.catalogues.base import Refused, Stages
from apps.datasets.catalogues.registry import CATALOGUES
from apps.datasets.models import Catalogue

#: Adapters do not know these options.
STAGING_OPTIONS = frozenset({"stage_to", "stage_days"})
DEFAULT_DAYS = 30
MOST_DAYS = 365


@dataclass(frozen=True, slots=True)
class StagingTarget:
    """A storage, such as an RSE expression, and how long datasets stay there."""

    storage: str
    lifetime: timedelta


def staging_target(catalogue: Catalogue) -> StagingTarget | None:
    """Return where a catalogue brings datasets to; None if it does not.

    Sends no request. Raises `Refused` if the options are wrong.
    """
    if not STAGING_OPTIONS & catalogue.options.keys():
        return None
    try:
        can_stage_datasets = issubclass(CATALOGUES.get(catalogue.kind), Stages)
    except UnknownPlugin as error:
        raise Refused(str(error)) from error
    if not can_stage_datasets:
        raise Refused(f"A catalogue of the kind “{catalogue.kind}” cannot bring datasets to disk.")

    storage = catalogue.options.get("stage_to")
    if not isinstance(storage, str) or not storage.strip() or len(storage) > 500:
        raise Refused("“stage_to” is not a storage, such as an RSE expression.")
    days = catalogue.options.get("stage_days", DEFAULT_DAYS)
    if type(days) is not int or not 0 < days <= MOST_DAYS:
        raise Refused(f"“stage_days” is not a number of days from 1 to {MOST_DAYS}.")
    return StagingTarget(storage.strip(), timedelta(days=days))


def can_stage(catalogue: Catalogue) -> bool:
    """Return whether a catalogue brings datasets to disk, with options that are right."""
    try:
        return staging_target(catalogue) is not None
    except Refused:
        return False
