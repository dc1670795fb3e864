"""Expressions of users: killed after their budget, one per user at a time, whatever they are."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import re2
from django.db import connection

from apps.core import bounded_pool as bounded
from apps.core.domain.expressions import runs as expression_runs
from apps.core.domain.expressions.problems import MOST_INSTRUCTIONS, size_fault
from apps.core.domain.expressions.runs import TooCostly, expression_run

SLOW = (re.fullmatch, r"(a|a)*b", "a" * 40)  # takes hours


def test_run_ends_with_its_budget_and_the_next_one_works():
    with expression_run(None, seconds=0.3) as run:
        assert run.call(re.escape, "a.b") == r"a\.b"
        began = time.monotonic()
        with pytest.raises(TooCostly, match=r"no result within 0\.3 s"):
            run.call(*SLOW)
        with pytest.raises(TooCostly):
            run.call(re.escape, "the budget is used up")
        assert time.monotonic() - began < 30
    with expression_run(None, seconds=5) as run:
        assert run.call(len, "again") == 5


def test_a_full_pool_is_said_to_be_busy_not_the_expression_to_be_costly():
    with (
        ThreadPoolExecutor(bounded.PROCESSES) as others,
        expression_run(None, seconds=0.5) as run,
    ):
        costly = [others.submit(_call_slow) for _ in range(bounded.PROCESSES)]
        end = time.monotonic() + 30
        while expression_runs.POOL._free._value and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(TooCostly, match="Too many regular expressions are running"):
            run.call(len, "a")
        for call in costly:
            with pytest.raises(bounded.BudgetExceeded):
                call.result()


def _call_slow():
    return expression_runs.POOL.call(*SLOW, seconds=3)


@pytest.mark.django_db(transaction=True)
def test_a_user_has_one_run_at_a_time_and_others_have_theirs():
    started, ended = threading.Event(), threading.Event()

    def hold():
        with expression_run(7, seconds=30):
            started.set()
            ended.wait(30)
        connection.close()

    with ThreadPoolExecutor(1) as other:
        holding = other.submit(hold)
        assert started.wait(30)
        began = time.monotonic()
        with (
            pytest.raises(TooCostly, match="Another regular expression of yours is still running"),
            expression_run(7, seconds=20),
        ):
            pass
        assert time.monotonic() - began < 20
        with expression_run(8, seconds=5) as run:
            assert run.call(len, "b") == 1
        ended.set()
        holding.result()
    with expression_run(7, seconds=5) as run:
        assert run.call(len, "a") == 1


def test_large_expressions_are_refused():
    assert size_fault(re2.compile("a.{0,99}b")) == ""
    assert f"of at most {MOST_INSTRUCTIONS:,}" in size_fault(re2.compile("(?:a.{0,99}b){9}" * 6))
