"""The cache of files: whole or not there, within its size, and safe between processes."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps.jobs.domain.months.stores.cache import (
    IN_USE_SECONDS,
    FileCache,
    NotCached,
    WrongContent,
)

ROOT = Path(__file__).parents[3]
ONE, TWO, THREE = (bytes([number]) * 1000 for number in (1, 2, 3))


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def fill(cache, content, download=None):
    def write(file):
        file.write(content[file.tell() :])

    cache.fill(sha256(content), len(content), download or write)


def read(cache, *contents):
    with cache.held(map(sha256, contents)) as paths:
        return [path.read_bytes() for path in paths]


def unused(cache, *contents):
    """Let files be those that were not used for some time."""
    then = time.time() - 2 * IN_USE_SECONDS
    for number, content in enumerate(contents):
        os.utime(cache.directory / f"{sha256(content)}.parquet", (then + number, then + number))


@pytest.fixture
def cache(tmp_path):
    return FileCache(tmp_path / "files", max_bytes=2500)


def test_file_is_there_once_it_was_fetched(cache):
    with pytest.raises(NotCached):
        read(cache, ONE)
    fill(cache, ONE)
    assert read(cache, ONE) == [ONE]
    fill(cache, ONE, download=pytest.fail)
    assert cache.directory.stat().st_mode & 0o077 == 0


def test_half_a_download_is_never_seen_and_goes_on(cache):
    def cut(file):
        file.write(ONE[:300])
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        fill(cache, ONE, download=cut)
    with pytest.raises(NotCached):
        read(cache, ONE)

    def rest(file):
        assert file.tell() == 300
        file.write(ONE[300:])

    fill(cache, ONE, download=rest)
    assert read(cache, ONE) == [ONE]


@pytest.mark.parametrize("content", [ONE[1:], TWO, b""])
def test_wrong_content_is_refused_and_fetched_again(cache, content):
    with pytest.raises(WrongContent):
        fill(cache, ONE, download=lambda file: file.write(content))
    with pytest.raises(NotCached):
        read(cache, ONE)
    fill(cache, ONE)
    assert read(cache, ONE) == [ONE]


def test_longest_unused_files_make_room(cache):
    fill(cache, ONE)
    fill(cache, TWO)
    unused(cache, ONE, TWO)
    assert read(cache, ONE) == [ONE]  # used again, so TWO goes
    fill(cache, THREE)
    assert read(cache, ONE, THREE) == [ONE, THREE]
    with pytest.raises(NotCached):
        read(cache, TWO)


def test_files_in_use_stay_even_if_the_cache_is_too_small(cache):
    fill(cache, ONE)
    fill(cache, TWO)
    with cache.held([sha256(ONE)]) as (path,):
        unused(cache, ONE, TWO)
        fill(cache, bytes(2400))
        assert path.read_bytes() == ONE
        with pytest.raises(NotCached):
            read(cache, TWO)
    unused(cache, ONE)
    fill(cache, THREE)
    assert not path.exists()


CHILD = """
import sys, time
from pathlib import Path
from apps.jobs.domain.months.stores.cache import FileCache

def download(file):
    print(file.tell(), flush=True)
    content = bytes(range(250)) * 4
    file.write(content[file.tell():500])
    file.flush()
    time.sleep(float(sys.argv[2]))
    file.write(content[500:])

FileCache(Path(sys.argv[1]), 10_000).fill(sys.argv[3], 1000, download)
"""


def test_processes_wait_for_one_download_and_go_on_with_that_of_a_killed_one(tmp_path):
    content = bytes(range(250)) * 4

    def start(seconds):
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(seconds), sha256(content)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )

    killed = start(60)
    assert killed.stdout.readline() == b"0\n"
    while not (part := tmp_path / f"{sha256(content)}.part").stat().st_size:
        time.sleep(0.01)
    waiting = [start(0), start(0)]
    time.sleep(0.3)
    assert all(process.poll() is None for process in waiting)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    answers = sorted(process.communicate(timeout=60)[0] for process in waiting)
    assert answers == [b"", b"500\n"]
    assert [process.returncode for process in waiting] == [0, 0]
    assert not part.exists()
    assert read(FileCache(tmp_path, 10_000), content) == [content]
