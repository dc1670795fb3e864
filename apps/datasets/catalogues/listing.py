"""Checks of lists of files, common to all catalogues."""

from collections.abc import Iterable, Iterator, Sequence

from apps.datasets.catalogues.base import CatalogueFile, Incomplete, Refused


def check_count(*, dataset: str, listed: int, expected: int) -> None:
    """Raise `Incomplete` unless a list has as many files as the catalogue counted."""
    if listed != expected:
        raise Incomplete(
            f"The list of {dataset} has {listed:,} files, but the catalogue counts {expected:,}."
        )


def each_once(dataset: str, files: Iterable[CatalogueFile]) -> Iterator[CatalogueFile]:
    """Yield files. Raises `Incomplete` if one appears twice, because it may hide a missing one."""
    names: set[str] = set()
    for file in files:
        if file.name in names:
            raise Incomplete(f"The list of {dataset} contains {file.name} twice.")
        names.add(file.name)
        yield file


def check_same_files(*, dataset: str, present: Iterable[str], expected: Iterable[str]) -> None:
    """Raise `Refused` unless a dataset that exists has exactly the expected files."""
    if set(present) != set(expected):
        raise Refused(f"Another dataset is named {dataset}: its files differ.")


def chunks(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield consecutive parts of at most `size` names."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def with_namespace(name: str, namespace: str) -> str | None:
    """Return `namespace:name`, for a name that may lack it; None if that is no complete name."""
    if ":" not in name and namespace:
        name = f"{namespace}:{name}"
    before, _, after = name.partition(":")
    return name if before and after else None
