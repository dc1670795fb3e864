"""Every regular expression of the apps takes less than a second for 200 kB of its worst input."""

import re
import time
from contextlib import suppress
from itertools import product
from pkgutil import iter_modules

import pytest

import apps
from tests import pumps
from tests.pumps import (
    Pattern,
    TooSlow,
    patterns_of,
    slow_input,
    slow_input_of_parser,
    slow_input_of_pattern,
    slow_inputs_of,
    within,
)
from tests.worst_inputs import SIZE, Input

#: They have tests of their own, with what their callers refuse before.
TESTED = {"archive", "clusters"}
APPS = [module.name for module in iter_modules(apps.__path__) if module.name not in TESTED]


def test_there_are_patterns():
    assert len(patterns_of("apps.production", "apps.diagnosis")) > 20


@pytest.mark.parametrize("app", APPS)
def test_patterns_of_app_are_fast(app):
    assert slow_inputs_of(f"apps.{app}") == {}


@pytest.fixture
def little_patience(monkeypatch):
    """What is careless takes far too long with any limit; a low one finds it sooner."""
    monkeypatch.setattr(pumps, "MOST_SECONDS", 0.05)


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"(a+)+$", "search"),
        (r"\s+$", "search"),
        (r"[a-z]+://[^@]*@", "search"),
        (rb"[-+]?(\d+\.?\d*|\.\d+)", "fullmatch"),
        (rb"(?m)^Environment used for (\S+)[^\n]*\n-{80}\n", "finditer"),
    ],
)
def test_a_careless_pattern_is_found(source, method):
    assert slow_input_of_pattern(Pattern("test", source, re.compile(source).flags, (method,))) != ""


def quadratic(text):
    for start in range(len(text)):
        text[start:].isalpha()


def exponential(text):
    for _ in product("ab", repeat=len(text)):
        pass


def stubborn(text):
    """Catch whatever can be caught, and continue."""
    while text:
        with suppress(Exception):
            text.count("a")


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("parser", [quadratic, exponential, stubborn])
def test_a_careless_parser_is_found(parser):
    assert slow_input_of_parser(parser) != ""


@pytest.mark.parametrize("parser", [str.split, str.encode, int, lambda text: 1 / 0])
def test_a_linear_parser_and_one_that_refuses_are_fast(parser):
    assert slow_input_of_parser(parser) == ""


def test_a_fault_of_a_test_is_not_taken_for_fast():
    with pytest.raises(ZeroDivisionError):
        slow_input(lambda text: 1 / 0, [Input("", "a")])


def test_only_time_of_the_cpu_counts():
    with within(0.1):
        time.sleep(0.5)


@pytest.mark.parametrize("text", ["a" * 200_000, "endless"])
def test_what_takes_too_long_fails(text):
    call = stubborn if text == "endless" else quadratic
    with pytest.raises(TooSlow), within(0.02):
        call(text)


@pytest.mark.parametrize("size", [1, 2_000, SIZE])
def test_an_input_has_its_size_and_whole_parts(size):
    text = Input("<<", "hash.1/job.1", "!").text(size)
    assert len(text) <= max(size, 3)
    assert size == 1 or re.fullmatch(r"<<(hash\.1/job\.1)+!", text)
