"""Group the waiting files of keep-up processing and of merge stages into jobs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.core.domain.quantities import format_duration, format_size
from apps.datasets.domain.ledger import WaitingFile

#: Files of a group by size at most: files of unknown or no size would all be in one group.
MOST_BY_SIZE = 1_000
PER_RUN = "per run"
PER_FILE = "per file"
PER_N = "per N files"
BY_SIZE = "by size"


@dataclass(frozen=True)
class Grouping:
    """How files are grouped: by runs, or up to a number of files or bytes.

    An incomplete group waits for more files, at most `close_after` from when its first file was
    found. With `whole_runs` the files of a run stay together; the newest run may still grow, and
    waits likewise.
    """

    per_run: bool = False
    most_files: int | None = 1
    most_bytes: int | None = None
    close_after: timedelta | None = None
    whole_runs: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, object]) -> "Grouping":
        """Return the grouping that arguments of keep-up processing or of a merge stage declare."""
        split = arguments.get("split")
        close_after = _positive(arguments.get("close_after"))
        waits = timedelta(seconds=close_after) if close_after else None
        whole_runs = arguments.get("whole_runs") is True
        if split == PER_RUN:
            return cls(per_run=True)
        if split == PER_N:
            files = _positive(arguments.get("files_per_job")) or 1
            return cls(most_files=files, close_after=waits, whole_runs=whole_runs)
        most_bytes = _positive(arguments.get("group_bytes"))
        if split == BY_SIZE and most_bytes:
            return cls(
                most_files=None, most_bytes=most_bytes, close_after=waits, whole_runs=whole_runs
            )
        return cls()

    def __str__(self) -> str:
        if self.per_run:
            return "Groups of one run each"
        if self.most_bytes is not None:
            text = f"Groups of up to {format_size(self.most_bytes)}"
        else:
            text = f"Groups of {self.most_files:,} files"
        if self.close_after is not None:
            text += f", closed after {format_duration(int(self.close_after.total_seconds()))}"
        return f"{text}, runs kept together" if self.whole_runs else text

    @property
    def keeps_runs(self) -> bool:
        """Whether the files of a run are never divided."""
        return self.per_run or self.whole_runs


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def group_files(
    files: Sequence[WaitingFile],
    grouping: Grouping,
    *,
    at: datetime,
    last: bool,
    are_runs_closed: bool = False,
) -> list[list[WaitingFile]]:
    """Group files in their order; files of groups that wait for more files are left out.

    On the last look nothing waits. With `are_runs_closed` the newest run does not grow either.
    """
    if grouping.per_run:
        return list(_by_run(files).values())
    units = _units(files, grouping)
    groups: list[list[WaitingFile]] = []
    group: list[WaitingFile] = []
    group_bytes = 0
    for place, unit in enumerate(units):
        is_newest = place == len(units) - 1
        is_growing = grouping.whole_runs and is_newest and not are_runs_closed
        if is_growing and not (last or _has_waited(unit, grouping, at)):
            break
        unit_bytes = _total_bytes(unit)
        files_with_unit = len(group) + len(unit)
        if group and _exceeds(grouping, files_with_unit, group_bytes + unit_bytes):
            groups.append(group)
            group = []
            group_bytes = 0
        group.extend(unit)
        group_bytes += unit_bytes
        if _is_full(grouping, len(group), group_bytes):
            groups.append(group)
            group = []
            group_bytes = 0
    if group and (last or _has_waited(group, grouping, at)):
        groups.append(group)
    return groups


def _by_run(files: Sequence[WaitingFile]) -> Mapping[object, list[WaitingFile]]:
    """Return the files by run, in the order of its first file; one without a run is alone."""
    by_run: dict[object, list[WaitingFile]] = defaultdict(list)
    for file in files:
        run = file.name if file.run is None else file.run
        by_run[run].append(file)
    return by_run


def _units(files: Sequence[WaitingFile], grouping: Grouping) -> Sequence[Sequence[WaitingFile]]:
    """Return what is never divided: single files, or runs."""
    if grouping.whole_runs:
        return list(_by_run(files).values())
    return [[file] for file in files]


def _exceeds(grouping: Grouping, files: int, size_bytes: int) -> bool:
    """Return whether files of this number and total size are too many for one group."""
    if grouping.most_files is not None:
        return files > grouping.most_files
    return files > MOST_BY_SIZE or size_bytes > (grouping.most_bytes or 0)


def _is_full(grouping: Grouping, files: int, size_bytes: int) -> bool:
    if grouping.most_files is not None:
        return files >= grouping.most_files
    return files >= MOST_BY_SIZE or size_bytes >= (grouping.most_bytes or 0)


def _total_bytes(files: Sequence[WaitingFile]) -> int:
    """Return the size of files; one of unknown size counts as empty."""
    return sum(file.size_bytes or 0 for file in files)


def _has_waited(files: Sequence[WaitingFile], grouping: Grouping, at: datetime) -> bool:
    """Whether the first of these files was found too long ago to wait for others."""
    if grouping.close_after is None:
        return False
    return min(file.found_at for file in files) + grouping.close_after <= at
