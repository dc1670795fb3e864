"""Functions in processes that are killed: no text keeps the caller waiting, or takes it down."""

import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from apps.core.bounded_pool import BoundedPool, BudgetExceeded


@pytest.fixture(scope="module")
def pool():
    return BoundedPool()


def test_result_comes_back_from_another_process(pool):
    assert pool.call(os.getpid, seconds=5) != os.getpid()
    assert pool.call(re.escape, "a.b", seconds=5) == r"a\.b"
    assert pool.call(os.getpid, seconds=5) == pool.call(os.getpid, seconds=5)


def test_what_takes_too_long_is_killed_and_the_next_call_works(pool):
    pool.call(len, "warm", seconds=5)
    process = pool.call(os.getpid, seconds=5)
    began = time.monotonic()
    with pytest.raises(BudgetExceeded, match=r"no result within 0\.2 s"):
        pool.call(re.fullmatch, r"(a|a)*b", "a" * 40, seconds=0.2)
    assert time.monotonic() - began < 10  # unbounded it takes hours
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert pool.call(len, "again", seconds=5) == 5


def test_the_import_of_a_function_is_not_part_of_its_budget(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(
        "import time\ntime.sleep(0.5)\ndef answer():\n    return 42\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from slow_to_import import answer

    assert BoundedPool().call(answer, seconds=0.3) == 42


def test_what_needs_too_much_memory_or_fails_is_no_result(pool):
    with pytest.raises(BudgetExceeded, match="MemoryError"):
        pool.call(bytes, 10**10, seconds=5)
    with pytest.raises(BudgetExceeded, match="ValueError"):
        pool.call(int, "x", seconds=5)
    with pytest.raises(BudgetExceeded, match="died"):
        pool.call(os._exit, 1, seconds=5)
    assert pool.call(len, "again", seconds=5) == 5


def test_other_threads_go_on_while_a_pattern_backtracks(pool):
    pool.call(len, "warm", seconds=5)
    ticks = 0
    stopping = threading.Event()

    def tick():
        nonlocal ticks
        while not stopping.wait(0.01):
            ticks += 1

    with ThreadPoolExecutor(1) as other:
        other.submit(tick)
        with pytest.raises(BudgetExceeded):
            pool.call(re.fullmatch, r"(a|a)*b", "a" * 40, seconds=0.5)
        stopping.set()
    assert ticks > 10


def test_its_process_knows_no_secret(pool, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "x")
    assert BoundedPool().call(os.getenv, "SECRET_KEY", seconds=5) is None


def test_closed_pool_leaves_no_process_and_starts_again():
    pool = BoundedPool()
    first = pool.call(os.getpid, seconds=30)

    pool.close()

    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert pool.call(os.getpid, seconds=30) != first
    pool.close()
