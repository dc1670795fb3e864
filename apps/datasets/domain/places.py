"""Where the files of a dataset are: on disk, on tape only, or nowhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from apps.datasets.catalogues.base import Catalogue, DatasetSummary, Location, Medium

#: Larger datasets are not located: a catalogue would be busy with one of them for minutes.
MOST_LOCATED = 10_000
#: Files whose replicas one call asks for; the adapters divide it further.
CHUNK = 1_000
#: Time limit for locating the files of a dataset; the rest is not located.
LOCATING_TIME = timedelta(minutes=2)

_TOO_MANY = f"The portal locates the files of datasets of up to {MOST_LOCATED:,} files."
_TOO_SLOW = f"The catalogue took longer than {LOCATING_TIME.seconds // 60} minutes."


@dataclass(frozen=True, slots=True)
class DatasetPlaces:
    """The number of files of a dataset by location.

    Unknown numbers are None; `reason` may say why. A file whose replicas are on storage of an
    unknown kind counts only in `files`.
    """

    files: int | None = None
    on_disk: int | None = None
    on_tape_only: int | None = None
    without_location: int | None = None
    reason: str = ""


UNKNOWN_PLACES = DatasetPlaces()


def locate_files(
    catalogue: Catalogue, summary: DatasetSummary, *, now: Callable[[], datetime]
) -> DatasetPlaces:
    """Ask a catalogue where the files of a dataset are. Raises `CatalogueError`.

    Datasets of more than `MOST_LOCATED` files are not located, nor are datasets of a catalogue that
    takes longer than `LOCATING_TIME`: counts of a part would be wrong.
    """
    if not catalogue.knows_locations:
        return UNKNOWN_PLACES
    if summary.files is not None and summary.files > MOST_LOCATED:
        return DatasetPlaces(reason=_TOO_MANY)

    started_at = now()
    names = list(islice(_current_files(catalogue, summary.name), MOST_LOCATED + 1))
    if len(names) > MOST_LOCATED:
        return DatasetPlaces(reason=_TOO_MANY)

    on_disk = 0
    on_tape_only = 0
    without_location = 0
    for start in range(0, len(names), CHUNK):
        if now() - started_at > LOCATING_TIME:
            return DatasetPlaces(reason=_TOO_SLOW)
        chunk = names[start : start + CHUNK]
        locations = catalogue.locations(chunk)
        for name in chunk:
            # The catalogue leaves out files that are not declared: they have no location.
            media = _readable_media(locations.get(name, ()))
            if Medium.DISK in media:
                on_disk += 1
            elif media == {Medium.TAPE}:
                on_tape_only += 1
            elif not media:
                without_location += 1
    return DatasetPlaces(len(names), on_disk, on_tape_only, without_location)


def _current_files(catalogue: Catalogue, dataset: str) -> Iterator[str]:
    for file in catalogue.files(dataset):
        if not file.retired:
            yield file.name


def _readable_media(locations: Sequence[Location]) -> set[Medium]:
    """Return the media with a replica that can be read, or of which that is unknown."""
    media = set()
    for location in locations:
        if location.available is not False:
            media.add(location.medium)
    return media
