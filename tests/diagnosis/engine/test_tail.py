"""Reading a log from its end, and opening it only where that is allowed."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.user_files import FileReader
from apps.diagnosis.engine.logs import tail
from apps.diagnosis.engine.logs.access import LogAccess
from apps.diagnosis.engine.logs.tail import (
    LogMissing,
    LogRefused,
    LogUnreadable,
    lines_of,
    open_log,
    read_back,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    (directory / "nova").mkdir(parents=True)
    (directory / "nova" / "job.log").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / "secret").write_bytes(b"secret\n")
    return directory


def own(*roots: Path) -> LogAccess:
    """Access of a job whose user is the one that runs the tests."""
    return LogAccess(roots, user="alice", uid=os.getuid())


def read(path: Path, access=None, **wanted) -> list[tuple[int | None, int, str]]:
    with open_log(path, access) as descriptor:
        return [
            (line.number, line.offset, line.text)
            for line in lines_of(read_back(descriptor, **wanted))
        ]


def test_whole_small_log_is_read_with_numbers_and_offsets(root):
    assert read(root / "nova/job.log", own(root)) == [(1, 0, "one"), (2, 4, "two"), (3, 8, "three")]


def test_last_lines_and_the_ones_before_them_join(root):
    log = root / "nova/job.log"
    assert read(log, own(root), lines=1) == [(3, 8, "three")]
    assert read(log, own(root), lines=1, end=8) == [(2, 4, "two")]
    assert read(log, own(root), lines=5, end=4) == [(1, 0, "one")]
    assert read(log, own(root), lines=5, end=0) == []


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
    assert [text for _, _, text in found] == [
        tail._display_text(line) for line in expected[-count:]
    ]
    assert all(
        data[offset:].startswith(line)
        for (_, offset, _), line in zip(found, expected[-count:], strict=True)
    )


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
    with open_log(log, own(root)) as descriptor:
        block = read_back(descriptor)
        with log.open("ab") as file:
            file.write(b"four\n")
    assert block.file_bytes == 14


@pytest.mark.parametrize(
    "path",
    [
        "nova/../../secret",
        "../secret",
        "nova/link",
        "away/job.log",
        "nova",
        "fifo",
        "nova/job.log/x",
        "",
    ],
)
def test_path_that_may_not_be_read_is_refused(root, path):
    (root / "nova/link").symlink_to(root.parent / "secret")
    (root / "away").symlink_to(root / "nova")
    os.mkfifo(root / "fifo")
    with pytest.raises(LogRefused), open_log(Path(f"{root}/{path}"), own(root)):
        pass


@pytest.mark.parametrize("path", ["/etc/passwd", "nova/job.log", "/dev/null", "/nul\x00"])
def test_path_outside_of_the_roots_is_refused(root, path):
    with pytest.raises(LogRefused), open_log(Path(path), own(root)):
        pass


def test_without_roots_configured_nothing_is_read(root):
    with pytest.raises(LogRefused), open_log(root / "nova/job.log", own()):
        pass


def test_missing_log_is_missing(root):
    with pytest.raises(LogMissing), open_log(root / "nova/none.log", own(root)):
        pass


def test_overlong_name_is_unreadable_not_a_crash(root):
    with pytest.raises(LogUnreadable), open_log(root / ("n" * 300), own(root)):
        pass


def test_root_that_is_a_symlink_is_read_under_both_names(root, tmp_path):
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    assert read(alias / "nova/job.log", own(alias), lines=1)[0][2] == "three"
    assert read(root / "nova/job.log", own(alias), lines=1)[0][2] == "three"


def test_file_of_another_user_is_refused(root):
    """The job's user is made another one, so that this needs no privilege."""
    other = LogAccess((root,), user="mallory", uid=os.getuid() + 1)
    with pytest.raises(LogRefused, match=r"job.log: owned by .*, but the job ran as mallory$"):
        read(root / "nova/job.log", other)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_file_that_belongs_to_another_uid_is_refused(root):
    os.chown(root / "nova/job.log", 54321, -1)
    with pytest.raises(LogRefused, match="owned by uid 54321, but the job ran as alice"):
        read(root / "nova/job.log", own(root))
    assert read(root / "nova/job.log", LogAccess((root,), "bob", 54321), lines=1)[0][2] == "three"


def test_owner_whom_the_cluster_allows_is_read_for_any_user(root):
    service = frozenset({os.getuid()})
    assert read(
        root / "nova/job.log", LogAccess((root,), "mallory", os.getuid() + 1, service), lines=1
    )
    assert read(root / "nova/job.log", LogAccess((root,), "ghost", None, service), lines=1)


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("ghost", "the job's user ghost is not an ordinary account on this host"),
        ("", "job has no user"),
    ],
)
def test_nothing_is_read_for_a_user_whom_this_host_does_not_know(root, user, reason):
    with pytest.raises(LogRefused, match=f"{reason}, and its cluster does not allow logs owned by"):
        read(root / "nova/job.log", LogAccess((root,), user))


def test_hard_link_is_refused(root):
    os.link(root.parent / "secret", root / "nova/linked.log")
    with pytest.raises(LogRefused, match=r"linked\.log: hard link: the file has 2 names"):
        read(root / "nova/linked.log", own(root))
    with pytest.raises(LogRefused, match="hard link"):
        read(root / "nova/linked.log", LogAccess((root,), "bob", None, frozenset({os.getuid()})))


@pytest.mark.parametrize("then", ["gone", "replaced"])
def test_hard_link_that_is_removed_while_it_is_opened_is_not_read(root, monkeypatch, then):
    link = root / "nova/linked.log"
    os.link(root.parent / "secret", link)
    real = os.open

    def open_then_unlink(path, flags, *arguments, **more):
        descriptor = real(path, flags, *arguments, **more)
        if path == link.name:
            link.unlink()
            if then == "replaced":
                link.write_text("harmless")
        return descriptor

    monkeypatch.setattr(os, "open", open_then_unlink)
    error, words = (
        (LogMissing, "no such file")
        if then == "gone"
        else (LogUnreadable, "replaced while it was opened")
    )
    with pytest.raises(error, match=words):
        read(link, own(root))


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o2777])
def test_log_in_a_directory_that_everyone_may_write_to_is_refused(root, mode):
    (root / "nova/run").mkdir()
    (root / "nova/job.log").rename(root / "nova/run/job.log")
    (root / "nova").chmod(mode)
    with pytest.raises(
        LogRefused, match=f"job.log: directory {root}/nova is writable by everyone$"
    ):
        read(root / "nova/run/job.log", own(root))


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o1777, 0o1775])
def test_log_in_a_directory_of_its_user_or_with_the_sticky_bit_is_read(root, mode):
    (root / "nova").chmod(mode)
    assert read(root / "nova/job.log", own(root), lines=1)[0][2] == "three"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives directories away")
def test_log_in_a_directory_that_the_group_of_another_may_write_to_is_refused(root):
    os.chown(root / "nova", 54321, -1)
    assert read(root / "nova/job.log", own(root), lines=1)
    (root / "nova").chmod(0o775)
    with pytest.raises(LogRefused, match="nova is writable by its group and owned by uid 54321"):
        read(root / "nova/job.log", own(root))
    allowed = LogAccess((root,), "alice", os.getuid(), frozenset({54321}))
    assert read(root / "nova/job.log", allowed, lines=1)


def test_directory_of_root_may_be_writable_by_its_group(root):
    status = os.stat_result((0o040775, 1, 1, 2, 0, 0, 0, 0, 0, 0))
    assert own(root).directory_problem(status) == ""


@pytest.fixture
def open_root():
    """A directory for logs that everyone may search, as pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = Path(directory)
        path.chmod(0o755)
        (path / "nova").mkdir(mode=0o755)
        (path / "nova/job.log").write_text("mine\n")
        yield path


ALICE = FileReader(os.getuid() + 1, frozenset({os.getgid()}))


@pytest.mark.parametrize(
    ("made", "mode", "reason"),
    [
        ("", 0o700, "may not search directory /tmp/[^/]*$"),
        ("nova", 0o700, "may not search directory .*/nova$"),
        ("nova", 0o754 & ~0o010, "may not search directory .*/nova$"),
        ("nova/job.log", 0o600, "may not read it$"),
        ("nova/job.log", 0o604, "may not read it$"),
    ],
)
def test_log_that_the_reader_may_not_read_is_refused(open_root, made, mode, reason):
    service = frozenset({os.getuid()})
    (open_root / made).chmod(mode)
    log = open_root / "nova/job.log"
    assert read(log, LogAccess((open_root,), "alice", ALICE.uid, service))
    with pytest.raises(LogRefused, match=f"the job's user alice {reason}"):
        read(log, LogAccess((open_root,), "alice", ALICE.uid, service, reader=ALICE))


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_log_that_the_reader_may_read_is_shown(open_root, mode):
    """By the group's right, or by everyone's where the group is another."""
    (open_root / "nova/job.log").chmod(mode)
    reader = ALICE if mode & 0o040 else FileReader(ALICE.uid)
    access = LogAccess((open_root,), "alice", ALICE.uid, frozenset({os.getuid()}), reader=reader)
    assert [text for _, _, text in read(open_root / "nova/job.log", access)] == ["mine"]
