"""No text of a job or of a user keeps an adapter busy: each pattern with 200 kB of its worst input."""

import pytest

from tests.pumps import patterns_of, slow_inputs

PATTERNS = patterns_of("apps.clusters")


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.where.removeprefix("apps.clusters."))
def test_pattern_is_fast(pattern):
    assert slow_inputs(pattern) == ""
