"""Files are grouped into jobs by runs, number or size, and incomplete groups close in time."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.datasets.domain.ledger import WaitingFile
from apps.submission.domain.arrays.grouping import MOST_BY_SIZE, Grouping, group_files
from tests.factories.requests import AT

HOUR = timedelta(hours=1)


def waiting(*runs, size=1, found_at=AT):
    """Return a file for each run, named by its place."""
    return [WaitingFile(str(place), run, size, found_at) for place, run in enumerate(runs)]


def names(files, grouping, *, at=AT, last=False):
    groups = group_files(files, grouping, at=at, last=last)
    return ["".join(file.name for file in group) for group in groups]


@pytest.mark.parametrize(
    ("arguments", "grouping"),
    [
        ({}, Grouping()),
        ({"split": "per file"}, Grouping()),
        ({"split": "per run", "whole_runs": True}, Grouping(per_run=True)),
        ({"split": "per N files", "files_per_job": 3}, Grouping(most_files=3)),
        ({"split": "per N files"}, Grouping(most_files=1)),
        (
            {"split": "by size", "group_bytes": 9, "close_after": 3600, "whole_runs": True},
            Grouping(most_files=None, most_bytes=9, close_after=HOUR, whole_runs=True),
        ),
        ({"split": "by size"}, Grouping()),
    ],
)
def test_arguments_of_requests(arguments, grouping):
    assert Grouping.of(arguments) == grouping


def test_by_number():
    files = waiting(1, 1, 2, 2, 3)
    assert names(files, Grouping(most_files=2)) == ["01", "23"]
    assert names(files, Grouping(most_files=2), last=True) == ["01", "23", "4"]


def test_by_size_a_group_stays_below_it_unless_one_file_is_larger():
    files = [*waiting(1, 1, 1, size=4), WaitingFile("x", 1, 11, AT), WaitingFile("y", 1, 1, AT)]
    grouping = Grouping(most_files=None, most_bytes=10)
    assert names(files, grouping) == ["01", "2", "x"]
    assert names(files, grouping, last=True) == ["01", "2", "x", "y"]


def test_an_incomplete_group_closes_in_time():
    grouping = Grouping(most_files=3, close_after=HOUR)
    files = [*waiting(1), WaitingFile("x", 1, 1, AT + HOUR / 2)]
    assert names(files, grouping, at=AT + HOUR / 2) == []
    assert names(files, grouping, at=AT + HOUR) == ["0x"]


def test_runs_stay_together_and_the_newest_may_still_grow():
    grouping = Grouping(most_files=3, whole_runs=True, close_after=HOUR)
    files = waiting(1, 1, 2, 2, 3, 3, 3, 3, 4)
    assert names(files, grouping, at=AT + HOUR / 2) == ["01", "23", "4567"]
    assert names(files, grouping, at=AT + HOUR) == ["01", "23", "4567", "8"]
    assert names(waiting(1, 1, 1), grouping) == []


class CountedFile:
    """A waiting file without a size that counts how often its size is read."""

    found_at = AT

    def __init__(self, place, run):
        self.name = str(place)
        self.run = run
        self.reads = 0

    @property
    def size_bytes(self):
        self.reads += 1
        return 0


@pytest.mark.parametrize("whole_runs", [False, True])
def test_very_many_files_without_a_size_are_read_once_and_divided(whole_runs):
    files = [CountedFile(place, place // 7) for place in range(50_000)]
    grouping = Grouping(most_files=None, most_bytes=10**12, whole_runs=whole_runs)
    groups = group_files(files, grouping, at=AT, last=True)
    assert [file for group in groups for file in group] == files
    assert max(len(group) for group in groups) <= MOST_BY_SIZE
    assert len(groups) <= 51
    assert {file.reads for file in files} == {1}


files_of_runs = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(1, 5)), st.one_of(st.none(), st.integers(0, 30))),
    max_size=30,
)
groupings = st.builds(
    Grouping,
    per_run=st.booleans(),
    most_files=st.one_of(st.none(), st.integers(1, 6)),
    most_bytes=st.integers(1, 40),
    close_after=st.one_of(st.none(), st.just(HOUR)),
    whole_runs=st.booleans(),
)


@given(files_of_runs, groupings, st.integers(0, 2), st.booleans())
def test_each_file_is_in_one_group_or_waits(rows, grouping, hours, last):
    files = []
    for place, (run, size) in enumerate(rows):
        files.append(WaitingFile(f"{place:02}", run, size, AT))
    groups = group_files(files, grouping, at=AT + hours * HOUR, last=last)
    grouped = [file for group in groups for file in group]
    assert len(set(grouped)) == len(grouped)
    assert all(groups), "no group is empty"
    if last or grouping.per_run or (grouping.close_after and hours):
        assert set(grouped) == set(files)
    if grouping.whole_runs or grouping.per_run:
        for group in groups:
            for file in group:
                if file.run is not None:
                    same_run = {other for other in files if other.run == file.run}
                    assert same_run <= set(group)
    elif grouping.most_files is not None:
        assert all(len(group) <= grouping.most_files for group in groups)
    else:
        for group in groups:
            size = sum(file.size_bytes or 0 for file in group)
            assert size <= grouping.most_bytes or len(group) == 1
