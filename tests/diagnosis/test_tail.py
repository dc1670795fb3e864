"""Reading a log from its end, and opening it only where that is allowed."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.diagnosis.engine import tail
from apps.diagnosis.engine.tail import LogMissing, LogRefused, LogUnreadable, lines_of, open_log, read_back


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    (directory / "nova").mkdir(parents=True)
    (directory / "nova" / "job.log").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / "secret").write_bytes(b"secret\n")
    return directory


def read(path: Path, roots=None, **wanted) -> list[tuple[int | None, int, str]]:
    with open_log(path, roots) as descriptor:
        return [(line.number, line.offset, line.text) for line in lines_of(read_back(descriptor, **wanted))]


def test_whole_small_log_is_read_with_numbers_and_offsets(root):
    assert read(root / "nova/job.log", [root]) == [(1, 0, "one"), (2, 4, "two"), (3, 8, "three")]


def test_last_lines_and_the_ones_before_them_join(root):
    log = root / "nova/job.log"
    assert read(log, [root], lines=1) == [(3, 8, "three")]
    assert read(log, [root], lines=1, end=8) == [(2, 4, "two")]
    assert read(log, [root], lines=5, end=4) == [(1, 0, "one")]
    assert read(log, [root], lines=5, end=0) == []


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=40),
    closed=st.booleans(),
    count=st.integers(1, 50),
    step=st.integers(1, 50),
)
def test_last_lines_equal_a_split_of_the_whole(tmp_path_factory, lines, closed, count, step):
    data = b"\n".join(lines) + b"\n" * (closed and bool(lines))
    log = tmp_path_factory.getbasetemp() / "split.log"
    log.write_bytes(data)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "STEP_BYTES", step)
        found = read(log, lines=count)
    total = len(expected)
    assert [number for number, _, _ in found] == list(range(max(1, total - count + 1), total + 1))
    assert [text for _, _, text in found] == [tail._display_text(line) for line in expected[-count:]]
    assert all(data[offset:].startswith(line) for (_, offset, _), line in zip(found, expected[-count:], strict=True))


def test_budget_leaves_out_the_line_it_cuts(tmp_path):
    log = tmp_path / "big.log"
    log.write_bytes(b"a" * 100 + b"\n" + b"b" * 10 + b"\n")
    assert read(log, budget_bytes=50) == [(2, 101, "b" * 10)]


def test_one_line_larger_than_the_budget_is_shown_in_part(tmp_path):
    log = tmp_path / "big.log"
    log.write_bytes(b"a" * 1000)
    assert read(log, budget_bytes=50) == [(1, 950, "a" * 50)]


def test_line_numbers_of_a_very_large_log_are_not_known(tmp_path):
    log = tmp_path / "huge.log"
    with log.open("wb") as file:
        file.truncate(5 * 1024**3)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast words\n")
    number, offset, text = read(log, lines=1)[0]
    assert (number, offset, text) == (None, 5 * 1024**3 + 1, "last words")


def test_long_line_is_cut_and_says_so(tmp_path):
    log = tmp_path / "long.log"
    log.write_bytes(b"x" * 10_000 + b"\n")
    assert read(log)[0][2] == "x" * 8192 + " … 1,808 bytes more"


def test_nul_and_bad_utf8_are_replaced(tmp_path):
    log = tmp_path / "odd.log"
    log.write_bytes(b"a\x00b\xff\r\n")
    assert read(log)[0][2] == "a\ufffdb\ufffd"


def test_log_that_shrinks_while_it_is_read_gives_what_is_left(tmp_path, monkeypatch):
    log = tmp_path / "cut.log"
    log.write_bytes(b"one\ntwo\n" + b"x" * 200_000)
    real = os.pread

    def pread(descriptor, length, position):
        os.truncate(log, 8)
        return real(descriptor, length, position)

    monkeypatch.setattr(os, "pread", pread)
    assert [text for _, _, text in read(log)] == ["one", "two"]


def test_log_that_grows_is_read_to_the_size_it_had(root):
    log = root / "nova/job.log"
    with open_log(log, [root]) as descriptor:
        block = read_back(descriptor)
        with log.open("ab") as file:
            file.write(b"four\n")
    assert block.file_bytes == 14


@pytest.mark.parametrize(
    "path",
    ["nova/../../secret", "../secret", "nova/link", "away/job.log", "nova", "fifo", "nova/job.log/x", ""],
)
def test_path_that_may_not_be_read_is_refused(root, path):
    (root / "nova/link").symlink_to(root.parent / "secret")
    (root / "away").symlink_to(root / "nova")
    os.mkfifo(root / "fifo")
    with pytest.raises(LogRefused), open_log(Path(f"{root}/{path}"), [root]):
        pass


@pytest.mark.parametrize("path", ["/etc/passwd", "nova/job.log", "/dev/null", "/nul\x00"])
def test_path_outside_of_the_roots_is_refused(root, path):
    with pytest.raises(LogRefused), open_log(Path(path), [root]):
        pass


def test_without_roots_configured_nothing_is_read(root):
    with pytest.raises(LogRefused), open_log(root / "nova/job.log", []):
        pass


def test_missing_log_is_missing(root):
    with pytest.raises(LogMissing), open_log(root / "nova/none.log", [root]):
        pass


def test_overlong_name_is_unreadable_not_a_crash(root):
    with pytest.raises(LogUnreadable), open_log(root / ("n" * 300), [root]):
        pass


def test_root_that_is_a_symlink_is_read_under_both_names(root, tmp_path):
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    assert read(alias / "nova/job.log", [alias], lines=1)[0][2] == "three"
    assert read(root / "nova/job.log", [alias], lines=1)[0][2] == "three"
