"""The tree of files: names, periods, what is there already, and a disk that is full."""

import os
import stat
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone

import pytest

from apps.archive.sinks import files
from apps.archive.sinks.base import BadSink, SinkUnavailable
from apps.archive.sinks.registry import open_sink
from tests.contracts.sink import SUBMITTED, a_job
from tests.programs.small_disk import small_disk


@pytest.fixture
def root(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def sink(root):
    with closing(open_sink(f"files://{root}?period=daily")) as sink:
        yield sink


def names(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("query", "directory"),
    [
        ("", "20261120"),
        ("?period=daily", "20261120"),
        ("?period=monthly", "202611"),
        ("?period=yearly", "2026"),
    ],
)
def test_tree_is_the_documented_one(root, query, directory):
    job = a_job("12[3].server", description=b"<job/>")

    assert open_sink(f"files://{root}{query}").write([job]) == {}

    start = f"alps/{directory}/job.12[3].server"
    assert names(root) == [f"{start}_description", f"{start}_environment", f"{start}_script"]
    assert (root / f"{start}_script").read_bytes() == job.script
    assert (root / f"{start}_environment").read_bytes() == job.environment
    assert (root / f"{start}_description").read_bytes() == b"<job/>"
    assert stat.S_IMODE((root / f"{start}_environment").stat().st_mode) & 0o007 == 0


def test_period_is_that_of_the_submission_in_utc(sink, root):
    late = datetime(2026, 11, 20, 23, 30, tzinfo=timezone(timedelta(hours=-5)))

    sink.write([a_job(1, submitted_at=late, captured_at=late + timedelta(days=3))])

    assert names(root) == ["alps/20261121/job.1_environment", "alps/20261121/job.1_script"]


def test_second_job_of_an_id_is_named_by_its_time(sink, root):
    second = a_job(1, script=b"second", submitted_at=SUBMITTED + timedelta(seconds=1))

    sink.write([a_job(1)])
    sink.write([second, a_job(1)])

    assert names(root / "alps/20261120") == [
        "job.1_environment",
        "job.1_script",
        "job.1~20261120T235959.123456Z_environment",
        "job.1~20261120T235959.123456Z_script",
    ]
    assert (root / "alps/20261120/job.1~20261120T235959.123456Z_script").read_bytes() == b"second"


def test_file_of_somebody_else_is_never_written_over(sink, root):
    directory = root / "alps/20261120"
    directory.mkdir(parents=True)
    (directory / "job.1_script").write_bytes(b"by SArchive")
    (directory / "job.1_environment").write_bytes(b"by SArchive")

    assert sink.write([a_job(1)]) == {}

    assert (directory / "job.1_script").read_bytes() == b"by SArchive"
    assert (directory / "job.1~20261120T235958.123456Z_script").read_bytes() == a_job(1).script


def test_what_a_killed_process_has_left_is_completed_and_removed(sink, root, monkeypatch):
    sink.write([a_job(1), a_job(2)])
    (root / "alps/20261120/job.1_environment").unlink()
    (root / "alps/.new/left-over").write_bytes(b"half")
    monkeypatch.setattr(files, "_LEFT_OVER_SECONDS", -1)

    assert open_sink(sink.name).write([a_job(1), a_job(2)]) == {}

    assert names(root / "alps/.new") == []
    assert (root / "alps/20261120/job.1_environment").read_bytes() == a_job(1).environment
    assert len(names(root)) == 4


def test_file_that_was_cut_is_not_taken_for_the_job(sink, root):
    sink.write([a_job(1)])
    (root / "alps/20261120/job.1_script").write_bytes(b"")
    os.utime(
        root / "alps/20261120/job.1_script", ns=(0, int(SUBMITTED.timestamp()) * 10**9 + 123456000)
    )

    assert sink.write([a_job(1)]) == {}

    assert (root / "alps/20261120/job.1~20261120T235958.123456Z_script").read_bytes() == a_job(
        1
    ).script


@pytest.mark.parametrize("link", ["alps", "alps/20261120", "alps/.new"])
def test_symlink_in_place_of_a_directory_is_not_followed(sink, root, tmp_path, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside)

    with pytest.raises(SinkUnavailable, match=link.rpartition("/")[2]):
        sink.write([a_job(1)])

    assert list(outside.iterdir()) == []


def test_symlink_in_place_of_a_file_is_not_followed(sink, root, tmp_path):
    directory = root / "alps/20261120"
    directory.mkdir(parents=True)
    (directory / "job.1_script").symlink_to(tmp_path / "outside")
    (directory / "job.2_script").symlink_to(tmp_path / "outside")
    (directory / "job.2~20261120T235958.123456Z_script").mkdir()

    assert list(sink.write([a_job(1), a_job(2), a_job(3)])) == [1]

    assert not (tmp_path / "outside").exists()
    assert (directory / "job.1~20261120T235958.123456Z_script").read_bytes() == a_job(1).script
    assert (directory / "job.3_script").exists()


@pytest.mark.parametrize("gone", ["archive", "archive/alps"])
def test_directory_that_is_gone_is_not_made_again(sink, root, tmp_path, gone):
    """It is not mounted: what were written below would be hidden."""
    sink.write([a_job(1)])
    (tmp_path / gone).rename(tmp_path / "aside")

    with pytest.raises(SinkUnavailable, match="No such file"):
        sink.write([a_job(2)])
    (tmp_path / "aside").rename(tmp_path / gone)

    assert sink.write([a_job(2)]) == {}
    assert len(names(root)) == 4


def test_two_at_once_keep_each_job_once(root):
    jobs = [
        a_job(number % 40, script=b"%d" % number, submitted_at=_at(number)) for number in range(120)
    ]
    threads = [
        threading.Thread(target=open_sink(f"files://{root}").write, args=(jobs,)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    scripts = [path.read_bytes() for path in root.glob("*/*/*_script")]
    assert sorted(scripts, key=int) == [b"%d" % number for number in range(120)]
    assert names(root / "alps/.new") == []


def _at(number):
    return SUBMITTED - timedelta(seconds=number)


def test_full_disk_costs_nothing_once_there_is_room(tmp_path):
    with small_disk(tmp_path / "disk", 256 * 1024) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 200_000)
        jobs = [a_job(number, script=b"x" * 9_000) for number in range(10)]
        with closing(open_sink(f"files://{disk}/archive")) as sink:
            with pytest.raises(SinkUnavailable, match="No space left"):
                sink.write(jobs)
            ballast.unlink()
            assert sink.write(jobs) == {}
        assert {path.stat().st_size for path in (disk / "archive").rglob("*_script")} == {9_000}
        assert len(names(disk)) == 20


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("files:", "absolute"),
        ("files:dir", "absolute"),
        ("files:///dir?period=hourly", "no period 'hourly'"),
        ("files:///dir?mode=1", "no option 'mode'"),
        ("files:///a%00b", "absolute"),
    ],
)
def test_bad_url_is_named(url, why):
    with pytest.raises(BadSink, match=why):
        open_sink(url)


def test_years_keep_four_digits(sink, root):
    sink.write([a_job(1, submitted_at=datetime(1, 1, 1, tzinfo=UTC))])

    assert names(root)[0].startswith("alps/00010101/")


@pytest.mark.parametrize(
    "url",
    ["kafka://me:geheim@h/t", "kafka://me:ge/heim@h/t", "files://me:geheim@/x", "x://h:geheim"],
)
def test_password_in_a_url_is_never_shown(url):
    with pytest.raises(BadSink) as raised:
        open_sink(url)
    assert "heim" not in str(raised.value)
