"""No text of a job or of a user keeps an adapter busy: each pattern and parser with 200 kB of its worst input."""

import pytest

from tests.pumps import patterns_of, slow_input_of_parser, slow_input_of_pattern

from .parsers import PARSERS

PATTERNS = patterns_of("apps.clusters")


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.where.removeprefix("apps.clusters."))
def test_pattern_is_fast(pattern):
    assert slow_input_of_pattern(pattern) == ""


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_parser_is_fast(parser):
    assert slow_input_of_parser(parser) == ""
