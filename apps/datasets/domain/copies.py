"""Copies of output files that do not count, of files that were done twice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.datasets.models import OutputFile
from apps.production.models import Stage

#: Copies whose counting files are looked up at once.
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class EqualCopy:
    """An output file that does not count, and the equal one of the same job number that does.

    `is_name_in_use` says whether an output file of the same name counts, in any request: in a
    catalogue these are one file.
    """

    copy: OutputFile
    counting: OutputFile
    is_name_in_use: bool


def equal_copies(stage: Stage) -> Iterator[EqualCopy]:
    """Yield the copies that do not count and equal one that does in size and checksum.

    Files without a checksum, or of an unknown job number, are left out: they may differ.
    """
    copies = OutputFile.objects.filter(stage=stage, counts=False, number__isnull=False)
    copies = copies.exclude(checksum="").order_by("pk")
    for batch in _batches(copies.iterator(chunk_size=_BATCH)):
        yield from _with_counting(stage, batch)


def _batches(copies: Iterator[OutputFile]) -> Iterator[list[OutputFile]]:
    batch: list[OutputFile] = []
    for copy in copies:
        batch.append(copy)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _with_counting(stage: Stage, batch: Sequence[OutputFile]) -> Iterator[EqualCopy]:
    counting = OutputFile.objects.filter(stage=stage, counts=True)
    equal: dict[tuple[int | None, int, str], OutputFile] = {}
    for file in counting.filter(number__in={copy.number for copy in batch}).order_by("pk"):
        equal.setdefault((file.number, file.size_bytes, file.checksum), file)
    names = [copy.name for copy in batch]
    # Of any request: files are deleted by name.
    in_use = OutputFile.objects.filter(name__in=names, counts=True)
    used = set(in_use.values_list("name", flat=True))
    for copy in batch:
        key = (copy.number, copy.size_bytes, copy.checksum)
        if key in equal:
            yield EqualCopy(copy, equal[key], copy.name in used)
