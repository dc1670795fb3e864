"""No text of a job or of a user keeps an adapter busy:
each pattern and parser with 200 kB of its worst input.
"""

import pytest

from tests.pumps import slow_input_of_parser, slow_inputs_of

from .parsers import PARSERS


def test_patterns_are_fast():
    assert slow_inputs_of("apps.clusters") == {}


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_parser_is_fast(parser):
    assert slow_input_of_parser(parser) == ""
